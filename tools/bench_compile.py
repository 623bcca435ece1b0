#!/usr/bin/env python3
"""Time and peak memory of `planish compile` next to `cp` of as many bytes as it writes.

    tools/bench_compile.py PLANISH MODEL [--target ort] [--precision fp16] [--runs 7] [--check] [--scratch DIR]

What `cp` copies is the model that a first compilation wrote; weights that are stored in 16 bits are
twice as large there. Such weights cannot be linked, so there `--weights link` is not measured. With a
precision `cp` copies what is compiled, which is the larger.

The contestants take turns, so that a drift of the machine hits all of them; the first round warms the
page cache and is not counted. Wall time and peak resident memory are what the kernel reports for the
process (wait4), so a reading under some 15 MB is the Python that started it. MB are 10^6 bytes.
Standard library only.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parent.parent


class Contestant(NamedTuple):
    """A command that writes below `folder`, and what it may take at most (with --check)."""

    name: str
    command: List[str]
    folder: Path
    max_ratio: Optional[float] = None  # of cp's time
    max_seconds: Optional[float] = None
    max_peak_mb: Optional[float] = None
    max_written_mb: Optional[float] = None


class Run(NamedTuple):
    seconds: float
    peak_mb: float
    written_mb: float


def size_mb(folder: Path) -> float:
    """What the files below a folder hold; links, symbolic or hard, to what is elsewhere hold nothing."""
    files = [p.lstat() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    return sum(f.st_size for f in files if f.st_nlink == 1) / 1e6


def run(contestant: Contestant) -> Run:
    """Runs it once in an empty folder, when the disk has taken what was written before."""
    shutil.rmtree(contestant.folder, ignore_errors=True)
    contestant.folder.mkdir()
    os.sync()
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        process = subprocess.Popen(contestant.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            log.seek(0)
            text = log.read().decode(errors="replace").strip()
            sys.exit(f"{' '.join(contestant.command)}\nexited with {process.returncode}:\n{text}")
    return Run(seconds, usage.ru_maxrss * 1024 / 1e6, size_mb(contestant.folder))


def contestants(args: argparse.Namespace, scratch: Path) -> List[Contestant]:
    config = args.model / "config.json"
    if not config.is_file():
        sys.exit(f"{args.model} has no config.json; `make bench-models` writes models to measure")
    stored = json.loads(config.read_text()).get("dtype", "float32")
    compile_ = [str(args.planish), "compile", str(args.model), "--target", args.target]
    if args.precision:
        compile_.append(f"--{args.precision}")

    def planish(weights_mode: str, **limits: float) -> Contestant:
        folder = scratch / weights_mode
        command = [*compile_, "--weights", weights_mode, "-o", str(folder / "model")]
        return Contestant(f"compile --weights {weights_mode}", command, folder, **limits)

    written = scratch / "written"
    run(Contestant("what cp copies", [*compile_, "-o", str(written / "model")], written))
    folder, pattern = (args.model, "*.safetensors") if args.precision else (written / "model", "*.onnx*")
    files = sorted(map(str, folder.glob(pattern)))
    # Blocks shared with the source would make a copy that measures nothing.
    copy = ["cp", "--reflink=never", *files, str(scratch / "cp")]
    field = [Contestant("cp", copy, scratch / "cp"), planish("copy", max_ratio=2.0, max_peak_mb=150)]
    if stored == "float32" and not args.precision:
        field.append(planish("link", max_seconds=0.2, max_peak_mb=150, max_written_mb=2))
    return field


def report(field: List[Contestant], results: Dict[str, List[Run]]) -> List[str]:
    """Prints the table, with ratios to the first contestant; returns the limits that were missed."""
    header = ["", "median s", "min", "max", "x cp", "peak MB", "written MB"]
    rows, missed = [header], []
    cp_seconds = statistics.median(r.seconds for r in results[field[0].name])
    for contestant in field:
        runs = results[contestant.name]
        seconds = statistics.median(r.seconds for r in runs)
        peak = statistics.median(r.peak_mb for r in runs)
        written = runs[-1].written_mb
        ratio = seconds / cp_seconds
        times = [r.seconds for r in runs]
        figures = [seconds, min(times), max(times)]
        rows.append([contestant.name, *(f"{s:.3f}" for s in figures), f"{ratio:.2f}", f"{peak:.1f}", f"{written:.2f}"])
        for what, value, limit in [
            ("times cp's median", ratio, contestant.max_ratio),
            ("s (median)", seconds, contestant.max_seconds),
            ("MB of peak memory", peak, contestant.max_peak_mb),
            ("MB written", written, contestant.max_written_mb),
        ]:
            if limit is not None and value > limit:
                missed.append(f"{contestant.name}: {value:.2f} {what}, at most {limit:g} allowed")
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]))
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("model", type=Path, help="a checkpoint folder")
    parser.add_argument("--target", default="ort")
    parser.add_argument("--precision", choices=["fp16", "bf16"], help="compile to half precision")
    parser.add_argument("--runs", type=int, default=7, help="counted rounds")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    parser.add_argument("--scratch", type=Path, default=ROOT / ".bench", help="outputs go below it; the disk matters")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs must be at least 1")

    args.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="compile-") as scratch:
        field = contestants(args, Path(scratch))
        results: Dict[str, List[Run]] = {contestant.name: [] for contestant in field}
        for round_ in range(args.runs + 1):
            for contestant in field:
                measured = run(contestant)
                shutil.rmtree(contestant.folder)  # Models of many gigabytes do not lie there side by side.
                if round_ > 0:
                    results[contestant.name].append(measured)
        print(f"{args.model}, target {args.target}, {args.precision or 'its own precision'}, {args.runs} runs each, interleaved")
        missed = report(field, results)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
