#!/usr/bin/env python3
"""Writes ir/src/weight/small.csv: the number that each bit pattern of the small element types stands for, by the
packages onnx and ml_dtypes.

    python tools/small_types.py > ir/src/weight/small.csv
"""
import ml_dtypes
import numpy as np

TYPES = {
    "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
    "i4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
}

print(f"# written by tools/small_types.py with ml_dtypes {ml_dtypes.__version__}")
for name, dtype in TYPES.items():
    bits = {"2": 2, "4": 4}.get(name[1], 8)
    numbers = np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float64)
    print(f"{name},{' '.join(str(float(n)) for n in numbers)}")
