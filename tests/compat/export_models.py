#!/usr/bin/env python3
"""Exports the models of exporter_models.py to ONNX, by torch.onnx.export(dynamo=True) or by Optimum.

    export_models.py dynamo|optimum OUT [--only NAME...] [--timeout 600]

Each exporter runs in the environment that its requirements pin. A model goes to OUT/EXPORTER/NAME, with an export.json
that says what was exported: the digest of what it was made from, and the exporter's error where it cannot. What is
there with the same digest is left as it is. Weights are random, from one seed: nothing is downloaded.
"""

import argparse
import contextlib
import hashlib
import io
import json
import logging
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from exporter_models import MODELS, TASKS, Model

HERE = Path(__file__).parent
REQUIREMENTS = {"dynamo": "requirements-exporters.txt", "optimum": "requirements-optimum.txt"}
# As it is at the start: a digest is of what ran.
SCRIPT = Path(__file__).read_text()
# Sizes that graphs are traced with; all differ, so that none is taken for another.
BATCH, SEQUENCE, PAST, TARGET = 2, 7, 3, 5
IDS = {0: "batch_size", 1: "sequence_length"}
MASK = {0: "batch_size", 1: "past_sequence_length + sequence_length"}
TEXT_IDS = {0: "text_batch_size", 1: "sequence_length"}
TARGET_IDS = {0: "batch_size", 1: "decoder_sequence_length"}


def ids(length: int) -> torch.Tensor:
    return torch.randint(5, 90, (BATCH, length))


def ones(length: int) -> torch.Tensor:
    return torch.ones(BATCH, length, dtype=torch.int64)


def pixels(config) -> torch.Tensor:
    size = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 32)
    return torch.randn(BATCH, 3, size, size)


# What a model takes, by its form: for each input an example and the names of its open sizes.
FORMS = {
    "tokens": lambda config: {"input_ids": (ids(SEQUENCE), IDS), "attention_mask": (ones(SEQUENCE), IDS)},
    "pair": lambda config: {
        "input_ids": (ids(SEQUENCE), IDS),
        "attention_mask": (ones(SEQUENCE), IDS),
        "decoder_input_ids": (ids(TARGET), TARGET_IDS),
    },
    "image": lambda config: {"pixel_values": (pixels(config), {0: "batch_size"})},
    "speech": lambda config: {
        "input_features": (
            torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions),
            {0: "batch_size"},
        ),
        "decoder_input_ids": (ids(TARGET), TARGET_IDS),
    },
    "image-text": lambda config: {
        "input_ids": (ids(SEQUENCE), TEXT_IDS),
        "pixel_values": (pixels(config), {0: "image_batch_size"}),
        "attention_mask": (ones(SEQUENCE), TEXT_IDS),
    },
    "image-ids": lambda config: {
        "input_ids": (ids(SEQUENCE), TEXT_IDS),
        "pixel_values": (pixels(config), {0: "image_batch_size"}),
    },
}


def build(entry: Model) -> torch.nn.Module:
    """The model, with weights that make scores and norms matter: by default they are all near zero or one."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(entry.type, **entry.config)
    model = getattr(transformers, f"AutoModel{entry.head}").from_config(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, weight[0].numel() ** -0.5)
            else:
                weight.add_(torch.randn_like(weight) * 0.1)
    return model


class Cached(torch.nn.Module):
    """A decoder that takes and returns its cache as pairs of tensors [batch, heads, length, size], one a layer."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, past):
        cache = transformers.DynamicCache(past)
        done = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        return done.logits, [(layer.keys, layer.values) for layer in done.past_key_values.layers]


def by_dynamo(entry: Model, model: torch.nn.Module, folder: Path) -> None:
    """One graph, with open sizes; a decoder's with its cache."""
    for part, implementation in entry.torch.items():
        getattr(model, f"set_{part}_implementation")(implementation)
    names = {}
    if entry.form == "cached":
        given = model(ids(PAST), use_cache=True).past_key_values.layers
        past = [(layer.keys.detach(), layer.values.detach()) for layer in given]
        inputs = {"input_ids": ids(SEQUENCE), "attention_mask": ones(PAST + SEQUENCE), "past": past}
        size = {0: "batch_size", 2: "past_sequence_length"}
        open_sizes = {"input_ids": IDS, "attention_mask": MASK, "past": [(size, size) for _ in past]}
        cache = [f"{layer}.{part}" for layer in range(len(past)) for part in ("key", "value")]
        names["input_names"] = ["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in cache)]
        names["output_names"] = ["logits", *(f"present.{name}" for name in cache)]
        model = Cached(model)
    else:
        form = FORMS[entry.form](model.config)
        inputs = {name: example for name, (example, _) in form.items()}
        open_sizes = {name: sizes for name, (_, sizes) in form.items()}
        if entry.form in ("pair", "speech"):
            inputs["use_cache"], open_sizes["use_cache"] = False, None
    program = torch.onnx.export(
        model, (), kwargs=inputs, dynamic_shapes=open_sizes, dynamo=True, verbose=False, **names
    )
    program.save(folder / "model.onnx")


def by_optimum(entry: Model, model: torch.nn.Module, folder: Path) -> None:
    """The files that Optimum writes for the model's task."""
    from optimum.exporters.onnx import onnx_export_from_model

    onnx_export_from_model(model, folder, task=TASKS[entry.head], do_validation=False)


EXPORTERS = {"dynamo": by_dynamo, "optimum": by_optimum}


class Late(Exception):
    """The exporter took longer than it may."""


def late(*_) -> None:
    raise Late("the exporter did not end in time")


def digest(entry: Model, exporter: str) -> str:
    """Of everything that an export depends on."""
    texts = [repr(entry), SCRIPT, (HERE / REQUIREMENTS[exporter]).read_text()]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def first_line(error: BaseException) -> str:
    """The last cause's own words: exporters wrap it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[: 2 if lines and lines[0].endswith(':') else 1])}"[:200]


def export(entry: Model, exporter: str, out: Path, timeout: int) -> str:
    """Exports one model where what is there is of another digest; returns a line of what was done."""
    folder = out / exporter / entry.name
    told = folder / "export.json"
    made_from = digest(entry, exporter)
    if told.exists() and json.loads(told.read_text())["digest"] == made_from:
        return "there"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    start = time.monotonic()
    error = None
    signal.alarm(timeout)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            EXPORTERS[exporter](entry, build(entry), folder)
    # Whatever the exporter raises is what it cannot do.
    except Exception as e:
        error = first_line(e)
        for file in folder.glob("*.onnx*"):
            file.unlink()
    finally:
        signal.alarm(0)
    told.write_text(json.dumps({"digest": made_from, "error": error}))
    return f"{time.monotonic() - start:.0f} s{f', {error}' if error else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("exporter", choices=EXPORTERS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="export these models only")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    signal.signal(signal.SIGALRM, late)
    for entry in MODELS:
        if not args.only or entry.name in args.only:
            print(f"{args.exporter:8} {entry.name:16} {export(entry, args.exporter, args.out, args.timeout)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
