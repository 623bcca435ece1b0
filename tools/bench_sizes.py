#!/usr/bin/env python3
"""Sizes of INT8 artifacts next to ONNX Runtime's dynamic quantization, with the error of each.

    tools/bench_sizes.py PLANISH MODEL... [--scratch DIR] [--document FILE.md]

MODEL is a checkpoint folder, or `cnn` or `lstm` for a graph with random weights (sizes/graphs.py). A checkpoint is compiled in float32
for target onnx with `--no-fusion`, in the operators that exporters of PyTorch write: the tool transposes the weight of a Gemm in place,
also where a Gather takes it. ONNX Runtime's tool quantizes these files with its defaults (int8 weights with one scale for each tensor), and with
a scale for each output channel. planish compiles with `--int8` for target ort. The cosine is that of the outputs to those in float32,
on seeded inputs: the least of all parts of a model. For a folder with a tokenizer.json it is also that of the embeddings of texts, and
the share of texts whose nearest other text stays the same. Needs onnxruntime, onnx, numpy and tokenizers.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from quantization import metrics
from sizes.graphs import GRAPHS

TEXTS = Path(__file__).resolve().parent.parent / "fixtures" / "data" / "sentences.txt"
BATCH, TOKENS, PAST = 2, 48, 16
BEGIN, END = "<!-- sizes: begin -->", "<!-- sizes: end -->"


def session(path: Path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def tensor(port, random):
    """An input of a model: ids, a full mask, positions, or normal numbers."""
    known = {"batch": BATCH, "time": TOKENS, "past_sequence_length": PAST, "past_decoder_sequence_length": PAST}
    known["past_sequence_length + sequence_length"] = PAST + TOKENS
    shape = [size if isinstance(size, int) else known.get(size, BATCH if "batch" in size else TOKENS) for size in port.shape]
    if port.name.endswith("mask"):
        return numpy.ones(shape, dtype=numpy.int64)
    if "position" in port.name:
        return numpy.broadcast_to(numpy.arange(shape[-1]), shape).astype(numpy.int64)
    if "type_ids" in port.name:
        return numpy.zeros(shape, dtype=numpy.int64)
    if port.type == "tensor(int64)":
        return random.integers(100, 10000, shape)
    return random.normal(0, 1, shape).astype(numpy.float32)


def cosine(a, b):
    a, b = a.astype(numpy.float64).ravel(), b.astype(numpy.float64).ravel()
    return float(a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b)))


def outputs(folder: Path):
    """The first output of each part."""
    results = {}
    for path in sorted(folder.glob("*.onnx")):
        model, random = session(path), numpy.random.default_rng(7)
        feeds = {port.name: tensor(port, random) for port in sorted(model.get_inputs(), key=lambda port: port.name)}
        results[path.name] = model.run([model.get_outputs()[0].name], feeds)[0]
    return results


def embeddings(folder: Path, tokenizer: Path):
    """The means of last_hidden_state over the tokens of texts, of length 1."""
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(str(tokenizer))
    reader.no_padding()
    reader.enable_truncation(128)
    model, rows = session(folder / "model.onnx"), []
    for line in TEXTS.read_text(encoding="utf-8").splitlines():
        ids = numpy.array([reader.encode(line).ids], dtype=numpy.int64)
        feeds = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
        feeds = {port.name: feeds[port.name] for port in model.get_inputs()}
        row = model.run(["last_hidden_state"], feeds)[0][0].mean(axis=0)
        rows.append(row / numpy.linalg.norm(row))
    return numpy.stack(rows)


def size(folder: Path):
    return sum(path.stat().st_size for path in folder.glob("*.onnx*")) / 1e6


def quantized(source: Path, target: Path, per_channel: bool):
    target.mkdir(exist_ok=True)
    for path in sorted(source.glob("*.onnx")):
        quantize_dynamic(path, target / path.name, weight_type=QuantType.QInt8, per_channel=per_channel)


def rows(args, model: str):
    """The lines of the table for a model."""
    scratch = args.scratch / Path(model).name
    scratch.mkdir(parents=True, exist_ok=True)
    source = Path(model)
    if model in GRAPHS:
        source = scratch / f"{model}.onnx"
        GRAPHS[model](source)
    folders = {name: scratch / name for name in ("float", "planish", "tool", "channels")}
    for name, more in (("float", ["--target", "onnx", "--no-fusion"]), ("planish", ["--int8"])):
        subprocess.run([args.planish, "compile", source, "-o", folders[name], "--force", *more], check=True, stdout=subprocess.DEVNULL)
    quantized(folders["float"], folders["tool"], per_channel=False)
    quantized(folders["float"], folders["channels"], per_channel=True)
    names = {"planish": "planish `--int8`", "tool": "ONNX Runtime's tool", "channels": "the same, by channel"}
    tokenizer = source / "tokenizer.json"
    wanted = outputs(folders["float"])
    wanted_texts = embeddings(folders["float"], tokenizer) if tokenizer.is_file() else None
    yield f"| {Path(model).name} | float32 | {size(folders['float']):.1f} | | |"
    for name, title in names.items():
        given = outputs(folders[name])
        least = min(cosine(wanted[part], given[part]) for part in wanted)
        text = ""
        if wanted_texts is not None:
            found = metrics.embeddings(wanted_texts, embeddings(folders[name], tokenizer))
            text = f"{found['mean']:.5f} / {found['least']:.4f} / {found['neighbours']:.1f} %"
        yield f"| | {title} | {size(folders[name]):.1f} | {least:.5f} | {text} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a checkpoint folder, cnn, or lstm")
    parser.add_argument("--scratch", type=Path, default=Path(".bench/sizes"), help="where artifacts are kept")
    parser.add_argument("--document", type=Path, metavar="FILE.md", help="the page to write the table into")
    args = parser.parse_args()
    args.planish = args.planish.resolve()
    lines = ["| model | | MB | least cosine, seeded inputs | texts: cosine mean / least / neighbours |", "|---|---|---|---|---|"]
    for model in args.models:
        for line in rows(args, model):
            print(line, file=sys.stderr, flush=True)
            lines.append(line)
    table = f"ONNX Runtime {onnxruntime.__version__}.\n\n" + "\n".join(lines)
    print(table)
    if args.document:
        before, rest = args.document.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        args.document.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
