#!/usr/bin/env python3
"""Perplexity of a quantized language model next to float32, on text that it was not trained on.

    tools/bench_perplexity.py PLANISH MODEL TEXT [--limit 1.01]

TEXT is cut into pieces of 900 characters: 60 calibrate, and the next 120 are evaluated, in windows of 256 tokens. Prints a
table, and exits with 1 where a perplexity is more than the limit times that of float32.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List

PIECE, CALIBRATION, EVALUATION = 900, 60, 120
# The arguments of `planish compile` for each row; {data} stands for the calibration texts.
SETTINGS = {
    "ort, dynamic": "--target ort --int8",
    "ort, static": "--target ort --int8 --calibrate {data}",
    "ort, static, GPTQ": "--target ort --int8 --recipe weight-method=gptq --calibrate {data}",
    "onnx, static": "--target onnx --int8 --calibrate {data}",
    "onnx, FP8": "--target onnx --fp8 --calibrate {data}",
}


def write(path: Path, pieces: List[str]) -> str:
    path.write_text("".join(json.dumps({"text": piece}) + "\n" for piece in pieces), encoding="utf-8")
    return str(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("model", type=Path, help="a checkpoint folder of a language model")
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--limit", type=float, default=1.01, help="the largest ratio to float32")
    args = parser.parse_args()
    text = args.text.read_text(encoding="utf-8")
    pieces = [text[at : at + PIECE] for at in range(0, len(text) - PIECE + 1, PIECE)]
    if len(pieces) < CALIBRATION + EVALUATION:
        sys.exit(f"{args.text} has {len(text)} characters; {(CALIBRATION + EVALUATION) * PIECE} are needed")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        data = write(Path(folder) / "calibration.jsonl", pieces[:CALIBRATION])
        evaluation = write(Path(folder) / "evaluation.jsonl", pieces[CALIBRATION:][:EVALUATION])
        columns = "setting | MB | perplexity | ratio to float32 | divergence | top-1 agreement % | cosine of logits"
        print(f"| {columns} |\n|{'---|' * len(columns.split('|'))}")
        for name, arguments in SETTINGS.items():
            out = str(Path(folder) / "artifact")
            words = [word.replace("{data}", data) for word in arguments.split()]
            subprocess.run(
                [args.planish, "compile", args.model, "-o", out, "--force", *words], check=True, stdout=subprocess.DEVNULL
            )
            command = [args.planish, "evaluate", out, "--data", evaluation, "--window", "256", "--tokens", "1000000", "--json"]
            report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            perplexity, predictions = report["perplexity"], report["predictions"]
            ratio, agreement, cosine = perplexity["ratio"], predictions["top1_agreement"], predictions["mean_cosine"]
            divergence = predictions["mean_divergence"]
            size = sum(file.stat().st_size for file in Path(out).glob("model.onnx*")) / 1e6
            figures = f"{perplexity['artifact']:.4f} | {ratio:.5f} | {divergence:.2e} | {agreement:.2f} | {cosine:.6f}"
            print(f"| {name} | {size:.2f} | {figures} |", flush=True)
            missed |= ratio > args.limit
        print(f"\nFloat32: {perplexity['reference']:.4f}, over {perplexity['tokens']} tokens of {args.text.name}.")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
