#!/usr/bin/env python3
"""Writes two tables of the small element types, as the package ml_dtypes has them, into fixtures/small_types.

numbers.csv has the number that each bit pattern stands for. midpoints.csv has the bit pattern that the midpoint between
each two neighbours of a type's finite numbers is converted to, in ascending order of the midpoints, in hexadecimal.

    .deps/compat/bin/python tools/small_types.py fixtures/small_types
"""
import pathlib
import sys

import ml_dtypes
import numpy as np

TYPES = {
    "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
    "i4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
}
# Numbers are never converted to a type of scales.
ONLY_READ = {"f8e8m0"}


def bits(name):
    return {"2": 2, "4": 4, "6": 6}.get(name[1], 8)


def numbers(name):
    return np.arange(1 << bits(name), dtype=np.uint8).view(TYPES[name]).astype(np.float64)


def midpoints(name):
    finite = np.unique(numbers(name)[np.isfinite(numbers(name))])
    # Exact in float32: a number of a small type has at most 4 bits.
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    return middles.astype(TYPES[name]).view(np.uint8) & ((1 << bits(name)) - 1)


def main():
    folder = pathlib.Path(sys.argv[1])
    head = f"# written by tools/small_types.py with ml_dtypes {ml_dtypes.__version__}\n"
    lines = (f"{name},{' '.join(str(float(n)) for n in numbers(name))}\n" for name in TYPES)
    (folder / "numbers.csv").write_text(head + "".join(lines))
    lines = (f"{name},{' '.join(f'{code:x}' for code in midpoints(name))}\n" for name in TYPES if name not in ONLY_READ)
    (folder / "midpoints.csv").write_text(head + "".join(lines))


main()
