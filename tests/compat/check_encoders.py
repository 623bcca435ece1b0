#!/usr/bin/env python3
"""Holds compiled encoders of text against the transformers library, on random checkpoints of random configurations.

    check_encoders.py PLANISH [--configurations 12] [--seed 0] [--targets onnx,ort] [--only TYPE...] [--keep DIR]

For each type and each head it draws configurations (encoder_configs.py), fills a model with random weights, saves it as
transformers does, compiles it, and runs it in ONNX Runtime on texts of lengths from 1 to the longest, padded on the
right and on the left. What comes out has to be what the saved checkpoint, loaded again, gives in float64: within 1e-4
of the largest value, at tokens that are no padding. What planish refuses is listed with its message, and so is what
transformers itself does not run, or not in float32 as it does in float64. Exits 1 when a value differs, or when planish
ends in another way than with an error.
"""

import argparse
import collections
import contextlib
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import onnxruntime
import torch
import transformers

from cases import Mismatch, difference
from encoder_configs import TYPES, Draw

# The endings of classes.
HEADS = (
    "Model", "EncoderModel", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
    "ForQuestionAnswering", "ForMultipleChoice",
)  # fmt: skip
# Types with a decoder after the encoder, which have another task without a head.
WITH_DECODER = ("bart", "longt5", "mt5", "t5", "umt5")
# The texts that a model of multiple choice has in a row.
CHOICES = 3
# Rotary embeddings whose frequencies are those of the longest text of a batch in transformers, and of each text here.
BY_LENGTH = ("dynamic", "longrope")
EXIT_FAILED = 1

Tensors = dict[str, np.ndarray]


class Refused(Exception):
    """planish refuses the configuration; the message is its own."""


class Unusable(Exception):
    """transformers does not make, save, load or run a model of the configuration, or not with finite numbers."""


def fill(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Random weights: those of norms around 1, none of them 0."""
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if weight.dim() == 1:
            values = 0.2 * noise + (1.0 if name.endswith("weight") else 0.0)
        elif "embed" in name:
            values = 0.7 * noise
        else:
            values = 1.3 * noise / max(1, weight.shape[1:].numel()) ** 0.5
        weight.data.copy_(values)
    # The factors of layers of Gemma 4.
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.copy_(1 + 0.2 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64))
    # Norms of batches, whose weights are buffers too in some models.
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if getattr(module, "running_var", None) is not None and buffer.dim() == 1:
                noise = 0.2 * torch.randn(buffer.shape, generator=generator, dtype=torch.float64)
                buffer.copy_((1 + noise).abs() if name in ("running_var", "weight") else noise)


def with_plain_experts(model: torch.nn.Module) -> torch.nn.Module:
    """The same, with experts that are computed in a form that has float64, which the default one has not."""
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model


def rope_kinds(config: dict) -> set[str]:
    """The rotary embeddings of a configuration."""
    found = re.findall(r'"rope_type": "(\w+)"', json.dumps(config))
    return set(found)


def batches(draw: Draw, config: dict, longest: int, left: bool = True) -> list[Tensors]:
    """Inputs of any encoder. Texts grow from batch to batch: in transformers, frequencies stay stretched."""
    pad, vocabulary = config["pad_token_id"] or 0, config["vocab_size"]
    # Positions count by this id in some models, not by the mask.
    ids = [i for i in range(vocabulary) if i != pad]
    lengths = [[1], [3, 1, 2], [5, 2, longest // 2], [longest, 4, 1, longest - 1]]
    found = []
    for number, row_lengths in enumerate(lengths):
        if rope_kinds(config) & set(BY_LENGTH):
            row_lengths = [max(row_lengths)] * 2
        width = max(row_lengths)
        input_ids = np.full((len(row_lengths), width), pad, np.int64)
        mask = np.zeros((len(row_lengths), width), np.int64)
        for row, length in enumerate(row_lengths):
            place = slice(width - length, width) if left and number % 2 else slice(0, length)
            input_ids[row, place] = [draw.choice(ids) for _ in range(length)]
            mask[row, place] = 1
        types = config.get("type_vocab_size") or 1
        found.append(dict(
            input_ids=input_ids, attention_mask=mask, token_type_ids=random_ids(draw, types, input_ids.shape)
        ))  # fmt: skip
        if places := config.get("max_2d_position_embeddings"):
            corners = random_ids(draw, places, (*input_ids.shape, 2, 2))
            found[-1]["bbox"] = np.sort(corners, axis=2).reshape(*input_ids.shape, 4)
    return found


def with_one_end(batch: Tensors, config: dict) -> Tensors:
    """Texts whose last token, and no other, is the end, which classifiers with a decoder score."""
    ids, mask, end = batch["input_ids"], batch["attention_mask"], config["eos_token_id"]
    ids = np.where(ids == end, end + 1, ids)
    last = np.where(mask == 1, np.arange(ids.shape[1]), -1).max(axis=1)
    ids[np.arange(len(ids)), last] = end
    return batch | dict(input_ids=ids)


def as_choices(batch: Tensors) -> Tensors:
    """Rows of several texts: those of a batch, each beside the ones after it."""
    return {name: np.stack([np.roll(t, -n, axis=0) for n in range(CHOICES)], axis=1) for name, t in batch.items()}


def random_ids(draw: Draw, below: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(draw.getrandbits(32)).integers(0, below, shape)


def longest_text(type_name: str, config: dict) -> int:
    """The tokens of the longest text."""
    positions = config.get("max_position_embeddings")
    if positions is None:
        return 31
    if config.get("rope_parameters"):
        return positions + 5
    if type_name == "mpnet":
        return positions - 2
    counted = ("roberta", "camembert", "data2vec", "esm")
    if any(name in type_name for name in counted):
        return positions - config["pad_token_id"] - 1
    if config.get("position_biased_input") is False:
        return positions + 9
    return positions


@dataclass
class Row:
    """What became of the configurations of a type with a head."""

    tried: int = 0
    passed: int = 0
    unusable: collections.Counter = field(default_factory=collections.Counter)
    refused: collections.Counter = field(default_factory=collections.Counter)
    warned: collections.Counter = field(default_factory=collections.Counter)
    failed: list[str] = field(default_factory=list)
    worst: float = 0.0


class Trial:
    """One configuration of a type with a head."""

    types, drawer = TYPES, Draw

    def __init__(self, args: argparse.Namespace, type_name: str, head: str, number: int, scratch: Path):
        self.args, self.type_name, self.head, self.scratch = args, type_name, head, scratch
        self.draw = self.drawer(f"{args.seed} {type_name} {number}")
        self.config = self.types[type_name](self.draw)
        if head == "ForQuestionAnswering":
            self.config["num_labels"] = 2
        self.new_format = number % 4 == 3
        self.dtype = {2: torch.bfloat16, 5: torch.float16}.get(number % 6, torch.float32)

    @classmethod
    def class_name(cls, type_name: str, head: str) -> str:
        """The class of a type with a head."""
        return transformers.CONFIG_MAPPING[type_name].__name__.removesuffix("Config") + head

    def save(self) -> type:
        """Writes the checkpoint; returns the class."""
        config_class = transformers.CONFIG_MAPPING[self.type_name]
        model_class = getattr(transformers, self.class_name(self.type_name, self.head))
        try:
            # A configuration may change what it is made of.
            model = model_class(config_class(**copy.deepcopy(self.config))).eval()
            fill(model, torch.Generator().manual_seed(self.draw.getrandbits(32)))
            model.to(self.dtype).save_pretrained(self.scratch / "model", save_original_format=not self.new_format)
        except Exception as e:
            raise Unusable(f"{type(e).__name__}: {e}") from e
        return model_class

    def reference(self, model_class: type, inputs: list[Tensors], dtype: torch.dtype) -> list[Tensors]:
        """What transformers computes in an element type."""
        try:
            loaded = model_class.from_pretrained(self.scratch / "model", dtype=self.loaded())
            model = with_plain_experts(loaded.eval().to(dtype))
            found = []
            for batch in inputs:
                with torch.no_grad(), self.computing(dtype):
                    output = model(**{name: torch.from_numpy(t) for name, t in batch.items()}, **self.keywords())
                found.append({name: t.numpy() for name, t in output.items() if isinstance(t, torch.Tensor)})
            return found
        except Exception as e:
            raise Unusable(f"{type(e).__name__}: {e}") from e

    def compile(self, target: str, row: Row) -> onnxruntime.InferenceSession:
        folder = self.scratch / target
        command = [self.args.planish, "compile", self.scratch / "model", "-o", folder, "--target", target]
        done = subprocess.run([*command, *self.settings(), *self.args.option], capture_output=True, text=True, timeout=300)
        said = done.stderr.replace(str(self.scratch), "").strip()
        if done.returncode == EXIT_FAILED and "panicked" not in said:
            raise Refused(said)
        if done.returncode != 0:
            raise Mismatch(f"compile exited with {done.returncode}: {said}")
        row.warned.update(line for line in said.splitlines() if line.startswith("warning"))
        return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])

    def run(self, row: Row) -> None:
        model_class = self.save()
        inputs = batches(self.draw, self.config, self.longest(), self.pads_left())
        if self.type_name in WITH_DECODER:
            inputs = [with_one_end(batch, self.config) for batch in inputs]
        if self.head == "ForMultipleChoice":
            inputs = [as_choices(batch) for batch in inputs]
        sessions = {}
        try:
            for target in self.args.targets.split(","):
                sessions[target] = self.compile(target, row)
        # Unless transformers does not run it either.
        except Refused:
            self.reference(model_class, inputs, torch.float64)
            raise
        taken = {i.name for i in next(iter(sessions.values())).get_inputs()}
        inputs = [{name: t for name, t in batch.items() if name in taken} for batch in inputs]
        wanted = self.reference(model_class, inputs, torch.float64)
        try:
            for target, session in sessions.items():
                names = [o.name for o in session.get_outputs()]
                for batch, expected in zip(inputs, wanted):
                    outputs = dict(zip(names, session.run(names, batch)))
                    row.worst = max(row.worst, self.compare(outputs, batch, expected, target))
        except Mismatch:
            single = self.reference(model_class, inputs, torch.float32)
            try:
                for batch, outputs, expected in zip(inputs, single, wanted):
                    self.compare({name: outputs[name] for name in names}, batch, expected, "")
            except Mismatch as e:
                raise Unusable(f"transformers itself differs in float32: {e}") from e
            raise

    def kept(self, name: str, mask: np.ndarray) -> np.ndarray:
        """What of an output is compared."""
        if self.head == "ForMultipleChoice":
            return mask[:, :, 0]
        if name != "pooler_output" and self.head != "ForSequenceClassification":
            return mask
        # Nothing is promised for padding, which stands for a text where its first token does.
        by_mean = self.config.get("classifier_pooling") in ("mean", "late")
        return np.ones(len(mask), bool) if by_mean or self.type_name in WITH_DECODER else mask[:, 0]

    def loaded(self) -> torch.dtype:
        """The element type that transformers loads a checkpoint in, before it computes in another."""
        return torch.float32

    @contextlib.contextmanager
    def computing(self, dtype: torch.dtype):
        """Around each run of a model in transformers."""
        yield

    def keywords(self) -> dict:
        """What the model in transformers gets besides tensors."""
        return {}

    def settings(self) -> list[str]:
        """Options of `planish compile`."""
        return []

    def pads_left(self) -> bool:
        """Whether texts are padded on the left too."""
        return True

    def longest(self) -> int:
        """The tokens of the longest text."""
        return longest_text(self.type_name, self.config)

    def compare(self, outputs: Tensors, inputs: Tensors, expected: Tensors, target: str) -> float:
        """The largest difference of outputs from those of transformers."""
        mask = inputs["attention_mask"].astype(bool)
        worst = 0.0
        # The pooler that Optimum's graphs leave out may be missing.
        lost = set(expected) - set(outputs) - {"pooler_output", "encoder_last_hidden_state"}
        if lost or set(outputs) - set(expected):
            raise Mismatch(f"{target}: outputs {sorted(outputs)}, transformers gives {sorted(expected)}")
        for name, got in outputs.items():
            want = expected[name].astype(np.float32)
            kept = self.kept(name, mask)
            got, want = got[kept], want[kept]
            if not np.isfinite(want).all():
                raise Unusable(f"{name} is not finite")
            what = f"{target}, {list(mask.shape)}, {name}"
            worst = max(worst, difference(what, got, want, None, self.args.tolerance))
        return worst


def check(args: argparse.Namespace, trial_class: type[Trial], type_name: str, head: str) -> Row:
    row = Row()
    for number in range(args.first, args.first + args.configurations):
        row.tried += 1
        with tempfile.TemporaryDirectory() as scratch:
            trial = trial_class(args, type_name, head, number, Path(scratch))
            try:
                trial.run(row)
                row.passed += 1
            except Unusable as e:
                row.unusable[str(e).splitlines()[0][:160]] += 1
            except Refused as e:
                row.refused[str(e)] += 1
            except Exception as e:
                row.failed.append(f"number {number}: {type(e).__name__}: {e}\n    {trial.config}")
                if args.keep:
                    kept = args.keep / f"{type_name}-{head}-{number}"
                    shutil.rmtree(kept, ignore_errors=True)
                    shutil.copytree(scratch, kept)
    return row


def report(rows: dict[tuple[str, str], Row]) -> int:
    """Prints what differs, what was refused and a table; returns the exit code."""
    for kind in ("unusable", "warned", "refused"):
        for (type_name, head), row in rows.items():
            for message, count in getattr(row, kind).items():
                print(f"{kind} {type_name} {head}, {count} times: {message}")
    failed = [(key, text) for key, row in rows.items() for text in row.failed]
    for (type_name, head), text in failed:
        print(f"FAIL {type_name} {head} {text}")
    print("| type | head | tried | passed | refused | not run by transformers | differ | largest difference |")
    print("|---|---|---|---|---|---|---|---|")
    for (type_name, head), row in rows.items():
        counts = (row.tried, row.passed, row.refused.total(), row.unusable.total(), len(row.failed))
        print(f"| {type_name} | {head} | {' | '.join(map(str, counts))} | {row.worst:.0e} |")
    sums = [sum(r.passed for r in rows.values()), sum(r.refused.total() for r in rows.values()), len(failed)]
    print("{} passed, {} refused, {} failed".format(*sums))
    unseen = [key for key, row in rows.items() if row.tried > 0 and row.passed == 0]
    for type_name, head in unseen:
        print(f"FAIL {type_name} {head}: no configuration passed")
    return 1 if failed or unseen else 0


def main(description: str, trial_class: type[Trial], heads: tuple[str, ...]) -> int:
    """Tries the configurations that the command line asks for; returns the exit code."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("--configurations", type=int, default=12, help="of each type and head")
    parser.add_argument("--first", type=int, default=0, help="the number of the first configuration")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--targets", default="onnx,ort")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--only", nargs="+", choices=trial_class.types, default=list(trial_class.types))
    parser.add_argument("--heads", nargs="+", choices=heads, default=list(heads))
    parser.add_argument("--option", action="append", default=[], help="an option of compile")
    parser.add_argument("--keep", type=Path, help="where checkpoints and artifacts that fail go")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    rows = {}
    for type_name in args.only:
        for head in args.heads:
            known = type_name in transformers.CONFIG_MAPPING
            known = known and hasattr(transformers, trial_class.class_name(type_name, head))
            if known and (head != "Model" or type_name not in WITH_DECODER):
                rows[type_name, head] = check(args, trial_class, type_name, head)
                print(f"{type_name} {head}: {rows[type_name, head].passed} passed", file=sys.stderr, flush=True)
    return report(rows)


if __name__ == "__main__":
    sys.exit(main(__doc__, Trial, HEADS))
