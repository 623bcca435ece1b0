#!/usr/bin/env python3
"""Writes fixtures/minilm/io.safetensors: what the trained MiniLM gives, in float64.

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
    # The modules after the model: the mean over real tokens, and that divided by its length.
    hidden, kept = outputs["last_hidden_state"], inputs["attention_mask"].double().unsqueeze(-1)
    mean = (hidden * kept).sum(1) / kept.sum(1)
    tensors["out.token_embeddings"] = hidden.float().contiguous()
    tensors["out.sentence_embedding"] = torch.nn.functional.normalize(mean, dim=-1).float().contiguous()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, args.output)
    for name, tensor in tensors.items():
        print(f"{name:24} {list(tensor.shape)} {tensor.dtype}")


if __name__ == "__main__":
    main()
