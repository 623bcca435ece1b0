#!/usr/bin/env python3
"""Latency of vision models on ONNX Runtime's CPU provider: planish's artifacts next to Optimum's exports, float32 and INT8.

    tools/bench_vision.py PLANISH [NAME...] [--batch 1] [--rounds 15] [--threads 2] [--cpu-time] [--folder DIR] [--no-int8] [--document FILE.md]

NAME is a key of vision/models.py, which makes checkpoints with random weights; `cnn` is a small network that torch exports. For each
model, planish compiles for target ort in float32 and with `--int8 --calibrate`, and ONNX Runtime's `quantize_static` quantizes Optimum's
export (QDQ, uint8 activations, int8 weights by channel, minimum and maximum), calibrated on the same 16 random images. Every file is a
session of its own with default options and idle threads asleep; the sessions take turns, each round in another order. With
`--cpu-time` there is one thread, and its time on a processor counts, which programs beside it hardly change. The table has medians, the median over rounds of the ratio to Optimum's file in the same round (above 1 is faster), the size of the file, and the
mean and the least cosine of the first output to that of Optimum's file over 8 other images. Runs in the environment of
tests/compat/requirements-optimum.txt.
"""

import argparse
import logging
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from safetensors.numpy import save_file

from vision import models, small

BEGIN, END = "<!-- vision: begin -->", "<!-- vision: end -->"
IMAGES, HELD_OUT = 16, 8
TITLES = {
    "optimum": "Optimum",
    "control": "the same file again",
    "planish": "planish",
    "static": "ONNX Runtime static INT8",
    "planish-int8": "planish `--int8 --calibrate`",
}


class Images(CalibrationDataReader):
    """Images one by one, as quantize_static takes them."""

    def __init__(self, images):
        self.left = iter(images)

    def get_next(self):
        image = next(self.left, None)
        return None if image is None else {"pixel_values": image[None]}


def processor():
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    facts = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni") if flag in facts.get("flags", "").split()]
    return f"{facts.get('model name', 'unknown')} ({', '.join(flags)})"


def prepared(args, name):
    """The files to compare by their keys, and what could not be made."""
    folder = args.folder / name
    folder.mkdir(parents=True, exist_ok=True)
    size = small.SIZE if name == "cnn" else models.MODELS[name][0]
    images = numpy.random.default_rng(1).standard_normal((IMAGES, 3, size, size), dtype=numpy.float32)
    data = folder / "images.safetensors"
    save_file({"pixel_values": images}, data)
    if name == "cnn":
        source = peer = folder / "cnn.onnx"
        small.export(source)
    else:
        source, peer = folder / "checkpoint", folder / "optimum" / "model.onnx"
        if not (source / "model.safetensors").exists():
            models.make(name, source)
        if not peer.exists():
            models.export(name, source, peer.parent)
    files, failed = {"optimum": peer, "control": peer}, []
    kinds = {"planish": [], "planish-int8": ["--int8", "--calibrate", str(data)]}
    for key, options in kinds.items():
        if key == "planish-int8" and args.no_int8:
            continue
        command = [args.planish, "compile", source, "-o", folder / key, "--target", "ort", "--force", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            files[key] = next((folder / key).glob("*.onnx"))
        else:
            failed.append(f"{name}: planish {' '.join(options)}: {done.stderr.strip().splitlines()[0]}")
    if not args.no_int8:
        static, before = folder / "static.onnx", folder / "before.onnx"
        if not static.exists():
            quant_pre_process(peer, before, skip_symbolic_shape=True)
            types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
            quantize_static(before, static, Images(images), quant_format=QuantFormat.QDQ, per_channel=True, **types)
        files["static"] = static
    return {key: files[key] for key in TITLES if key in files}, size, failed


def opened(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def cosine(a, b):
    a, b = a.astype(numpy.float64).ravel(), b.astype(numpy.float64).ravel()
    return float(a @ b / (numpy.linalg.norm(a) * numpy.linalg.norm(b)))


def measured(args, files, size):
    """For each file its median in ms, its ratio, and the mean and the least cosine."""
    sessions = {key: opened(path, args.threads) for key, path in files.items()}
    images = numpy.random.default_rng(2).standard_normal((HELD_OUT, 3, size, size), dtype=numpy.float32)
    wanted = sessions["optimum"].get_outputs()[0].name
    first = {key: [session.run([wanted], {"pixel_values": image[None]})[0] for image in images] for key, session in sessions.items()}
    feed = {"pixel_values": images[: args.batch].copy()}
    for session in sessions.values():
        session.run(None, feed)
    rounds, clock = [], time.thread_time if args.cpu_time else time.perf_counter
    for _ in range(args.rounds):
        seconds = {}
        for key in random.sample(list(sessions), len(sessions)):
            start = clock()
            sessions[key].run(None, feed)
            seconds[key] = clock() - start
        rounds.append(seconds)
    for key in sessions:
        cosines = [cosine(a, b) for a, b in zip(first["optimum"], first[key])]
        ratio = statistics.median(seconds["optimum"] / seconds[key] for seconds in rounds)
        yield key, 1000 * statistics.median(seconds[key] for seconds in rounds), ratio, statistics.mean(cosines), min(cosines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("names", nargs="*", metavar="NAME", help="which models; all by default")
    parser.add_argument("--batch", type=int, default=1, choices=range(1, HELD_OUT + 1), metavar="N")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, and its time on a processor")
    parser.add_argument("--folder", type=Path, default=Path(".bench/vision"), help="where models are kept")
    parser.add_argument("--no-int8", action="store_true", help="float32 only")
    parser.add_argument("--document", type=Path, metavar="FILE.md", help="the page to write the table into")
    args = parser.parse_args()
    args.planish = args.planish.resolve()
    args.threads = 1 if args.cpu_time else args.threads
    names = args.names or ["cnn", *models.MODELS]
    unknown = [name for name in names if name != "cnn" and name not in models.MODELS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are cnn, {', '.join(models.MODELS)}")
    torch.set_num_threads(args.threads)
    # The tool says of each vector of a norm that it has no second axis.
    logging.disable(logging.WARNING)
    lines = ["| model | | ms | ratio | MB | cosine: mean / least |", "|---|---|---|---|---|---|"]
    failures = []
    for name in names:
        files, size, failed = prepared(args, name)
        failures += failed
        for at, (key, ms, ratio, mean, least) in enumerate(measured(args, files, size)):
            title = "torch's export" if name == "cnn" and key == "optimum" else TITLES[key]
            size_mb = sum(file.stat().st_size for file in files[key].parent.glob(f"{files[key].name}*")) / 1e6
            lines.append(f"| {name if at == 0 else ''} | {title} | {ms:.2f} | {ratio:.2f} | {size_mb:.3g} | {mean:.5f} / {least:.5f} |")
            print(lines[-1], file=sys.stderr, flush=True)
    clock = "CPU time of one thread" if args.cpu_time else f"{args.threads} threads"
    text = f"{processor()}; {clock}; ONNX Runtime {onnxruntime.__version__}; batch {args.batch}; {args.rounds} rounds."
    table = text + "\n\n" + "\n".join(lines)
    print(table)
    if args.document:
        before, rest = args.document.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        args.document.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")
    print("\n".join(failures), file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
