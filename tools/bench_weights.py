#!/usr/bin/env python3
"""Weights of 4 and 8 bits: what each method costs in accuracy, by `planish evaluate`.

    tools/bench_weights.py PLANISH MODEL --data HELD_BACK --calibrate DATA [--samples 100] [--blocks 32,128] [-- OPTION...]

Compiles MODEL for target ort with each method and block size, and prints a table in Markdown: the size of model.onnx and the
figures of `planish evaluate` on the data: perplexity and divergence of a language model, cosine and neighbours of an encoder.
DATA is text that the methods gptq and awq take, other than HELD_BACK. OPTIONs go to every compilation.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

FORMS = [
    ("INT8", ["--int8-weights"]),
    ("INT8, float inputs", ["--int8-weights", "--accuracy-level", "float"]),
    *((f"INT4 {method}", ["--int4", "--weight-method", method]) for method in ("nearest", "mse", "hqq", "gptq", "awq")),
    ("INT4 mse, zero points", ["--int4", "--zero-points"]),
]

# The figures of a report that are shown, and their titles.
COLUMNS = {
    "artifact": "perplexity",
    "ratio": "to float32",
    "mean_divergence": "divergence",
    "top1_agreement": "top-1 %",
    "mean_cosine": "cosine",
    "neighbours_kept": "neighbours %",
}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} exited {done.returncode}:\n{done.stderr}")
    return done.stdout


def figures(report):
    """The figures of a report that say what quantization costs."""
    found = {}

    def walk(value):
        if isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, (int, float)) and not isinstance(item, bool):
                    found.setdefault(name, item)
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(report)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--calibrate", required=True)
    parser.add_argument("--samples", default="100")
    parser.add_argument("--blocks", default="32,128")
    parser.add_argument("options", nargs="*")
    args = parser.parse_args()
    columns = None
    with tempfile.TemporaryDirectory() as folder:
        for block in args.blocks.split(","):
            for name, options in FORMS:
                out = os.path.join(folder, "artifact")
                data = ["--calibrate", args.calibrate] if {"gptq", "awq"} & set(options) else []
                options = [*options, *data, *args.options]
                run([args.planish, "compile", args.model, "-o", out, "--force", "--block-size", block, *options])
                report = [args.planish, "evaluate", out, "--data", args.data, "--samples", args.samples, "--json"]
                found = figures(json.loads(run(report)))
                if columns is None:
                    columns = [column for column in COLUMNS if column in found]
                    print(f"| weights | block | MB | {' | '.join(COLUMNS[column] for column in columns)} |")
                    print("|---|---|---|" + "---|" * len(columns), flush=True)
                size = sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out) if f.startswith("model."))
                cells = [f"{found[column]:.6g}" for column in columns]
                print(f"| {name} | {block} | {size / 1e6:.2f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
