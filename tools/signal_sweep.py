#!/usr/bin/env python3
"""Interrupts `planish compile` at moments spread over its whole run and looks at what it leaves.

    tools/signal_sweep.py PLANISH MODEL [--runs 500] [--seed 1]

Each run has one of: a place with or without an older artifact; a folder of its own, which is exchanged, or the current
folder, whose entries are replaced; SIGINT, SIGTERM or SIGHUP; a moment from the start to after the end, or towards the
end, or shortly after the new planish.json was written, which is when the artifact takes its place. Afterwards the place
must have what it had (exit code 128 + signal) or the whole new artifact (exit code 0), and nothing may be left beside
it. Anything else is counted, printed and makes the exit code 1. Needs Python 3.9, nothing else.
"""

import argparse
import collections
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Optional

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def digests(folder: Path) -> Optional[Dict[str, str]]:
    """The digest of each entry of a folder; None where there is no folder."""
    if not folder.is_dir():
        return None

    def digest(path: Path) -> str:
        if not path.is_file():
            return "a folder"
        with path.open("rb") as file:
            blake = hashlib.blake2b()
            while block := file.read(1 << 20):
                blake.update(block)
        return blake.hexdigest()

    return {path.name: digest(path) for path in folder.iterdir()}


def is_written(drafts: Path) -> bool:
    """Whether a draft in a folder has its manifest."""
    try:
        names = os.listdir(drafts)
    except FileNotFoundError:
        return False
    return any(".planish-" in name and (drafts / name / "planish.json").exists() for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to write [default: the system's temporary folder]")
    arguments = parser.parse_args()
    planish, model = arguments.planish.resolve(), arguments.model.resolve()
    choose = random.Random(arguments.seed)

    with tempfile.TemporaryDirectory(prefix="signal-sweep-", dir=arguments.folder) as scratch:
        root = Path(scratch)

        def command(output: str, opset: int):
            return [str(planish), "compile", str(model), "-o", output, "--opset", str(opset)]

        took = []
        for name, opset in [("old", 20), ("new", 21), ("new", 21)]:
            start = time.monotonic()
            # As deep as the places are: planish.json has the path from there to the model.
            subprocess.run(command(str(root / name / "out"), opset), check=True, stdout=subprocess.DEVNULL)
            took.append(time.monotonic() - start)
        old, new = digests(root / "old" / "out"), digests(root / "new" / "out")
        assert old != new, "the two opsets give the same artifact"
        print(f"a run takes {min(took):.3f} s; {sum(f.stat().st_size for f in (root / 'new' / 'out').iterdir()) / 1e6:.1f} MB")

        counts: Dict[str, int] = collections.Counter()
        for run in range(arguments.runs):
            in_place, current = run % 2 == 0, run // 2 % 2 == 0
            number = SIGNALS[run // 4 % len(SIGNALS)]
            place = root / "place"
            target = place / "out"
            place.mkdir()
            if in_place:
                # Links: what stands there is replaced, not changed.
                shutil.copytree(root / "old" / "out", target, copy_function=os.link)
            elif current:
                target.mkdir()
            before = old if in_place else ({} if current else None)
            output, cwd, drafts = (".", target, target) if current else ("out", place, place)
            process = subprocess.Popen(
                command(output, 21), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, restore_signals=True
            )
            start, usual = time.monotonic(), statistics.median(took[-9:])
            moment = choose.choice(["any", "any", "end", "written"])
            if moment == "any":
                time.sleep(choose.uniform(0, 1.1 * usual))
            elif moment == "end":
                time.sleep(choose.uniform(0.8 * usual, 1.05 * usual))
            else:
                while not is_written(drafts) and process.poll() is None:
                    pass
                time.sleep(choose.choice([0, choose.uniform(0, 0.002), choose.uniform(0, 0.05)]))
            process.send_signal(number)
            code = process.wait()
            if code == 0:
                took.append(time.monotonic() - start)
            after, beside = digests(target), sorted(path.name for path in place.iterdir())
            state = {True: "new", False: "half"}[after == new] if after != before else "old"
            expected = {0: "new", 128 + number: "old", -number: "old"}.get(code)
            what = f"{state}, exit code {code}" if code >= 0 else f"{state}, before signals were handled"
            counts[what] += 1
            if state != expected or beside not in ([], ["out"]):
                counts["WRONG"] += 1
                print(f"run {run}: {what} after {number.name}, in place: {in_place}, current: {current}: {after}, {beside}")
            shutil.rmtree(place)
            if run % 50 == 49:
                print(f"{run + 1} runs, {counts['WRONG']} wrong", file=sys.stderr, flush=True)
        halves = sum(count for what, count in counts.items() if what.startswith("half"))
        print(json.dumps(dict(sorted(counts.items())), indent=2))
        print(f"{arguments.runs} runs, {halves} halves, {counts['WRONG']} wrong")
        return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
