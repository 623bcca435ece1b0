#!/usr/bin/env python3
"""Holds compiled models against stored outputs, read by the Python package of OpenVINO.

    check_openvino.py PLANISH [--target openvino] [--tolerance 1e-5] CASE...

The cases are those of check_goldens.py. OpenVINO reads each graph itself and runs it on the processor, in float32.
Exits 1 when a case fails.
"""

import argparse
import sys
from pathlib import Path

import openvino

from cases import Case, check_all
from check_goldens import Comparison, Model, Tensors, check_case

CONFIG = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}


def load(path: Path) -> Model:
    """A graph on OpenVINO's plugin of the processor."""
    compiled = openvino.Core().compile_model(path, "CPU", CONFIG)
    sizes = lambda shape: [dim.get_length() if dim.is_static else None for dim in shape]

    def infer(inputs: Tensors) -> Tensors:
        results = compiled(inputs)
        return {port.get_any_name(): results[port] for port in compiled.outputs}

    return Model({port.get_any_name(): sizes(port.partial_shape) for port in compiled.inputs}, infer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=Case)
    parser.add_argument("--target", default="openvino")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()

    def check(case: Case, scratch: Path) -> str:
        folder = case.compile(args.planish, scratch / "out", "--target", args.target)
        compare = Comparison(args.tolerance)
        check_case(case, folder, load, compare)
        return f"worst difference {compare.worst:.1e}"

    return check_all(args.cases, args.target, check)


if __name__ == "__main__":
    sys.exit(main())
