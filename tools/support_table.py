#!/usr/bin/env python3
"""Measures which encoders compile in which forms, and writes the table of docs/support.md.

    support_table.py PLANISH GOLDENS PAGE [--only TYPE]

For each encoder of text among GOLDENS it makes a checkpoint with random weights of each class that the transformers library has for the
configuration of the golden, and compiles it in each form of FORMS. A cell is what happened: `ok` (compiled, and `--verify` passed where a
processor runs the target), or the reason in a footnote. The lines of PAGE between the two markers are replaced. Needs torch and
transformers 5.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

# Endings of classes, and Optimum's names of their tasks.
HEADS = {
    "Model": "feature-extraction",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
}
# The columns: options of compile.
FORMS = {
    "float32": "--target ort --verify",
    "float16": "--target onnx --fp16 --verify",
    "INT8": "--target ort --int8 --calibrate {data} --verify",
    "TensorRT engine": "--target trt --fp16",
    "CUDA graph": "--target cuda --fp16",
}
# How often data to calibrate with has each row of a golden.
ROWS = 16
BEGIN, END = "<!-- measured by tools/support_table.py -->", "<!-- end of the table -->"


def checkpoint(golden: Path, ending: str, folder: Path) -> bool:
    """Writes a checkpoint of a class with random weights; false where the library has no such class."""
    config = transformers.AutoConfig.from_pretrained(golden)
    base = type(config).__name__.removesuffix("Config")
    made = getattr(transformers, base + ending, None)
    if made is None:
        return False
    torch.manual_seed(1)
    model = made(config)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return True


def data(golden: Path, task: str, path: Path) -> None:
    """Writes ids to calibrate with."""
    from safetensors.numpy import load_file

    stored = load_file(golden / "io.safetensors")
    # The rows of the golden, again and again, with other ids where there is a token.
    inputs = {name.removeprefix("in."): np.repeat(t, ROWS, 0) for name, t in stored.items() if name.startswith("in.")}
    ids = inputs["input_ids"]
    other = np.random.default_rng(1).integers(5, ids.max() + 1, ids.shape)
    inputs["input_ids"] = np.where(inputs["attention_mask"] == 1, other, ids)
    if task == "multiple-choice":
        inputs = {name: np.repeat(t[:, None], 2, 1) for name, t in inputs.items()}
    np.savez(path, **inputs)


def attempt(planish: Path, model: Path, options: str, folder: Path) -> str:
    """Compiles; returns `ok`, or why not."""
    command = [planish, "compile", model, "-o", folder, "--force", *options.split()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end after 900 s"
    if done.returncode == 0:
        return "ok"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error")] or done.stderr.splitlines()[-1:]
    text = " ".join(errors).removeprefix("error: ").replace(str(model), "the checkpoint").replace(str(folder), "the artifact")
    return re.sub(r"\s+", " ", text)[:240]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("goldens", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    if BEGIN not in page or END not in page:
        sys.exit(f"{arguments.page} has no lines `{BEGIN}` and `{END}`")
    rows, notes = [], []
    types = {}
    for golden in sorted(arguments.goldens.iterdir()):
        config = golden / "config.json"
        if not config.is_file() or not (golden / "io.safetensors").is_file():
            continue
        settings = json.loads(config.read_text())
        name = settings["model_type"]
        is_encoder = not any(key in settings for key in ("image_size", "decoder_start_token_id"))
        is_encoder &= not any(end in settings.get("architectures", [""])[0] for end in ("CausalLM", "LMHeadModel"))
        if is_encoder and name not in types and arguments.only in (None, name):
            types[name] = golden
    for name, golden in sorted(types.items()):
        for ending, task in HEADS.items():
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "checkpoint"
                if not checkpoint(golden, ending, folder):
                    continue
                data(golden, task, Path(scratch) / "data.npz")
                cells = []
                for form, options in FORMS.items():
                    options = options.format(data=Path(scratch) / "data.npz")
                    found = attempt(arguments.planish, folder, options, Path(scratch) / "artifact")
                    if found != "ok":
                        if found not in notes:
                            notes.append(found)
                        found = f"[{notes.index(found) + 1}]"
                    cells.append(found)
                rows.append((name, task, *cells))
                print(*rows[-1], sep=" | ", flush=True)
    table = ["| type | task | " + " | ".join(FORMS) + " |", "|---" * (len(FORMS) + 2) + "|"]
    table += ["| " + " | ".join(row) + " |" for row in rows]
    table += [""] + [f"{at}. {note}" for at, note in enumerate(notes, 1)]
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    arguments.page.write_text(before + BEGIN + "\n" + "\n".join(table) + "\n" + END + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
