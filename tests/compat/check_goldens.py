#!/usr/bin/env python3
"""Holds compiled models against stored outputs, read by the Python packages of ONNX and ONNX Runtime.

    check_goldens.py PLANISH [--target onnx] [--tolerance 1e-5] CASE...

A CASE is a checkpoint folder with an io.safetensors in it, or MODEL:IO to name the two. The io file
has inputs under `in.NAME` and expected outputs under `out.NAME`. For each case it runs
`PLANISH compile MODEL --target TARGET`, has the ONNX checker read each graph that came out, runs them
on the CPU provider with all graph optimizations off, and again with all on, and compares every expected
output. Decoders start from an empty cache, and take the tokens of `in.step.NAME`, or the last token of
each row, on the cache that came out. The decoder of an encoder-decoder takes what the encoder gave, all tokens at once and then
the last one on the cache of those before. Exits 1 when a case fails.
"""

import argparse
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import onnxruntime

from cases import Case, Mismatch, check_all, difference

LEVELS = (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
# Keys and values, and states of a fixed size such as `past_conv.0`.
PAST = "past_"
PAST_KEYS = "past_key_values."
PRESENT = "present"
PRESENT_KEYS = "present."
STEP = "step."
# Ids of generated text: no output of a graph.
GENERATED = ("greedy", "beam4")
# Types of models whose graphs take no `position_ids`, as Optimum's do not: they count positions by the mask, or
# have none. The goldens were computed with the same positions, given.
COUNTED = (
    "bloom", "falcon_mamba", "gemma", "gemma2", "gemma3_text", "jamba", "mamba", "mamba2", "mpt", "nemotron", "nemotron_h",
)  # fmt: skip

Tensors = dict[str, np.ndarray]


class Model:
    """A graph of an artifact on some runtime."""

    def __init__(self, inputs: dict[str, list], infer: Callable[[Tensors], Tensors]):
        self.inputs = inputs  # the shape of each, with a number for each size that the graph fixes
        self.infer = infer

    def run(self, inputs: Tensors) -> Tensors:
        """All outputs, by name. The inputs must be those of the graph."""
        if set(self.inputs) != set(inputs):
            raise Mismatch(f"the model's inputs are {sorted(self.inputs)}, expected {sorted(inputs)}")
        return self.infer(inputs)

    def empty_past(self, batch: int) -> Tensors:
        """A cache of no tokens: [batch, heads, 0, size] for each key and value, and zeros for each state."""
        past = {name: shape for name, shape in self.inputs.items() if name.startswith(PAST)}
        size = lambda name, axis, dim: batch if axis == 0 else 0 if name.startswith(PAST_KEYS) and axis == 2 else dim
        shape = lambda name, dims: tuple(size(name, axis, dim) for axis, dim in enumerate(dims))
        return {name: np.zeros(shape(name, dims), np.float32) for name, dims in past.items()}


# What loads a graph of an artifact.
Load = Callable[[Path], Model]


def onnx_runtime(level) -> Load:
    """ONNX Runtime, at one level of its own optimizations."""

    def load(path: Path) -> Model:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        outputs = [o.name for o in session.get_outputs()]
        return Model({i.name: i.shape for i in session.get_inputs()}, lambda inputs: dict(zip(outputs, session.run(outputs, inputs))))

    return load


def as_past(outputs: Tensors) -> Tensors:
    """The cache that a run gave, under the names by which the next one takes it."""
    keys = {PAST_KEYS + n.removeprefix(PRESENT_KEYS): t for n, t in outputs.items() if n.startswith(PRESENT_KEYS)}
    states = {n: t for n, t in outputs.items() if n.startswith(PRESENT) and not n.startswith(PRESENT_KEYS)}
    return keys | {n.replace("present_", PAST, 1): t for n, t in states.items()}


def by_token(tensor: np.ndarray) -> np.ndarray:
    """Keys or values with their tokens on the second axis, as masks have them."""
    return tensor.swapaxes(1, 2)


def latest(present: np.ndarray, kept: int) -> np.ndarray:
    """The last `kept` tokens of keys or values: the transformers library keeps only those of a window."""
    return present[:, :, -kept:]


class Comparison:
    """Compares outputs and keeps the worst difference."""

    def __init__(self, tolerance: float):
        self.tolerance = tolerance
        self.worst = 0.0

    def __call__(self, got: Tensors, want: Tensors, mask: np.ndarray | None = None) -> None:
        for name, expected in want.items():
            if name not in got:
                raise Mismatch(f"no output {name}; the model has {sorted(got)}")
            found = got[name]
            hidden = mask
            if name.startswith(PRESENT_KEYS):
                kept = expected.shape[2]
                found, expected = by_token(latest(found, kept)), by_token(expected)
                hidden = mask[:, -kept:] if mask is not None else None
            found = difference(name, found, expected, hidden, self.tolerance)
            self.worst = max(self.worst, found)


def check_single(folder: Path, load: Load, inputs: Tensors, expected: Tensors, compare: Comparison) -> None:
    """An encoder, or a decoder and one step of it."""
    model = load(folder / "model.onnx")
    mask = inputs["attention_mask"].astype(bool) if "attention_mask" in inputs else None
    first = {name: t for name, t in inputs.items() if not name.startswith(STEP) and name != "prompt"}
    step = {name.removeprefix(STEP): t for name, t in inputs.items() if name.startswith(STEP)}
    batch = len(next(iter(first.values())))
    outputs = model.run(first | model.empty_past(batch))
    compare(outputs, {name: t for name, t in expected.items() if not name.startswith(STEP)}, mask)
    if step:
        wanted = {name.removeprefix(STEP): t for name, t in expected.items() if name.startswith(STEP)}
        compare(model.run(step | as_past(outputs)), wanted)
    elif as_past(outputs):
        # States of a fixed size: the last token of each row on what came of those before.
        part = lambda tokens: {n: t if n == "attention_mask" else t[:, tokens] for n, t in first.items()}
        before = part(slice(None, -1)) | {"attention_mask": first["attention_mask"][:, :-1]}
        outputs = model.run(before | model.empty_past(batch))
        compare(model.run(part(slice(-1, None)) | as_past(outputs)), {"logits": expected["logits"][:, -1:]})


def check_encoder_decoder(folder: Path, load: Load, inputs: Tensors, expected: Tensors, compare: Comparison) -> None:
    """Encoder, decoder, and decoder on a cache, each a graph of its own."""
    mask = inputs.get("attention_mask")
    encoder = load(folder / "encoder_model.onnx")
    encoded = encoder.run({name: t for name, t in inputs.items() if not name.startswith("decoder_") and name != "prompt"})
    compare(encoded, {"last_hidden_state": expected["encoder_last_hidden_state"]}, None if mask is None else mask.astype(bool))
    ids, logits = inputs["decoder_input_ids"], expected["logits"]
    # Images have no mask.
    padding = {} if mask is None else {"encoder_attention_mask": mask}
    source = padding | {"encoder_hidden_states": encoded["last_hidden_state"]}
    decoder = load(folder / "decoder_model.onnx")
    compare(decoder.run(source | {"input_ids": ids}), {"logits": logits})
    before = decoder.run(source | {"input_ids": ids[:, :-1]})
    step = padding | {"input_ids": ids[:, -1:]} | as_past(before)
    compare(load(folder / "decoder_with_past_model.onnx").run(step), {"logits": logits[:, -1:]})


def check_case(case: Case, folder: Path, load: Load, compare: Comparison) -> None:
    """The graphs that a case was compiled into, with all its stored tensors."""
    inputs, expected = case.tensors()
    expected = {name: t for name, t in expected.items() if name not in GENERATED}
    if case.model_type() in COUNTED:
        inputs = {name: t for name, t in inputs.items() if name.removeprefix(STEP) != "position_ids"}
    check_parts = check_encoder_decoder if "decoder_input_ids" in inputs else check_single
    check_parts(folder, load, inputs, expected, compare)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=Case)
    parser.add_argument("--target", default="onnx")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()

    def check(case: Case, scratch: Path) -> str:
        folder = case.compile(args.planish, scratch / "out", "--target", args.target)
        for graph in folder.glob("*.onnx"):
            onnx.checker.check_model(graph, full_check=args.target == "onnx")
        compare = Comparison(args.tolerance)
        for level in LEVELS:
            try:
                check_case(case, folder, onnx_runtime(level), compare)
            except Mismatch as e:
                raise Mismatch(f"{e} ({level.name})") from e
        return f"worst difference {compare.worst:.1e}"

    return check_all(args.cases, args.target, check)


if __name__ == "__main__":
    sys.exit(main())
