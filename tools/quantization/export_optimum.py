#!/usr/bin/env python3
"""Exports an encoder with Optimum: export_optimum.py MODEL FOLDER. Runs in the environment of requirements-optimum.txt."""

import sys

from optimum.exporters.onnx import main_export

main_export(sys.argv[1], sys.argv[2], task="feature-extraction", library_name="transformers", local_files_only=True)
