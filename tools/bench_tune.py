#!/usr/bin/env python3
"""Repeats `planish compile --tune`, and measures what it chose next to the default form and to peers.

    bench_tune.py PLANISH FOLDER NAME=CHECKPOINT... [--repeats 10] [--time 60s] [--limit 1800] [--optimum PYTHON] [--peer NAME=FILE.onnx]...

NAME is minilm, bert-base, gpt2, llama-1.1b or vit-base, which says the precision, the shapes and the task of Optimum's export. Each repeat
has a folder of caches of its own, so that it searches. A choice counts as stable if 9 of 10 repeats chose the same, or if the intervals of
all repeats' ratios overlap. Then one run of `planish bench` has the default form, the form that most repeats chose, and the peers: the
graph that Optimum exports of the checkpoint (with --optimum, the Python of its environment) and each --peer; all have the same threads,
and idle threads sleep. A model has --limit seconds: what is left then is not run, and the table says so. Prints two tables in Markdown; FOLDER
gets the artifacts and the documents.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODELS = {
    "minilm": {"shapes": "1x128,8x128", "task": "feature-extraction", "library": "transformers"},
    "bert-base": {"shapes": "1x128,8x128", "task": "feature-extraction"},
    "gpt2": {"shapes": "1x128", "task": "text-generation-with-past"},
    "llama-1.1b": {"shapes": "1x128", "options": ["--int4"]},
    "vit-base": {"shapes": "1x1", "task": "image-classification"},
}
EXPORT = """
import sys
from optimum.exporters.onnx import main_export
model, out, task, library = sys.argv[1:]
main_export(model, out, task=task, library_name=library, local_files_only=True)
"""


class TimeIsUp(Exception):
    """A model had its time."""


class Failed(Exception):
    """A command failed, which costs the rows of its model."""


class Clock:
    """The time that a model has left."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit

    def run(self, command, **more):
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeIsUp
        try:
            return subprocess.run([str(word) for word in command], timeout=left, text=True, capture_output=True, **more)
        except subprocess.TimeoutExpired as error:
            raise TimeIsUp from error


def checked(done, what):
    if done.returncode != 0:
        raise Failed(f"{what} failed with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done


def words(choices):
    return " ".join(f"{name}={value}" for name, value in sorted(choices.items())) or "default"


def search(args, clock, name, checkpoint, number):
    """One repeat: the member `tuning`, and its artifact."""
    model, out = MODELS[name], args.folder / f"{name}-{number}"
    with tempfile.TemporaryDirectory() as caches:
        # The reference's outputs are the same in each repeat.
        shared = args.folder / "reference"
        shared.mkdir(exist_ok=True)
        (Path(caches) / "planish").mkdir()
        (Path(caches) / "planish/reference").symlink_to(shared)
        done = clock.run(
            [args.planish, "compile", checkpoint, "-o", out, "--force", f"--tune={model['shapes']}", "--tune-time", args.time,
             "--json", *model.get("options", [])],
            env={**os.environ, "XDG_CACHE_HOME": caches},
        )  # fmt: skip
    document = json.loads(checked(done, f"the search of {name}").stdout)
    (args.folder / f"{name}-{number}.json").write_text(json.dumps(document["tried"], indent=1))
    return document["manifest"]["tuning"], out


def exported(args, clock, name, checkpoint):
    """Optimum's graph, where Optimum is there and exports the model."""
    model, out = MODELS[name], args.folder / f"{name}-optimum"
    if args.optimum is None or "task" not in model:
        return None
    if not (out / "model.onnx").exists():
        command = [args.optimum, "-W", "ignore", "-c", EXPORT, checkpoint.resolve(), out, model["task"], model.get("library", "transformers")]
        done = clock.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        if done.returncode != 0:
            raise Failed(f"Optimum exports no graph of {name}: {done.stderr.strip()[-2000:]}")
    return out / "model.onnx"


def compare(args, clock, name, checkpoint, tuned):
    """The rows of one run of bench: the default form, the tuned one, and peers."""
    model, default = MODELS[name], args.folder / f"{name}-default"
    compiled = clock.run([args.planish, "compile", checkpoint, "-o", default, "--force", *model.get("options", [])])
    checked(compiled, f"compiling {name}")
    peers = [exported(args, clock, name, checkpoint), *(path for own, path in args.peer if own == name)]
    contestants = [default, tuned, *(peer for peer in peers if peer is not None and peer.exists())]
    shapes = [shape.split("x") for shape in model["shapes"].split(",")]
    batch, seq = (",".join(sorted({shape[at] for shape in shapes}, key=int)) for at in (0, 1))
    document, rows = args.folder / f"{name}-bench.json", args.folder / f"{name}-bench.csv"
    done = clock.run(
        [args.planish, "bench", *contestants, "--reference", checkpoint, "--batch", batch, "--seq", seq, "--json", document,
         "--csv", rows]
    )  # fmt: skip
    if done.returncode not in (0, 1, 3):
        checked(done, f"bench of {name}")
    return done.stdout


def overlap(records):
    ends = [tuning.get("ratio_ci95", [1.0, 1.0]) for tuning in records]
    return max(low for low, _ in ends) <= min(high for _, high in ends)


def pair(text, kind):
    name, _, path = text.partition("=")
    if name not in MODELS or not path:
        raise argparse.ArgumentTypeError(f"`{text}`: expected NAME={kind}, where NAME is one of {', '.join(MODELS)}")
    return name, Path(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", type=lambda text: pair(text, "CHECKPOINT"), metavar="NAME=CHECKPOINT")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--time", default="60s", help="--tune-time of each repeat")
    parser.add_argument("--limit", type=float, default=1800, help="the seconds that a model has in all")
    parser.add_argument("--shapes", help="the shapes of each model, such as 1x16,8x16, in the place of the usual ones")
    parser.add_argument("--optimum", type=Path, help="the Python of an environment with Optimum")
    parser.add_argument("--peer", type=lambda text: pair(text, "FILE.onnx"), action="append", default=[], metavar="NAME=FILE.onnx")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS.values():
        model["shapes"] = args.shapes or model["shapes"]
    lines, tables = [], []
    for name, checkpoint in args.models:
        # The searches leave a third of the time to the comparison.
        clock, records = Clock(args.limit * 2 / 3), []
        end = time.monotonic() + args.limit
        try:
            for number in range(args.repeats):
                records.append(search(args, clock, name, checkpoint, number))
        except TimeIsUp:
            tables.append(f"{name}: {len(records)} of {args.repeats} repeats in {args.limit * 2 / 3:.0f} s")
        except Failed as failed:
            tables.append(f"{name}: {failed}")
        for number, (tuning, _) in enumerate(records):
            low, high = tuning.get("ratio_ci95", [1.0, 1.0])
            lines.append(f"| {name} | {number + 1} | {words(tuning['choices'])} | {tuning['ratio']:.3f} | {low:.3f} to {high:.3f} | {tuning['candidates']} |")
        if not records:
            continue
        (most, count), = collections.Counter(words(tuning["choices"]) for tuning, _ in records).most_common(1)
        stable = count >= 0.9 * len(records) or overlap([tuning for tuning, _ in records])
        verdict = "stable" if stable else "not stable"
        if not all(tuning["candidates"] for tuning, _ in records):
            verdict = "no verdict, because a repeat measured no candidate in its time; give a longer --time"
        tables.append(f"{name}: {count} of {len(records)} repeats chose `{most}`; {verdict}")
        tuned = next(out for tuning, out in records if words(tuning["choices"]) == most)
        clock.end = end
        try:
            tables.append(compare(args, clock, name, checkpoint, tuned))
        except TimeIsUp:
            tables.append(f"{name}: no time was left for the comparison with peers")
        except Failed as failed:
            tables.append(f"{name}: {failed}")
    print("| model | repeat | choice | time, ratio to the default | 95% interval | candidates |\n|---|---:|---|---:|---|---:|")
    print("\n".join(lines) + "\n\n" + "\n".join(tables))


if __name__ == "__main__":
    main()
