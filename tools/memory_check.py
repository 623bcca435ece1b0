#!/usr/bin/env python3
"""Holds the memory figures of planish against what the operating system counts for `planish run`.

For each artifact and batch size: the most resident memory of `planish run` (wait4), that of `planish bench --set isolate`, and the
estimate of `planish inspect --estimate memory=SIZE`. The exit code is 1 where one of them differs by more than 10 %.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 0.10


def inputs(path, rows, tokens):
    """A safetensors file with input_ids; planish fills in the other inputs."""
    data = struct.pack("<q", 1) * (rows * tokens)
    header = json.dumps({"input_ids": {"dtype": "I64", "shape": [rows, tokens], "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def resident(command):
    """The most resident memory of a command, in bytes."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    return usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("artifacts", nargs="+", metavar="ARTIFACT=ROWS,..", help="artifacts of one part with input_ids")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--library", help="the folder of ONNX Runtime")
    arguments = parser.parse_args()
    library = ["--runtime-option", f"ort-lib={arguments.library}"] if arguments.library else []
    wrong = 0
    print("| artifact | rows | planish run, MB | bench, ratio | bench repeated, ratio | inspect, ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for named in arguments.artifacts:
            artifact, rows = named.rsplit("=", 1)
            document = Path(folder) / "bench.json"
            bench = [arguments.planish, "bench", artifact, "--batch", rows, "--seq", str(arguments.tokens)]
            bench += ["--set", "isolate,time=0,iterations=1,warmup=0,peaks=false", "--json", str(document), *library]
            subprocess.run(bench, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cells = json.loads(document.read_text())["cells"]
            for batch in map(int, rows.split(",")):
                file = Path(folder) / "inputs.safetensors"
                inputs(file, batch, arguments.tokens)
                system = resident([arguments.planish, "run", artifact, "--inputs", str(file), *library])
                fits = lambda cell: cell["shape"]["batch"] == batch and cell["shape"]["past"] == 0
                memory = next(cell["memory"] for cell in cells if fits(cell))
                sizes = ["--batch", str(batch), "--seq", str(arguments.tokens)]
                cost = [arguments.planish, "inspect", artifact, "--estimate", "memory=64G", "--json", *sizes, *library]
                largest = json.loads(subprocess.check_output(cost))["largest"]
                if "process" not in largest:
                    raise SystemExit(f"{artifact}: {largest['unmeasured']}")
                ratios = [memory["peak_rss"] / system, memory["repeated_rss"] / system, largest["asked"]["total"] / system]
                wrong += sum(abs(ratio - 1) > MOST for ratio in (ratios[0], ratios[2]))
                each = " | ".join(f"{ratio:.3f}" for ratio in ratios)
                print(f"| {Path(artifact).name} | {batch} | {system / 1e6:.1f} | {each} |", flush=True)
    if wrong:
        print(f"{wrong} figures differ by more than {MOST:.0%}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
