#!/usr/bin/env python3
"""Writes ONNX's backend node tests as folders: OUT/NAME/model.onnx, and a K.safetensors for each set of data with
operands under `in.I` and expected results under `out.I`, counted in the order of the model.

    node_tests.py OUT

Needs the Python packages onnx, numpy and safetensors. Cases whose values are not plain tensors of types that
safetensors has are counted and left out.
"""

import argparse
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from safetensors.numpy import save_file


def tensor(value) -> np.ndarray:
    """A value of a test as an array; raises TypeError where it is none."""
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    if array.dtype.kind in "OSUVc" and array.dtype != ml_dtypes.bfloat16:
        raise TypeError(f"no plain tensor: {array.dtype}")
    return np.ascontiguousarray(array).reshape(array.shape)


def write(case, folder: Path) -> None:
    sets = [
        {f"{side}.{i}": tensor(value) for side, values in (("in", ins), ("out", outs)) for i, value in enumerate(values)}
        for ins, outs in case.data_sets
    ]
    folder.mkdir(parents=True)
    for k, tensors in enumerate(sets):
        save_file(tensors, folder / f"{k}.safetensors")
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    warnings.filterwarnings("ignore")
    kept = left_out = 0
    for case in collect_testcases(None):
        try:
            write(case, out / case.name)
            kept += 1
        except (TypeError, ValueError, KeyError):
            left_out += 1
    print(f"{kept} cases written, {left_out} left out")


if __name__ == "__main__":
    main()
