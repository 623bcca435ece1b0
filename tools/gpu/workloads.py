"""The parts that measure whole models: encoders and prompts, steps, rows of different lengths, generation."""

import random
from array import array
from pathlib import Path
from typing import Dict

from . import safetensors
from .speed import Sizes, artifact, bench, checkpoint, config_of
from .work import Part, Work


NAMES = ("bert-base", "gpt2")


def bench_models(work: Work, part: Part) -> None:
    """BERT and GPT-2 on planish's runtimes."""
    sizes = Sizes(work.small)
    part.data["cells"] = []
    artifacts = {name: {} for name in NAMES}
    for name in NAMES:
        for precision in sizes.halves:
            folder = part.attempt(f"{name} in {precision}", artifact, work, part, name, precision)
            if folder:
                artifacts[name][precision] = folder
    for group in sizes.shapes:
        batch, seq = (list(dict.fromkeys(numbers)) for numbers in zip(*group))
        for name in (name for name in NAMES if artifacts[name]):
            cells = part.attempt(name, bench, work, part, artifacts[name], checkpoint(work, name), batch, seq)
            for cell in cells or []:
                part.data["cells"].append({**cell, "model": name, "precision": cell.pop("artifact")})


def decode(work: Work, part: Part) -> None:
    """Steps of a Llama with one row after a cache of random keys and values."""
    sizes, name, precision = Sizes(work.small), "llama-1.1b", "bf16"
    model = checkpoint(work, name)
    part.data.update(precision=precision, config=config_of(model), cells=[])
    folder = artifact(work, part, name, precision)
    for past in sizes.past:
        path = work.scratch / "step.safetensors"
        step_inputs(path, config_of(model), past)
        cells = part.attempt(f"past {past}", bench, work, part, {name: folder}, model, [], [], "--inputs", path)
        part.data["cells"] += [{**cell, "past": past} for cell in cells or []]


def step_inputs(path: Path, config: Dict, past: int) -> None:
    """The inputs of a step of a Llama with one row after a cache: bfloat16 numbers below 1 in it."""
    source = random.Random(past)
    shape = (1, config["num_key_value_heads"], past, config["head_dim"])
    size = shape[1] * past * shape[3]

    def numbers() -> bytes:
        data = bytearray(source.randbytes(2 * size))
        # The upper byte of a bfloat16 has the sign and most of the exponent: of +-2^-3 to +-1.
        data[1::2] = bytes(byte & 0x80 | 0x3E | byte & 0x01 for byte in data[1::2])
        return bytes(data)

    tensors = {
        "input_ids": ("I64", (1, 1), array("q", [source.randrange(config["vocab_size"])]).tobytes()),
        "attention_mask": ("I64", (1, past + 1), array("q", [1] * (past + 1)).tobytes()),
        "position_ids": ("I64", (1, 1), array("q", [past]).tobytes()),
    }
    for layer in range(config["num_hidden_layers"]):
        for what in ("key", "value"):
            tensors[f"past_key_values.{layer}.{what}"] = ("BF16", shape, numbers())
    safetensors.write(path, tensors)


def generate(work: Work, part: Part) -> None:
    """New tokens a second, and the share of the time in which the GPU computes nothing."""
    sizes = Sizes(work.small)
    part.data["cells"] = []
    prompt, new = (8, 4) if work.small else (128, 32)
    for name, precision in (("gpt2", "fp16"), ("llama-1.1b", "bf16")):
        folder = part.attempt(name, artifact, work, part, name, precision)
        if not folder:
            continue
        more = ["--workload", "generate", "--set", f"new-tokens={new}"]
        cells = part.attempt(name, bench, work, part, {name: folder}, checkpoint(work, name), [1], [prompt], *more) or []
        steps = part.attempt(f"a step of {name}", bench, work, part, {name: folder}, checkpoint(work, name), [1], [prompt]) or []
        device = {cell["who"]: cell for cell in steps if cell["run"] == "step"}
        for cell in cells:
            step = device.get(cell["who"], {})
            token, compute = cell.get("tpot_ms"), step.get("ms") if step.get("clock") == "device" else None
            share = 1 - compute / token if token and compute else None
            keys = {"step_ms": step.get("ms"), "step_without_graph_ms": step.get("without_graph_ms"), "host_share": share}
            part.data["cells"].append({**cell, "model": name, "precision": precision, "prompt": prompt, "new": new, **keys})


def padding(work: Work, part: Part) -> None:
    """BERT on rows of one length and of different lengths, whose padding `cuda` leaves out."""
    sizes, name = Sizes(work.small), "bert-base"
    model, precision = checkpoint(work, name), sizes.halves[0]
    part.data.update(model=name, precision=precision, cells=[])
    artifacts = {precision: artifact(work, part, name, precision)}
    vocabulary, source = config_of(model)["vocab_size"], random.Random(0)
    for batch, seq in [group[0] for group in sizes.shapes if group[0][0] > 1]:
        # The longest row has all tokens.
        mixed = [seq] + [source.randint(1, seq) for _ in range(batch - 1)]
        for lengths in ([seq] * batch, mixed):
            mask = [[int(at < length) for at in range(seq)] for length in lengths]
            ids = [[source.randrange(vocabulary) for _ in range(seq)] for _ in lengths]
            path = work.scratch / "padding.safetensors"
            safetensors.write_ids(path, {"input_ids": ids, "attention_mask": mask, "token_type_ids": [[0] * seq for _ in lengths]})
            left = batch * seq - sum(lengths)
            what = f"{batch} x {seq}, {left} positions of padding"
            cells = part.attempt(what, bench, work, part, artifacts, model, [], [], "--inputs", path) or []
            part.data["cells"] += [{**cell, "batch": batch, "seq": seq, "padding": left} for cell in cells]


