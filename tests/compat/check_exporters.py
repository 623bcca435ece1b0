#!/usr/bin/env python3
"""Holds what planish makes of other exporters' graphs against these graphs, both on ONNX Runtime.

    check_exporters.py PLANISH EXPORTS [--only NAME...] [--exporter dynamo|optimum] [--target onnx|ort]
                       [--tolerance 1e-5] [--least 40] [--table FILE]

EXPORTS is what export_models.py wrote. Each graph there that ONNX Runtime runs as it is, without its optimizations, is
compiled with --verify, which must end well, for each target; the artifact's outputs on ONNX Runtime are compared with
the graph's own, on two cases: a padded batch with a cache that holds something, and one row with an empty one. A line a
model, exporter and target says the largest difference and how many softmaxes of the graph were found to be attention:
all of them must be, but for those that NO_ATTENTION lists with their reason.

What the exporter or ONNX Runtime cannot do is skipped, with the reason. KNOWN lists what planish cannot do: it must
fail as it is known to. Exits 1 when something fails, or when fewer than --least models were exported by any exporter.
--table rewrites the table between the two marks in FILE, a page of Markdown.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from cases import Mismatch, difference
from exporter_models import MODELS, Model

EXPORTERS = ("dynamo", "optimum")
TARGETS = ("onnx", "ort")

# What planish cannot do: model and exporter -> a part of what it says, and why.
BOTH = ("dynamo", "optimum")
POOLING = "the attention of the pooling head is not found: its heads lie in the batch dimension"
NAMES = "--verify compares padded rows too: the file names the sizes of its outputs by Min and Max of others"
KNOWN: dict[tuple[str, str], tuple[str, str]] = {
    ("gpt_neo", "dynamo"): ("3 x 8, padded: logits: max relative error", NAMES),
    **{("siglip-vision", exporter): ("attention 2 of 3 softmaxes", POOLING) for exporter in BOTH},
    **{("siglip", exporter): ("attention 4 of 5 softmaxes", POOLING) for exporter in BOTH},
}

# Softmaxes that are not raised to attention: model, and exporter where only its graph is so -> how many, and why.
ROUTERS = "routers of experts"
MERGED = "in the branches of an If, which are left as they are"
NO_ATTENTION: dict[str, tuple[int, str]] = {
    "mixtral": (2, ROUTERS),
    "qwen3_moe": (2, ROUTERS),
    "gpt_oss": (4, "routers of experts, and scores with a learned sink among them"),
    **{f"{name} optimum": (8, MERGED) for name in ("t5", "mt5", "bart", "mbart", "marian", "pegasus", "m2m_100", "whisper")},
}

# Sizes by the names that the exporters give them. The second case has one row and an empty cache.
SIZES = {
    "batch_size": (2, 1),
    "text_batch_size": (2, 1),
    "image_batch_size": (3, 2),
    "sequence_length": (7, 5),
    "past_sequence_length": (3, 0),
    "encoder_sequence_length": (6, 9),
    "decoder_sequence_length": (4, 1),
    "past_decoder_sequence_length": (3, 2),
    "num_channels": (3, 3),
    "height": (32, 32),
    "width": (32, 32),
}
# Sizes of images, which --shapes has to give.
PIXELS = ("num_channels", "height", "width")
# Of sizes without a name: torch writes s6 and the like where it keeps none.
UNNAMED = (2, 1)
# So many positions are hidden in the second row.
PADDING = 2


class Unable(Exception):
    """The exporter or ONNX Runtime cannot do it: nothing to hold planish against."""


@dataclass
class Outcome:
    """Of a model by an exporter for a target: `status` is ok, FAIL, skip or known."""

    status: str
    text: str
    worst: float = 0.0
    softmaxes: int = 0
    attentions: int = 0
    # Why the rest is no attention.
    reason: str = ""

    def found(self) -> str:
        rest = f" ({self.softmaxes - self.attentions}: {self.reason})" if self.reason else ""
        return f"{self.attentions} of {self.softmaxes}{rest}"


@dataclass
class Source:
    """A graph that an exporter wrote, with inputs and what it gives for them."""

    file: Path
    softmaxes: int
    # What planish must be told of the inputs' shapes: nothing in a graph says how large images are.
    options: list[str]
    outputs: list[str]
    runs: list[tuple[dict[str, np.ndarray], list[np.ndarray]]] = field(default_factory=list)


def session(file: Path, optimized: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def size(of: int | str | None, case: int) -> int:
    """A declared size: a number, a name, or a sum of these."""
    if isinstance(of, int):
        return of
    parts = [part.strip() for part in (of or "").split("+")]
    return sum(int(part) if part.isdigit() else SIZES.get(part, UNNAMED)[case] for part in parts)


def feeds(graph: onnxruntime.InferenceSession, case: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Values for the graph's inputs: padded masks where there are several rows, positions that go with them."""
    shapes = {i.name: [size(of, case) for of in i.shape] for i in graph.get_inputs()}
    # Decoders are padded before the text, what has no cache after it.
    cached = any(name.startswith("past_key_values") for name in shapes)
    values = {}
    for given in graph.get_inputs():
        name, shape = given.name, shapes[given.name]
        if name.endswith("attention_mask"):
            value = np.ones(shape, np.int64)
            if shape[0] > 1:
                value[1, :PADDING] = 0 if cached and name == "attention_mask" else 1
                value[1, -PADDING:] = 1 if cached and name == "attention_mask" else 0
        elif name == "position_ids":
            mask = values.get("attention_mask", np.ones(shape, np.int64))
            value = np.maximum(mask.cumsum(-1) - 1, 0)[:, -shape[-1] :]
        elif name == "use_cache_branch":
            value = np.full(shape, case == 0)
        elif name == "token_type_ids":
            value = rng.integers(0, 2, shape)
        elif given.type == "tensor(int64)":
            value = rng.integers(5, 90, shape)
        elif given.type == "tensor(float)":
            value = rng.standard_normal(shape, dtype=np.float32)
        else:
            raise Unable(f"this script has no values for {name}, a {given.type}")
        values[name] = value
    return values


def softmaxes(graph: onnx.GraphProto) -> int:
    """How many there are, with those in branches and bodies."""
    inner = sum(softmaxes(a.g) for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    return inner + sum(node.op_type == "Softmax" for node in graph.node)


def words(error: object, length: int = 200) -> str:
    """On one line, fit for a table."""
    text = " ".join(str(error).split()).replace("|", "/")
    return text if len(text) <= length else text[: length - 3] + "..."


def source(file: Path) -> Source:
    """The graph with what it gives: as many cases as ONNX Runtime runs, at least one."""
    rng = np.random.default_rng(0)
    try:
        graph = session(file, optimized=False)
    except Exception as e:
        raise Unable(f"ONNX Runtime does not load {file.name}: {words(e, 120)}") from e
    options = []
    for given in graph.get_inputs():
        if any(of in PIXELS for of in given.shape):
            sizes = [str(size(of, 0)) if of in PIXELS else "?" for of in given.shape]
            options += ["--shapes", f"{given.name}={'x'.join(sizes)}"]
    found = Source(file, softmaxes(onnx.load(file).graph), options, [o.name for o in graph.get_outputs()])
    error = None
    for case in range(2):
        inputs = feeds(graph, case, rng)
        try:
            found.runs.append((inputs, graph.run(found.outputs, inputs)))
        except Exception as e:
            error = e
    if not found.runs:
        raise Unable(f"ONNX Runtime does not run {file.name}: {words(error, 120)}") from error
    return found


def compile_and_compare(planish: Path, given: Source, target: str, tolerance: float) -> tuple[float, int]:
    """The largest difference over cases and outputs, and the attentions that were raised."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        command = [planish, "compile", given.file, "-o", out, "--target", target, "--verify", "--json", *given.options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise Mismatch(f"compile exited with {done.returncode}: {done.stderr.strip()}")
        manifest = json.loads(done.stdout)["manifest"]
        made = session(out / manifest["files"][0]["name"], optimized=True)
        takes = {i.name for i in made.get_inputs()}
        worst = 0.0
        for inputs, expected in given.runs:
            got = made.run(given.outputs, {name: value for name, value in inputs.items() if name in takes})
            for name, value, want in zip(given.outputs, got, expected):
                if want.size or want.shape != value.shape:
                    worst = max(worst, difference(name, value, want, None, tolerance))
        return worst, sum((part.get("raised") or {}).get("attention", 0) for part in manifest["parts"])


def check(planish: Path, folder: Path, entry: Model, exporter: str, targets: list[str], tolerance: float) -> list[Outcome]:
    """One model by one exporter, an outcome a target: all its files are compiled."""
    told = folder / "export.json"
    try:
        if not told.exists():
            raise Unable("not exported: run export_models.py")
        if error := json.loads(told.read_text())["error"]:
            raise Unable(f"the exporter: {words(error, 160)}")
        sources = [source(file) for file in sorted(folder.glob("*.onnx"))]
    except Unable as e:
        return [Outcome("skip", str(e)) for _ in targets]
    outcomes = []
    for target in targets:
        done, failures = Outcome("ok", ""), []
        for given in sources:
            done.softmaxes += given.softmaxes
            try:
                worst, attentions = compile_and_compare(planish, given, target, tolerance)
                done.worst, done.attentions = max(done.worst, worst), done.attentions + attentions
            # Whatever a library raises is a failure of this graph, not the end of the others.
            except Exception as e:
                kind = "" if isinstance(e, Mismatch) else f"{type(e).__name__}: "
                failures.append(f"{given.file.name}: {kind}{words(e, 400)}")
        known = KNOWN.get((entry.name, exporter))
        named = NO_ATTENTION.get(f"{entry.name} {exporter}") or NO_ATTENTION.get(entry.name)
        others, done.reason = named or (0, "")
        if not failures and done.attentions != done.softmaxes - others:
            failures.append(
                f"attention {done.attentions} of {done.softmaxes} softmaxes"
                + (f", of which {others} are listed as {done.reason}" if named else "")
            )
        if failures:
            done.status, done.text = "FAIL", "; ".join(failures)
            if known and all(known[0] in failure for failure in failures):
                done.status, done.text = "known", known[1]
        elif known:
            done.status, done.text = "FAIL", "it passes now: take it out of KNOWN"
        else:
            done.text = f"difference {done.worst:.0e}, attention {done.found()}"
        outcomes.append(done)
    return outcomes


def cell(outcomes: list[Outcome]) -> str:
    """The table's two cells for a model by an exporter: the worst of its targets."""
    worst = min(outcomes, key=lambda o: ("FAIL", "known", "skip", "ok").index(o.status))
    if worst.status == "ok":
        return f"{max(o.worst for o in outcomes):.0e} | {worst.found()}"
    return f"{'fails' if worst.status == 'FAIL' else 'skipped'}: {worst.text} | "


def write_table(page: Path, results: dict[str, dict[str, list[Outcome]]], closing: str) -> None:
    """Between the marks, which the page must have."""
    rows = ["| model | dynamo: difference | attention | Optimum: difference | attention |", "|---|---|---|---|---|"]
    rows += [f"| {name} | {' | '.join(cell(by[exporter]) for exporter in EXPORTERS)} |" for name, by in results.items()]
    begin, end = "<!-- exporters: begin -->", "<!-- exporters: end -->"
    text = page.read_text()
    if begin not in text or end not in text:
        sys.exit(f"{page}: no line `{begin}` with a line `{end}` after it")
    table = "\n".join([begin, *rows, "", f"{closing}.", end])
    page.write_text(re.sub(f"{begin}.*{end}", lambda _: table, text, flags=re.DOTALL))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("exports", type=Path, help="what export_models.py wrote")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models only")
    parser.add_argument("--exporter", choices=EXPORTERS, action="append")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--least", type=int, default=40, help="so many models must be exported, without --only")
    parser.add_argument("--table", type=Path, metavar="FILE", help="rewrite the table in this page")
    args = parser.parse_args()
    exporters, targets = args.exporter or EXPORTERS, args.target or list(TARGETS)
    if args.table and (args.only or args.exporter or args.target):
        parser.error("--table is of all models, exporters and targets")
    onnxruntime.set_default_logger_severity(4)
    results: dict[str, dict[str, list[Outcome]]] = collections.defaultdict(dict)
    for entry in MODELS:
        for exporter in exporters if not args.only or entry.name in args.only else ():
            outcomes = check(args.planish, args.exports / exporter / entry.name, entry, exporter, targets, args.tolerance)
            results[entry.name][exporter] = outcomes
            for target, outcome in zip(targets, outcomes):
                print(f"{outcome.status:5} {entry.name:15} {exporter:8} {target:5} {outcome.text}", flush=True)
    every = [o for by in results.values() for outcomes in by.values() for o in outcomes]
    count = collections.Counter(o.status for o in every)
    exported = sum(any(o.status != "skip" for outcomes in by.values() for o in outcomes) for by in results.values())
    reasons = collections.Counter(o.text for o in every if o.status in ("skip", "known"))
    closing = f"{count['ok']} passed, {count['FAIL']} failed, {count['skip'] + count['known']} skipped"
    for reason, times in reasons.items():
        print(f"skipped {times}: {reason}")
    print(f"{exported} models exported by at least one exporter")
    print(closing + (f" ({count['known']} of them known limits)" if count["known"] else ""))
    if args.table:
        write_table(args.table, results, closing)
    few = not args.only and exported < args.least
    if few:
        print(f"fewer than {args.least} models were exported", file=sys.stderr)
    return 1 if count["FAIL"] or few else 0


if __name__ == "__main__":
    sys.exit(main())
