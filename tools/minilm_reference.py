#!/usr/bin/env python3
"""Writes fixtures/minilm/io.safetensors: what transformers computes for the trained MiniLM in float64.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 transformers==4.57.6
    make deps && VENV/bin/python tools/minilm_reference.py

One batch of three sequences of different lengths, padded on the right, the last of them a pair of
sentences. Inputs are stored under `in.NAME` (int64), outputs under `out.NAME` (float32).
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent

FIRST = [
    "The harbour froze over in January, so the ferries stayed tied to the pier until the ice broke up in early March.",
    "Where can I buy a train ticket?",
    "How deep is the lake near the old mill?",
]
SECOND = {2: "Divers measured 41 metres at its deepest point."}


def tokenize(model: Path):
    """Ids, attention mask and token types, each [batch, sequence]."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.padding_side = "right"
    rows = [tokenizer(text, SECOND.get(i)) for i, text in enumerate(FIRST)]
    return tokenizer.pad(rows, padding="longest", return_tensors="pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=ROOT / ".deps" / "minilm")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "fixtures" / "minilm" / "io.safetensors")
    args = parser.parse_args()

    model = AutoModel.from_pretrained(args.model, dtype=torch.float64, attn_implementation="eager").eval()
    inputs = tokenize(args.model)
    with torch.no_grad():
        outputs = model(**inputs)
    tensors = {f"in.{name}": inputs[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    for name in ("last_hidden_state", "pooler_output"):
        tensors[f"out.{name}"] = outputs[name].float().contiguous()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.output)
    for name, tensor in tensors.items():
        print(f"{name:24} {list(tensor.shape)} {tensor.dtype}")


if __name__ == "__main__":
    main()
