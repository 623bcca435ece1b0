#!/usr/bin/env python3
"""Measures `planish embed` next to sentence-transformers and fastembed, on the same texts.

    bench_embed.py PLANISH MODEL ARTIFACT SENTENCES [--texts 1000] [--rounds 5] [--fastembed]

The texts are runs of lines of SENTENCES, 1 to 8 lines each, so that lengths are mixed; the same for all. MODEL is the folder of
sentence-transformers, ARTIFACT what planish compiled of it. Each contestant embeds all texts once a round, by itself in a process that
ends, in turn; the table has the median of the texts a second from the first text to the last vector, without loading, and the
median of the whole process. The vectors of each are compared with those of sentence-transformers by PyTorch.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

LONGEST = 256  # max_seq_length of MiniLM


def texts(sentences: Path, count: int) -> list[str]:
    lines = sentences.read_text().splitlines()
    pick = random.Random(1)
    return [" ".join(pick.choice(lines) for _ in range(pick.choice([1, 1, 1, 2, 2, 3, 5, 8]))) for _ in range(count)]


def encode(backend: str, folder: Path, data: Path, vectors: Path) -> None:
    """What a process of a library does."""
    given = [json.loads(line)["text"] for line in data.read_text().splitlines()]
    if backend == "fastembed":
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model="local", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="local/local"), dim=384,
            model_file="model.onnx",
        )  # fmt: skip
        model = TextEmbedding("local", specific_model_path=str(folder))
        run = lambda: np.array(list(model.embed(given, batch_size=32)))
    else:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(folder), backend=backend)
        run = lambda: model.encode(given, batch_size=32, show_progress_bar=False)
    start = time.perf_counter()
    found = run()
    print(time.perf_counter() - start)
    np.save(vectors, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fastembed", action="store_true")
    parser.add_argument("--encode", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.encode:
        backend, folder, data, vectors = arguments.encode
        encode(backend, Path(folder), Path(data), Path(vectors))
        return 0
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="true")
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "texts.jsonl"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(arguments.sentences, arguments.texts)))
        own = [sys.executable, "-W", "ignore", __file__, *map(str, [arguments.planish, arguments.model, arguments.artifact, arguments.sentences])]
        library = lambda backend, folder, vectors: own + ["--encode", backend, str(folder), str(data), str(vectors)]
        contestants = {
            "planish embed": lambda vectors: [
                arguments.planish, "embed", arguments.artifact, "--data", data, "-o", vectors, "--json",
            ],
            "sentence-transformers, onnx": lambda vectors: library("onnx", arguments.artifact, vectors),
            "sentence-transformers, torch": lambda vectors: library("torch", arguments.model, vectors),
        }  # fmt: skip
        if arguments.fastembed:
            contestants["fastembed"] = lambda vectors: library("fastembed", arguments.artifact, vectors)
        inner: dict[str, list[float]] = {name: [] for name in contestants}
        whole: dict[str, list[float]] = {name: [] for name in contestants}
        vectors = {name: Path(scratch) / f"{at}.npy" for at, name in enumerate(contestants)}
        for _ in range(arguments.rounds):
            for name, command in contestants.items():
                start = time.perf_counter()
                done = subprocess.run(command(vectors[name]), capture_output=True, text=True, env=environment)
                whole[name].append(time.perf_counter() - start)
                if done.returncode != 0:
                    sys.exit(f"{name}: {done.stderr[-600:]}")
                last = done.stdout.strip()
                inner[name].append(json.loads(last)["seconds"] if last.startswith("{") else float(last.splitlines()[-1]))
        reference = np.load(vectors["sentence-transformers, torch"])
        print(f"{arguments.texts} texts, {arguments.rounds} rounds, medians")
        print("| contestant | texts a second | whole process, s | largest difference |")
        print("|---|---|---|---|")
        for name in contestants:
            rate = arguments.texts / statistics.median(inner[name])
            found = float(np.abs(np.load(vectors[name]) - reference).max())
            print(f"| {name} | {rate:.0f} | {statistics.median(whole[name]):.2f} | {found:.1e} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
