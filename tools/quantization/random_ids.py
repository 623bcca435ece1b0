#!/usr/bin/env python3
"""Writes 16 samples of 64 random ids as the inputs of an encoder: random_ids.py MODEL.onnx FILE.npz."""

import sys
from pathlib import Path

import numpy

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from quantization import inputs  # noqa: E402

numpy.savez(sys.argv[2], **inputs.random(16, 64, inputs.onnx_inputs(sys.argv[1])))
