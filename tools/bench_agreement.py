#!/usr/bin/env python3
"""Counts how often two consecutive runs of `planish bench` agree.

Two medians agree if they differ by less than the two printed ±CI together. The script ends with 1 if fewer than 95 % of the
pairs agree. It also counts the pairs that `planish bench diff` finds no significant change in.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("artifact")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--bench", default="", help="further options of bench, say '--seq 16 --set time=1'")
    arguments = parser.parse_args()
    total, by_diff, by_print, changes = 0, 0, 0, []
    with tempfile.TemporaryDirectory() as folder:
        before = None
        for run in range(arguments.pairs + 1):
            file = Path(folder) / f"{run}.json"
            bench = [arguments.planish, "bench", arguments.artifact, "--set", "peaks=false", "--json", str(file), *arguments.bench.split()]
            subprocess.run(bench, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if before:
                diff = subprocess.run(
                    [arguments.planish, "bench", "diff", str(before), str(file), "--json"], capture_output=True, check=False
                )
                if diff.returncode not in (0, 3):
                    raise SystemExit(diff.stderr.decode())
                cells = [json.loads(path.read_text())["cells"] for path in (before, file)]
                for cell, first, second in zip(json.loads(diff.stdout)["cells"], *cells):
                    total += 1
                    low, high = cell["ci95"]
                    by_diff += low <= 1 <= high
                    one, other = first["latency_ms"], second["latency_ms"]
                    halves = [(of["ci95"][1] - of["ci95"][0]) / 2 for of in (one, other)]
                    by_print += abs(one["p50"] - other["p50"]) < sum(halves)
                    changes.append(abs(cell["value"] - 1))
            before = file
    changes.sort()
    print(f"{total} pairs: {by_print} differ by less than the two printed intervals together,")
    print(f"{by_diff} by less than the interval of bench diff; the median change is {changes[len(changes) // 2]:.2%}")
    return 0 if by_print >= 0.95 * total else 1


if __name__ == "__main__":
    sys.exit(main())
