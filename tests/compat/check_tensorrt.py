#!/usr/bin/env python3
"""Holds target trt against NVIDIA's own Python bindings of TensorRT-RTX.

    check_tensorrt.py PLANISH [--precisions f32,fp16,bf16] [--compare-builds] [--keep DIR] MODEL...

A MODEL is a checkpoint folder or an .onnx file. For each one and each precision it runs
`PLANISH compile MODEL --target trt --recipe engine.keep-onnx=true --recipe engine.gpu=sm89`, with --verify for checkpoints, so that the graph that the
engine is built of is compared with the model. Then the bindings build the same ONNX files with the same profiles: both
must agree. A graph that planish refuses because TensorRT does not take it counts as refused, with planish's reason. Symbols without a usual range
get one.
--compare-builds builds each file once more in a process of its own, ours and theirs, and prints time and peak memory.
Exits 1 when planish and the bindings disagree, or a verification fails. No GPU is needed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CAPABILITY = "SM89"
# Checkpoints whose verification fails in a precision, with the reason. It is a failure when one of them passes.
KNOWN = {
    ("detr", "fp16"): "its feature maps leave float16 for images of 224 x 224, by random weights, on target onnx too",
    ("gemma3", "bf16"): "its large scores are not told apart in bfloat16, on target onnx too",
    ("t5-gated-untied", "bf16"): "its random gates amplify the rounding of bfloat16, on target onnx too",
}
# Mixtures of experts with random weights, whose scores are close.
ROUTED = {
    "fp16": ("ernie4-5-moe", "olmoe", "qwen3-5-moe", "qwen3-moe"),
    "bf16": (
        "deepseek-v2", "deepseek-v3", "dots1", "ernie4-5-moe", "glm4-moe", "gpt-oss", "lfm2-moe", "llama4", "phimoe",
        "qwen2-moe", "qwen3-moe",
    ),
}  # fmt: skip
for half, names in ROUTED.items():
    KNOWN |= {(name, half): "its router chooses other experts where rounding moves scores, on target onnx too" for name in names}
# The members of config.json that symbols without a usual range stand for.
CONFIGURED = {"height": "image_size", "width": "image_size", "num_channels": "num_channels"}
FLAGS = {"f32": [], "fp16": ["--fp16"], "bf16": ["--bf16"]}


def bindings():
    """The bindings, which find the parser by the loader's path: the process starts again with it."""
    import tensorrt_rtx_libs

    folder = str(Path(tensorrt_rtx_libs.__file__).parent)
    if folder not in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        os.environ["LD_LIBRARY_PATH"] = folder
        os.execv(sys.executable, [sys.executable, *sys.argv])
    from tensorrt_rtx_bindings import tensorrt_rtx

    return tensorrt_rtx


def build(onnx: Path, profiles: list) -> str:
    """Builds an engine with the bindings; why it failed, or an empty text."""
    trt = bindings()

    class Log(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)
            self.errors = []

        def log(self, severity, text):
            if severity <= trt.ILogger.ERROR:
                self.errors.append(text)

    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(onnx)):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        return "parser: " + "; ".join(f"{e.node_name()}: {e.desc()}" for e in errors[:3])
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, CAPABILITY), 0)
    for profile in profiles:
        made = builder.create_optimization_profile()
        for port in profile["inputs"]:
            made.set_shape(port["name"], port["min"], port["opt"], port["max"])
        if profile["inputs"]:
            config.add_optimization_profile(made)
    plan = builder.build_serialized_network(network, config)
    if plan is not None:
        (onnx.parent.parent / "theirs.engine").write_bytes(plan)
    return "" if plan is not None else "builder: " + " | ".join(log.errors[-2:])


def child(command: list) -> tuple:
    """Runs a command: its exit code, what it printed, seconds and the peak of its memory in MB."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, text, time.monotonic() - start, usage.ru_maxrss / 1000


class Check:
    def __init__(self, args):
        self.args = args
        self.counts = {"passed": 0, "refused": 0, "known": 0, "failed": 0}
        self.scratch = Path(args.keep or tempfile.mkdtemp())

    def model(self, model: Path, precision: str):
        stem = model.stem if model.suffix == ".onnx" else model.name
        name = f"{model.parent.name + '/' if stem == 'model' else ''}{stem} {precision}"
        out = self.scratch / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = [self.args.planish, "compile", str(model), "--target", "trt", "--recipe=engine.keep-onnx=true", f"--recipe=engine.gpu={CAPABILITY.lower()}"]
        command += [*FLAGS[precision], "-o", str(out), "--force"] + ([] if model.suffix == ".onnx" else ["--verify"])
        code, text, *_ = child(command)
        if code == 2 and "has no range" in text:
            symbols = re.findall(r"`(\w+)` \(of", text)
            config = model.parent / "config.json"
            sizes = json.loads(config.read_text()) if config.exists() else {}
            # Some models take few tokens, and others make nothing of few samples.
            for most in "1:16:64", "1:8:16":
                usual = lambda symbol: "1:2:8" if symbol in ("b", "batch_size") else most
                ranges = [f"{symbol}={sizes.get(CONFIGURED.get(symbol), usual(symbol))}" for symbol in symbols]
                code, text, *_ = child([*command, "--shapes", ",".join(ranges)])
                if "tokens at most" not in text:
                    break
        if "the model computes in" in text and code == 1:
            return  # It is in another half type.
        known = KNOWN.get((stem, precision))
        if known:
            return self.count("known" if code == 3 else "failed", name, known if code == 3 else "a known limit passes")
        if code != 0:
            refused = code == 1 and "target `trt` cannot run" in text
            return self.count("refused" if refused else "failed", name, f"exit code {code}: {' '.join(text.split())[-300:]}")
        parts = json.loads((out / "profiles.json").read_text())["parts"]
        for part in parts:
            why = build(out / f"{part['name']}.onnx", part["profiles"])
            if why:
                return self.count("failed", name, f"{part['name']}: the bindings refuse what planish built: {why[:400]}")
        sizes = [f"{(out / (part['name'] + '.engine')).stat().st_size:,}" for part in parts]
        self.count("passed", name, f"{', '.join(sizes)} bytes")
        if self.args.compare_builds:
            self.time(out, parts)

    def time(self, out: Path, parts: list):
        _, _, seconds, memory = child([self.args.planish, "build-engine", str(out), "--keep-onnx", "--gpu", CAPABILITY.lower()])
        theirs = [sys.executable, __file__, self.args.planish, "--build", *[str(out / f"{part['name']}.onnx") for part in parts]]
        _, _, other, other_memory = child(theirs)
        print(f"       build-engine {seconds:.2f} s, {memory:.0f} MB; bindings {other:.2f} s, {other_memory:.0f} MB; "
              f"ratios {seconds / other:.2f}, {memory / other_memory:.2f}", flush=True)

    def count(self, kind: str, name: str, text: str):
        self.counts[kind] += 1
        print(f"{kind:8} {name}: {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--precisions", default="f32,fp16,bf16")
    parser.add_argument("--compare-builds", action="store_true", help="compare time and memory of builds")
    parser.add_argument("--keep", help="the folder to work in")
    parser.add_argument("--build", action="store_true", help="only build these ONNX files, with the profiles beside them")
    args = parser.parse_args()
    bindings()
    if args.build:
        for onnx in args.models:
            parts = json.loads((onnx.parent / "profiles.json").read_text())["parts"]
            why = build(onnx, next(part["profiles"] for part in parts if part["name"] == onnx.stem))
            if why:
                print(why)
                return 1
        return 0
    check = Check(args)
    for model in args.models:
        for precision in args.precisions.split(","):
            check.model(model, precision)
    print(", ".join(f"{count} {kind}" for kind, count in check.counts.items()))
    return 1 if check.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
