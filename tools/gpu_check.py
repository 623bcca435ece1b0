#!/usr/bin/env python3
"""Checks planish on a machine with an NVIDIA GPU, and measures its native CUDA runtime next to PyTorch and ONNX Runtime.

    tools/gpu_check.py PLANISH --out DIR [--only PART,...] [--minutes 9.5]    checks and measures
    tools/gpu_check.py --render FILE.json... [--document docs/gpu.md]         writes the tables of a check
    tools/gpu_check.py PLANISH --predict h100 --document docs/gpu.md          writes what a GPU should take for runs
    tools/gpu_check.py PLANISH --bundle DIR [--architecture sm_90]            collects what the check needs elsewhere

The machine needs NVIDIA's driver, NVRTC and cublasLt of CUDA 13, Python 3.9 or newer, and for comparisons PyTorch.
Nothing is fetched. Models with random weights are written to a scratch folder.

DIR gets gpu.html (what to mend, and all tables), log.txt (every command with what it printed) and check.json (every figure), each
written anew as a part ends. A part that fails does not stop the
others; the exit code is 1 then, and 4 without a GPU. Parts share the time of --minutes; what time does not allow is listed as not run. Parts
that ran in several calls go into one document: --render takes several files, and a later one replaces the parts of an
earlier one.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple

from gpu import bundle, correctness, page, peers, predictions, replay, report, sanitizer, speed, sweeps, targets, times, workloads
from gpu.work import Failed, Missing, OutOfTime, Part, Work

SCHEMA = 1


class Step(NamedTuple):
    """A part of the check."""

    run: Callable[[Work, Part], None]
    # The share of the time that it gets, relative to the parts that are still to run.
    share: float


# In the order in which they run: first whether results are right, then how fast they come. The shares are seconds of ten minutes.
PARTS: Dict[str, Step] = {
    "environment": Step(correctness.environment, 20),
    "kernels": Step(correctness.kernels, 40),
    "goldens": Step(correctness.goldens, 45),
    "replay": Step(replay.replay, 15),
    "models": Step(speed.models, 15),
    "times": Step(times.times, 30),
    "sanitizer": Step(sanitizer.sanitize, 90),
    "bench": Step(workloads.bench_models, 90),
    "decode": Step(workloads.decode, 40),
    "padding": Step(workloads.padding, 20),
    "peaks": Step(peers.peaks, 10),
    "torch": Step(peers.torch, 50),
    "onnxruntime": Step(peers.onnx_runtime, 5),
    "generate": Step(workloads.generate, 30),
    "limits": Step(sweeps.limits, 35),
    "head": Step(sweeps.head, 10),
    "attention": Step(sweeps.attention, 15),
    "ort-cuda": Step(targets.ort_cuda, 10),
    "trt": Step(targets.trt, 10),
}


def parse(argv: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path, nargs="?", help="the binary")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where log.txt and check.json go")
    parser.add_argument("--only", metavar="PART,...", help=f"the parts to run: {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, default=9.5, help="the time for all parts [default: 9.5]")
    parser.add_argument("--fixtures", type=Path, default=Path(__file__).resolve().parent.parent / "fixtures", metavar="DIR")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where models go [default: a temporary folder]")
    parser.add_argument("--render", type=Path, nargs="+", metavar="FILE.json", help="write the tables of checks that ran")
    parser.add_argument("--document", type=Path, metavar="FILE.md", help="the page whose tables are written")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="collect what a check on another machine needs")
    parser.add_argument("--predict", default="", metavar="GPU", help="write what a GPU should take for runs of models, into --document")
    parser.add_argument("--architecture", default="", metavar="SM", help="compile the kernels of a bundle ahead, e.g. for sm_90")
    # Tries the script itself on a machine without a GPU, on small models.
    parser.add_argument("--small", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--runtime", default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--baseline", default="", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.only is not None:
        args.only = [name for name in args.only.split(",") if name]
        unknown = [name for name in args.only if name not in PARTS]
        if unknown or not args.only:
            parser.error(f"--only {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    if args.predict and not args.document:
        parser.error("--predict needs --document FILE.md")
    if not args.render and (args.planish is None or not (args.out or args.bundle or args.predict)):
        parser.error("name the binary and --out DIR, or --render FILE.json")
    if not args.baseline:
        args.baseline = "cuda-baseline" if args.runtime == "cuda" else args.runtime
    return args


def check(args: argparse.Namespace, scratch: Path) -> Dict:
    """Runs the parts; returns the document, which is written after each part too."""
    work = Work(
        args.planish.resolve(), args.fixtures.resolve(), args.out, scratch, args.device, args.runtime, args.baseline, args.small
    )
    # The environment of a Python is found by the path that it is called by, which may be a link.
    work.python = os.path.abspath(args.python) if os.sep in args.python else args.python
    correctness.add_libraries(work)
    # The user's cache is not for a check. A bundle brings kernels that were compiled ahead.
    cache = scratch / "cache"
    if bundle.CACHE.is_file() and not cache.exists():
        shutil.unpack_archive(bundle.CACHE, cache)
    work.environment["XDG_CACHE_HOME"] = str(cache)
    work.environment.update(TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), TRITON_CACHE_DIR=str(scratch / "triton"))
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    document = {"schema": SCHEMA, "started": started, "trial": args.small or args.device != "cuda", "parts": {}}
    document["runtimes"] = {"fused": work.fused, "baseline": work.baseline}
    chosen = [name for name in PARTS if args.only is None or name in args.only or name == "environment"]
    end = time.monotonic() + args.minutes * 60
    for place, name in enumerate(chosen):
        shares = [PARTS[other].share for other in chosen[place:]]
        now = time.monotonic()
        part = Part(now + max(0.0, end - now) * shares[0] / sum(shares))
        work.log.note(f"{name}: begins, with at most {part.left():.0f} s")
        try:
            PARTS[name].run(work, part)
        except OutOfTime as problem:
            part.skip(str(problem))
        except Missing as problem:
            # What planish measured before it stays.
            part.absent = not part.data.get("cells")
            part.notes.append(str(problem))
        except Failed as problem:
            part.problems.append(str(problem))
        # A mistake in a part, or an answer that it did not expect, must not end the others.
        except Exception as error:
            part.problems.append(f"{type(error).__name__}: {error}")
        seconds = round(time.monotonic() - now, 1)
        verdict = part.verdict()
        found = {"problems": part.problems, "notes": part.notes, "data": part.data}
        document["parts"][name] = {"verdict": verdict, "seconds": seconds, **found}
        write(args.out / "check.json", document)
        written(args.out, document, work)
        work.log.note(f"{name}: {verdict} in {seconds} s")
        for line in part.problems:
            work.log.note(f"  problem: {line}")
        for line in part.notes:
            work.log.note(f"  note: {line}")
        if name == "environment" and work.device == "cuda" and not correctness.has_gpu(part.data, work):
            work.log.note("there is no GPU: the other parts are not run")
            break
    return document


def written(out: Path, document: Dict, work: Work) -> None:
    """Writes the page. What a table cannot show must not end the check: check.json has all figures."""
    try:
        page.write(out, document)
    except Exception as error:
        work.log.note(f"gpu.html was not written: {type(error).__name__}: {error}")


def write(path: Path, document: Dict) -> None:
    """Writes the document whole or not at all."""
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


def main(argv: List[str]) -> int:
    args = parse(argv)
    try:
        return act(args)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")


def act(args: argparse.Namespace) -> int:
    if args.render:
        documents = [json.loads(path.read_text()) for path in args.render]
        document = report.merged(documents)
        print(report.text(document))
        if args.document:
            report.write(args.document, document)
        return 0
    if args.bundle:
        print(bundle.write(args.bundle, args.planish, args.fixtures, Path(__file__).resolve().parent, args.architecture))
        return 0
    if args.predict:
        predictions.write(args.document, args.planish.resolve(), args.predict)
        return 0
    if not args.planish.is_file():
        sys.exit(f"{args.planish}: there is no such file; `make build` makes target/release/planish")
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    scratch = args.scratch.resolve() if args.scratch else Path(tempfile.mkdtemp(prefix="gpu-check-"))
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        document = check(args, scratch)
    finally:
        if not args.scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    print(report.text(document))
    if args.document:
        report.write(args.document, document)
    failed = [name for name, part in document["parts"].items() if part["problems"]]
    print(f"{args.out / 'gpu.html'} says what to mend", file=sys.stderr)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    if args.device == "cuda" and list(document["parts"]) == ["environment"] and "gpu" not in document["parts"]["environment"]["data"]:
        return 4
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
