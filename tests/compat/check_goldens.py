#!/usr/bin/env python3
"""Holds compiled models against stored outputs, read by the Python packages of ONNX and ONNX Runtime.

    check_goldens.py PLANISH [--target onnx] [--tolerance 1e-5] CASE...

A CASE is a checkpoint folder with an io.safetensors in it, or MODEL:IO to name the two. The io file
has inputs under `in.NAME` and expected outputs under `out.NAME`. For each case it runs
`PLANISH compile MODEL --target TARGET`, has the ONNX checker read what came out, runs that on the CPU
provider with all graph optimizations off, and again with all on, and compares every expected output
by its largest absolute difference, relative to the largest expected value where that is above 1.
Positions that the attention mask hides are not compared: nothing is promised for them.
Exits 1 when a case fails.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file

LEVELS = (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)


class Mismatch(Exception):
    """The case fails; the message says in what."""


def parse_case(text: str) -> tuple[Path, Path]:
    """The checkpoint folder and the io file that a CASE names."""
    model, _, io = text.partition(":")
    return Path(model), Path(io) if io else Path(model) / "io.safetensors"


def compile_model(planish: Path, model: Path, target: str, output: Path) -> Path:
    """Compiles `model`; returns the ONNX file."""
    command = [planish, "compile", model, "--target", target, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Mismatch(f"compile exited with {done.returncode}: {done.stderr.strip()}")
    onnx.checker.check_model(output / "model.onnx", full_check=target == "onnx")
    return output / "model.onnx"


def run(path: Path, inputs: dict[str, np.ndarray], level) -> dict[str, np.ndarray]:
    """All outputs of the model, by name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    if names != set(inputs):
        raise Mismatch(f"the model's inputs are {sorted(names)}, expected {sorted(inputs)}")
    outputs = [o.name for o in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, inputs)))


def difference(got: np.ndarray, want: np.ndarray, mask: np.ndarray | None) -> float:
    """Largest absolute difference, relative to the largest expected value where that is above 1."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Mismatch(f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    if mask is not None and want.shape[:2] == mask.shape:
        got, want = got[mask], want[mask]
    largest = max(1.0, float(np.abs(want).max()))
    return float(np.abs(got.astype(np.float64) - want).max()) / largest


def check(planish: Path, model: Path, io: Path, target: str, tolerance: float) -> float:
    """The worst difference over all outputs; raises when it is too large."""
    tensors = load_file(io)
    inputs = {name.removeprefix("in."): t for name, t in tensors.items() if name.startswith("in.")}
    expected = {name.removeprefix("out."): t for name, t in tensors.items() if name.startswith("out.")}
    if not expected:
        raise Mismatch(f"{io} holds no out.NAME")
    mask = inputs["attention_mask"].astype(bool) if "attention_mask" in inputs else None
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        path = compile_model(planish, model, target, Path(scratch) / "out")
        for level in LEVELS:
            outputs = run(path, inputs, level)
            for name, want in expected.items():
                if name not in outputs:
                    raise Mismatch(f"no output {name}; the model has {sorted(outputs)}")
                try:
                    found = difference(outputs[name], want, mask)
                except Mismatch as e:
                    raise Mismatch(f"{name}: {e}") from e
                # Written so that a NaN fails.
                if not found <= tolerance:
                    raise Mismatch(f"{name}: differs by {found:.1e}, {tolerance:g} allowed ({level.name})")
                worst = max(worst, found)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=parse_case)
    parser.add_argument("--target", default="onnx")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()
    failed = 0
    for model, io in args.cases:
        label = f"{args.target:8} {model.name:20}"
        try:
            worst = check(args.planish, model, io, args.target, args.tolerance)
            print(f"ok    {label} worst difference {worst:.1e}", flush=True)
        # Whatever a reader of the file raises is a failure of this case, not the end of the others.
        except Exception as e:
            failed += 1
            print(f"FAIL  {label} {type(e).__name__}: {e}", flush=True)
    print(f"{len(args.cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
