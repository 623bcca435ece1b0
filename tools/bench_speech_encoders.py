#!/usr/bin/env python3
"""Measures wav2vec 2.0 of the size of wav2vec2-base with random weights: artifacts of planish next to the graph of torch.

    bench_speech_encoders.py PLANISH FOLDER [--seconds 10] [--rounds 4]

FOLDER gets the checkpoint, the graph of `torch.onnx.export` (TorchScript, opset 18) and the artifacts. Contestants run in ONNX Runtime with
one thread, in turn. The time is that of the thread on the processor, the least of all rounds but the first: other processes
take part of a machine that is shared, and not of that time. Prints a table.
"""

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

RATE = 16000
ARTIFACTS = {"float32": [], "--fp16": ["--fp16"], "--int8": ["--int8"]}


def prepare(planish: Path, folder: Path) -> dict[str, Path]:
    """Writes all graphs; returns the contestants."""
    torch.manual_seed(0)
    model = Wav2Vec2ForCTC(Wav2Vec2Config(attn_implementation="eager")).eval()
    checkpoint, exported = folder / "checkpoint", folder / "torch.onnx"
    model.save_pretrained(checkpoint)
    axes = {"input_values": {0: "batch_size", 1: "sequence_length"}, "logits": {0: "batch_size", 1: "frames"}}
    torch.onnx.export(
        model, (torch.randn(1, RATE),), exported, input_names=["input_values"], output_names=["logits"], dynamic_axes=axes,
        opset_version=18, dynamo=False,
    )  # fmt: skip
    contestants = {"torch.onnx.export": exported}
    for name, options in ARTIFACTS.items():
        out = folder / name.strip("-")
        subprocess.run([planish, "compile", checkpoint, "-o", out, "--target", "ort", "--force", *options], check=True)
        contestants[f"planish, {name}"] = out / "model.onnx"
    return contestants


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    sessions = {name: session(path) for name, path in prepare(args.planish, args.folder).items()}
    samples = np.random.default_rng(0).normal(size=(1, int(RATE * args.seconds))).astype(np.float32)
    times, logits = {name: [] for name in sessions}, {}
    for _ in range(args.rounds):
        for name, own in sessions.items():
            start = time.thread_time()
            (logits[name],) = own.run(None, {"input_values": samples})
            times[name].append(time.thread_time() - start)
    wanted, first = logits["torch.onnx.export"].ravel(), None
    print("| graph | s | ratio | cosine of logits |\n|---|---:|---:|---:|")
    for name, found in times.items():
        least, got = min(found[1:]), logits[name].ravel()
        first = first or least
        cosine = got @ wanted / np.linalg.norm(got) / np.linalg.norm(wanted)
        print(f"| {name} | {least:.3f} | {first / least:.2f} | {cosine:.6f} |")


if __name__ == "__main__":
    main()
