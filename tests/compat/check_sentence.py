#!/usr/bin/env python3
"""Holds sentence models against the sentence-transformers library.

    check_sentence.py PLANISH MINILM SENTENCES [--tolerance 1e-5]

It makes random models of each form of modules, writes them as that library does, compiles each for targets onnx and ort, and compares
`sentence_embedding` of texts of many lengths with what `encode` returns. Each is also compiled with `--package sentence-transformers`,
and the library loads that folder with `backend="onnx"`, in which its own modules pool. So are rerankers (CrossEncoder), and models of
late interaction where the library has them (MultiVectorEncoder, from 6.0 on). The trained MiniLM is compared on the lines of SENTENCES,
also in 8 bits. Exits 1 when a case fails.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import sentence_transformers
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.models import Dense, Dropout, LayerNorm, Normalize, Pooling, StaticEmbedding, Transformer
from sentence_transformers.sparse_encoder.models import MLMTransformer, SpladePooling
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from cases import Lines, Mismatch, compiled, difference

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(95)]
WIDTH = 32
MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
TARGETS = ["onnx", "ort"]
PACKAGE = ["--package", "sentence-transformers"]

# How far an element of MiniLM's vectors of length 1 may be off in 8 bits.
EIGHT_BITS = 0.05

# What planish says of a table of vectors, which the library looks up without a graph.
STATIC = "by itself, without a graph"


def tokenizer(is_static: bool) -> PreTrainedTokenizerFast:
    """A tokenizer of the words; that of static embeddings adds no special tokens."""
    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if not is_static:
        ids = [("[CLS]", 2), ("[SEP]", 3)]
        words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], SPECIAL))
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=40, **names)


def base(folder: Path, model: type) -> str:
    """The folder of a small model with random weights, no norm of which is 1 and no bias 0."""
    sizes = dict(hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
    made = model(BertConfig(vocab_size=100, max_position_embeddings=48, num_labels=1, **sizes))
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    made.save_pretrained(folder)
    tokenizer(False).save_pretrained(folder)
    return str(folder)


def random_models(folder: Path) -> dict[str, Callable[[], torch.nn.Module]]:
    """A model of each form of modules, by its name."""
    plain, masked = base(folder / "plain", BertModel), base(folder / "masked", BertForMaskedLM)
    norm = LayerNorm(WIDTH)
    norm.norm.weight.data += 0.2 * torch.randn(WIDTH)
    norm.norm.bias.data += 0.2 * torch.randn(WIDTH)

    def of(*modules, **more):
        return lambda: SentenceTransformer(modules=[Transformer(plain), *modules], **more)

    def pooling(*modes):
        return Pooling(WIDTH, pooling_mode=modes[0]) if len(modes) == 1 else Pooling(
            WIDTH, **{f"pooling_mode_{mode}": True for mode in modes}
        )  # fmt: skip

    made = {f"pooling-{mode}": of(pooling(mode)) for mode in MODES}
    made["pooling-joined"] = of(pooling("mean_tokens", "max_tokens", "lasttoken"))
    made["dense"] = of(pooling("mean"), Dense(WIDTH, 20), Normalize())
    relu = Dense(WIDTH, 20, bias=False, activation_function=torch.nn.ReLU())
    made["two-dense"] = of(pooling("mean"), relu, Dense(20, 12, activation_function=torch.nn.Identity()))
    made["norm"] = of(pooling("mean"), norm, Dropout(0.3), Normalize())
    made["truncated"] = of(pooling("mean"), Normalize(), truncate_dim=10)
    table = np.random.default_rng(1).standard_normal((100, 16)).astype(np.float32)
    static = lambda: StaticEmbedding(tokenizer(True)._tokenizer, embedding_weights=table)
    made["static"] = lambda: SentenceTransformer(modules=[static(), Normalize()])
    for strategy in ["max", "sum"]:
        for activation in ["relu", "log1p_relu"]:
            splade = lambda s=strategy, a=activation: SpladePooling(s, activation_function=a)
            made[f"splade-{strategy}-{activation}"] = lambda s=splade: SparseEncoder(modules=[MLMTransformer(masked), s()])
    return made


def of_tokens(plain: str) -> torch.nn.Module:
    """A model of late interaction: the vectors of tokens are projected and divided by their lengths."""
    feature = dict(module_input_name="token_embeddings")
    dense = Dense(WIDTH, 16, bias=False, activation_function=torch.nn.Identity(), **feature)
    return sentence_transformers.MultiVectorEncoder(modules=[Transformer(plain), dense, Normalize(**feature)])


def inputs(model: torch.nn.Module, texts: list[str], names: list[str]) -> dict[str, np.ndarray]:
    """What the library's tokenizer makes of texts, for the inputs of a graph."""
    if isinstance(model.tokenizer, Tokenizer):
        rows = [encoding.ids for encoding in model.tokenizer.encode_batch(texts, add_special_tokens=False)]
        longest = max(map(len, rows))
        pad = lambda row, fill: row + [fill] * (longest - len(row))
        made = {"input_ids": [pad(row, 0) for row in rows], "attention_mask": [pad([1] * len(row), 0) for row in rows]}
    else:
        length = model.max_seq_length
        made = model.tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="np")
    made = {name: np.asarray(tensor, np.int64) for name, tensor in made.items()}
    made.setdefault("token_type_ids", np.zeros_like(made["input_ids"]))
    return {name: made[name] for name in names}


def encoded(model: torch.nn.Module, texts: list[str]) -> np.ndarray:
    if isinstance(model, SparseEncoder):
        return model.encode(texts, convert_to_tensor=True, show_progress_bar=False).to_dense().cpu().numpy()
    if isinstance(model, CrossEncoder):
        return model.predict(list(zip(texts, texts[1:])), batch_size=8, show_progress_bar=False)
    vectors = model.encode(texts, batch_size=8, show_progress_bar=False)
    return vectors if isinstance(vectors, np.ndarray) else np.concatenate(vectors)


def embedded(artifact: Path, model: torch.nn.Module, texts: list[str]) -> np.ndarray:
    session = onnxruntime.InferenceSession(artifact / "model.onnx")
    names = [port.name for port in session.get_inputs()]
    batches = [texts[at : at + 16] for at in range(0, len(texts), 16)]
    run = lambda batch: session.run(["sentence_embedding"], inputs(model, batch, names))[0]
    return np.concatenate([run(batch) for batch in batches])


def check(planish: Path, source: Path, model: torch.nn.Module, texts: list[str], scratch: Path, tolerance: float) -> str:
    """Compares the artifacts of both targets with what the library encodes; returns what was seen."""
    wanted = encoded(model, texts)
    found = []
    for target in TARGETS:
        artifact = compiled(planish, source, scratch / f"{source.name}-{target}", "--target", target)
        found.append(difference(target, embedded(artifact, model, texts), wanted, None, tolerance))
    return f"{len(texts)} texts, largest differences {' and '.join(f'{value:.1e}' for value in found)}"


def by_library(planish: Path, source: Path, model: torch.nn.Module, texts: list[str], scratch: Path, tolerance: float) -> str:
    """Compares what the library encodes with the graphs of `--package sentence-transformers`, and with its own model."""
    wanted = encoded(model, texts)
    found = []
    for target in TARGETS:
        artifact = scratch / f"{source.name}-{target}-package"
        compiled(planish, source, artifact, *PACKAGE, "--target", target)
        loaded = type(model)(str(artifact), backend="onnx")
        found.append(difference(target, encoded(loaded, texts), wanted, None, tolerance))
    return f"by the library: {', '.join(f'{value:.1e}' for value in found)}"


def refused(planish: Path, source: Path, scratch: Path) -> str:
    """Of a model that the library runs without a graph: compiling it for the library is an error that says why."""
    try:
        compiled(planish, source, scratch / f"{source.name}-refused", *PACKAGE)
    except Mismatch as error:
        if STATIC in str(error):
            return f"refused for the library: {STATIC}"
        raise
    raise Mismatch("it is not refused for the library")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("minilm", type=Path)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--tolerance", type=float, default=1e-5)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, count)) for count in (1, 2, 3, 7, 12, 20, 30, 50)]
    lines = arguments.sentences.read_text().splitlines()
    report = Lines(f"sentence-transformers {sentence_transformers.__version__}")

    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name, make in random_models(scratch / "base").items():
            model = make()
            model.save(str(scratch / name))
            case = (arguments.planish, scratch / name, model, texts, scratch, arguments.tolerance)
            own = (lambda: refused(*case[:2], scratch)) if name == "static" else lambda: by_library(*case)
            report.check(name, lambda: f"{check(*case)}; {own()}")

        def alone(name: str, model: torch.nn.Module) -> None:
            model.save(str(scratch / name))
            report.check(name, lambda: by_library(arguments.planish, scratch / name, model, texts, scratch, arguments.tolerance))

        alone("reranker", CrossEncoder(base(scratch / "base/scores", BertForSequenceClassification)))
        if hasattr(sentence_transformers, "MultiVectorEncoder"):
            alone("late-interaction", of_tokens(str(scratch / "base/plain")))
        minilm = SentenceTransformer(str(arguments.minilm))
        report.check("MiniLM", lambda: check(arguments.planish, arguments.minilm, minilm, lines, scratch, arguments.tolerance))

        def backend(tolerance: float, *more: str) -> str:
            artifact = compiled(arguments.planish, arguments.minilm, scratch / f"minilm{''.join(more)}", *PACKAGE, *more)
            loaded = SentenceTransformer(str(artifact), backend="onnx")
            wanted, got = (model.encode(lines, show_progress_bar=False) for model in (minilm, loaded))
            return f"{len(lines)} texts, largest difference {difference('encode', got, wanted, None, tolerance):.1e}"

        report.check("MiniLM, backend onnx", lambda: backend(arguments.tolerance))
        report.check("MiniLM, 8 bits", lambda: backend(EIGHT_BITS, "--int8"))
    return report.ended()


if __name__ == "__main__":
    sys.exit(main())
