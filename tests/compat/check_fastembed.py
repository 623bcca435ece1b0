#!/usr/bin/env python3
"""Holds vectors and scores of fastembed's custom models against those of planish.

    check_fastembed.py PLANISH MINILM SENTENCES [--tolerance 1e-5]

It compiles MiniLM with `--package sentence-transformers`, whose folder has the files that fastembed looks for, and registers it in three
ways: by the vectors of texts that the graph gives, and by the library's own pooling of what it gives for tokens. The vectors of SENTENCES must be
those of `PLANISH embed`. Of MiniLM's layers with a head of random weights it makes a reranker, whose scores of pairs must be the logits of
`PLANISH predict`. Exits 1 when a case fails.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from fastembed.rerank.cross_encoder import TextCrossEncoder
from safetensors.numpy import load_file, save_file

from cases import Lines, Mismatch, compiled, difference

# How fastembed pools what a graph gives: the output, its pooling, and whether it divides vectors by their lengths.
MODELS = {
    "the graph's vectors": ("sentence_embedding", PoolingType.DISABLED, False),
    "the library's mean": ("last_hidden_state", PoolingType.MEAN, True),
    "the first output": (None, PoolingType.MEAN, True),
}
PACKAGE = ("--package", "sentence-transformers")

# Where a model that is on this disk would come from.
HERE = ModelSource(hf="planish/local")


def reranker(minilm: Path, folder: Path) -> Path:
    """A checkpoint that scores pairs: the layers of MiniLM with a random head."""
    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("modules.json", "1_Pooling", "*sentence*"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    # fastembed gives logits.
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(1)
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.weight"] = random.standard_normal((1, config["hidden_size"])).astype(np.float32) / 8
    tensors["classifier.bias"] = np.zeros(1, np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def written(planish: Path, command: str, artifact: Path, data: Path, *more: str) -> list[dict]:
    """What a command of planish writes of each record of some data."""
    out = data.with_suffix(".found.jsonl")
    done = subprocess.run([planish, command, artifact, "--data", data, "-o", out, *more], capture_output=True, text=True)
    if done.returncode != 0:
        raise Mismatch(f"{command} exited with {done.returncode}: {done.stderr.strip()}")
    return [json.loads(line) for line in out.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    arguments = parser.parse_args()
    lines = arguments.sentences.read_text().splitlines()
    report = Lines("fastembed")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        artifact = compiled(arguments.planish, arguments.minilm, folder / "minilm", *PACKAGE)
        data = folder / "sentences.txt"
        data.write_text("\n".join(lines) + "\n")
        found = written(arguments.planish, "embed", artifact, data)
        wanted = np.array([record["embedding"] for record in found], np.float32)

        def embedded(name: str) -> str:
            output, pooling, normalization = MODELS[name]
            TextEmbedding.add_custom_model(
                name, pooling=pooling, normalization=normalization, sources=HERE, dim=wanted.shape[1], output_name=output
            )
            model = TextEmbedding(name, specific_model_path=str(artifact))
            got = np.array(list(model.embed(lines, batch_size=16)), np.float32)
            return f"{len(lines)} texts, largest difference {difference('embed', got, wanted, None, arguments.tolerance):.1e}"

        for name in MODELS:
            report.check(name, lambda: embedded(name))

        def scored() -> str:
            checkpoint = reranker(arguments.minilm, folder / "reranker")
            artifact = compiled(arguments.planish, checkpoint, folder / "reranker-artifact", *PACKAGE)
            query, documents = lines[0], lines[1:41]
            pairs = folder / "pairs.jsonl"
            pairs.write_text("".join(json.dumps({"query": query, "document": text}) + "\n" for text in documents))
            records = written(arguments.planish, "predict", artifact, pairs, "--field", "query,document")
            wanted = np.array([record["score"] for record in records], np.float32)
            TextCrossEncoder.add_custom_model("reranker", sources=HERE)
            model = TextCrossEncoder("reranker", specific_model_path=str(artifact))
            got = np.array(list(model.rerank(query, documents, batch_size=8)), np.float32)
            return f"{len(documents)} pairs, largest difference {difference('rerank', got, wanted, None, arguments.tolerance):.1e}"

        report.check("a reranker", scored)
    return report.ended()


if __name__ == "__main__":
    sys.exit(main())
