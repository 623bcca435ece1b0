"""Writes fixtures/sampling/searches.json: what the transformers library generates with goldens and settings of generation.

    python tools/searches.py fixtures/sampling

Needs transformers 5.24.0 and PyTorch. Draws of beams take the place of torch.multinomial: the same race of exponential
variables, of which each is from a generator that planish has too (wyrand of the crate fastrand), so that ids can be equal.
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

MASK = (1 << 64) - 1
GOLDENS = Path(__file__).parent.parent / "fixtures/goldens"


class Wyrand:
    def __init__(self, seed):
        self.state = seed & MASK

    def uniform(self):
        self.state = (self.state + 0x2D35_8DCC_AA6C_78A5) & MASK
        product = self.state * (self.state ^ 0x8BB8_4B93_962E_ACC9)
        return float(((product ^ (product >> 64)) & MASK) >> 1) / float(1 << 63)


def race(generator):
    def multinomial(probabilities, num_samples, replacement=False):
        assert not replacement and len(probabilities) == 1
        row = probabilities[0].tolist()
        places = {}
        for at, probability in enumerate(row):
            if probability > 0:
                places[at] = math.log(probability) - math.log(-math.log1p(-generator.uniform()))
        drawn = sorted(places, key=lambda at: -places[at])[:num_samples]
        # As torch.multinomial takes tokens of probability 0 where there are too few others.
        drawn += [at for at in range(len(row)) if at not in places][: num_samples - len(drawn)]
        return torch.tensor([drawn])

    return multinomial


def generated(golden, settings, seed):
    folder = GOLDENS / golden
    config = json.loads((folder / "config.json").read_text())
    is_pair = config.get("is_encoder_decoder", False)
    library = AutoModelForSeq2SeqLM if is_pair else AutoModelForCausalLM
    model = library.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = None
    with safe_open(folder / "io.safetensors", "pt") as file:
        prompt = file.get_tensor("in.prompt").reshape(1, -1)
    usual, torch.multinomial = torch.multinomial, race(Wyrand(seed))
    try:
        ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, **settings)
    finally:
        torch.multinomial = usual
    start = 1 if is_pair else prompt.shape[1]
    rows = []
    for row in ids[:, start:].tolist():
        ends = settings.get("eos_token_id", [])
        ends = ends if isinstance(ends, list) else [ends]
        end = next((at + 1 for at, id in enumerate(row) if id in ends), len(row))
        rows.append(row[:end])
    return {"golden": golden, "settings": settings, "seed": seed, "ids": rows}


def main():
    cases = []
    drawn = {"do_sample": True, "top_k": 0, "max_new_tokens": 12}
    for golden in ["gpt2", "qwen2", "t5", "bart"]:
        for seed, more in enumerate([
            {"num_beams": 3},
            {"num_beams": 4, "num_return_sequences": 3, "temperature": 2.5},
            {"num_beams": 2, "top_k": 5, "temperature": 0.7},
            # One token would be left, and two are kept.
            {"num_beams": 3, "top_k": 1},
            {"num_beams": 3, "top_p": 0.3, "num_return_sequences": 2},
            {"num_beams": 3, "min_p": 0.9},
            {"num_beams": 3, "eos_token_id": list(range(0, 60)), "length_penalty": 2.0, "num_return_sequences": 3},
            {"num_beams": 3, "eos_token_id": list(range(0, 30)), "early_stopping": True, "temperature": 3.0},
            {"num_beams": 2, "top_k": 9, "renormalize_logits": True, "repetition_penalty": 1.5},
        ]):
            cases.append(generated(golden, {**drawn, **more}, 11 * seed))
        for more in [
            {"num_beams": 4, "num_return_sequences": 4},
            {"num_beams": 3, "num_return_sequences": 2, "eos_token_id": list(range(0, 40))},
            {"encoder_repetition_penalty": 3.0},
            {"encoder_repetition_penalty": 0.2, "repetition_penalty": 1.3},
            {"encoder_no_repeat_ngram_size": 1},
            {"encoder_no_repeat_ngram_size": 2, "num_beams": 2},
        ]:
            cases.append(generated(golden, {"do_sample": False, "max_new_tokens": 12, **more}, 0))
    text = ",\n ".join(json.dumps(one) for one in cases)
    (Path(sys.argv[1]) / "searches.json").write_text(f"[{text}]\n")


main()
