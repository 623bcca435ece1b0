"""Writes fixtures/sampling/expected.json: the tokens that the transformers library leaves to sample from.

    python tools/sampling_choices.py fixtures/sampling

Needs transformers 5.24.0 and PyTorch. Each case has scores, the settings, of which `fewest` is how many tokens are left at
least, the ids that are left, and their probabilities.
The order of the settings is that of the library: temperature, top_k, top_p, min_p.
"""

import json
import random
import sys
from pathlib import Path

import torch
from transformers.generation import logits_process as library


def case(scores, temperature, top_k, top_p, min_p, fewest):
    steps = library.LogitsProcessorList()
    if temperature != 1:
        steps.append(library.TemperatureLogitsWarper(temperature))
    if top_k:
        steps.append(library.TopKLogitsWarper(top_k, min_tokens_to_keep=fewest))
    if top_p < 1:
        steps.append(library.TopPLogitsWarper(top_p, min_tokens_to_keep=fewest))
    if min_p:
        steps.append(library.MinPLogitsWarper(min_p, min_tokens_to_keep=fewest))
    left = steps(None, torch.tensor([scores], dtype=torch.float32))[0]
    kept = [at for at, score in enumerate(left.tolist()) if score > float("-inf")]
    probabilities = torch.softmax(left.double(), 0)
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "fewest": fewest}
    return {"scores": scores, **settings, "ids": kept, "probabilities": [round(probabilities[at].item(), 6) for at in kept]}


def main():
    draw = random.Random(7)
    cases = []
    for number in range(60):
        scores = [round(draw.gauss(0, 3), 3) for _ in range(draw.choice([1, 5, 24]))]
        rest = (draw.choice([0, 3, 10]), draw.choice([1.0, 0.9, 0.5])) if number % 2 else (0, 1.0)
        cases.append(case(scores, draw.choice([0.5, 1.0, 1.7]), *rest, draw.choice([0.0, 0.02, 0.1, 0.5, 1.0]), 1 if number % 3 else 3))
    text = ",\n ".join(json.dumps(one) for one in cases)
    (Path(sys.argv[1]) / "expected.json").write_text(f"[{text}]\n")


main()
