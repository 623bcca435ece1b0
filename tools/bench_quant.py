#!/usr/bin/env python3
"""INT8 of planish next to its peers: accuracy on two domains of texts, latency, and the cost of calibration.

    tools/bench_quant.py PLANISH MODEL [--settings FILE] [--artifact NAME=DIR]... [--document FILE.md]

MODEL is a checkpoint of an encoder. The file of settings has the arguments of `planish compile` for each contestant, see
quantization/settings.txt. An artifact is one that planish compiled before. The peers are ONNX Runtime's quantization
tools and OpenVINO with NNCF, on Optimum's export; --optimum names the Python that has Optimum. A model without a
tokenizer.json is measured for speed only, on random ids.

With --document the tables of the page are written between its marks, and a picture and the figures as JSON beside it.
The JSON file has the quartiles of each ratio, which tell the noise. Time and peak memory of calibration are
what the kernel reports for the process (wait4), so a reading under some 25 MB is the Python that started it.
Runs in the environment of tools/quantization/requirements.txt; the process itself uses the standard library only.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple

from quantization import report, texts

PARTS = Path(__file__).resolve().parent / "quantization"
REFERENCE = "Optimum float32"
BASE = "ONNX Runtime dynamic"
# After the name of a contestant whose idle threads spin, as they do by default in both runtimes.
SPIN = ", threads spin"
LENGTH = 128  # the most tokens of a text where accuracy is measured
CALIBRATION_LENGTH = 64  # the tokens of a sample where calibration is measured
SHAPES = [[1, 128], [8, 128], [1, 512]]


class Cost(NamedTuple):
    """What a process took."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def run(command: List[str]) -> Cost:
    """Runs a command to its end, in a folder that takes what the command leaves behind; its output appears only where
    it fails."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in(folder, command)


def run_in(folder: str, command: List[str]) -> Cost:
    start = time.perf_counter()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, cwd=folder, **pipes)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{shlex.join(command)}\nexited with {process.returncode}:\n{output.decode(errors='replace').strip()}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read_settings(file: Path) -> Dict[str, str]:
    """The arguments of each setting by its name."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    settings = {}
    for line in (line for line in lines if line and not line.startswith("#")):
        name, found, arguments = line.partition("=")
        if not found or name in settings:
            sys.exit(f"{file}: `{line}`: expected NAME=ARGUMENTS with another name on each line")
        settings[name] = arguments
    return settings


class Bench:
    """The files of one bench."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.scratch = args.scratch / args.model.name
        tokenizer = args.model / "tokenizer.json"
        self.tokenizer = str(tokenizer) if tokenizer.is_file() else None
        self.texts = self.scratch / "texts"
        self.contestants: Dict[str, Dict[str, object]] = {}

    def add(self, name: str, file: Path, **settings: str) -> None:
        if name in self.contestants:
            sys.exit(f"there are two contestants `{name}`")
        self.contestants[name] = {"file": str(file), "settings": settings}

    def data(self, name: str) -> Path:
        return self.texts / f"{name}.jsonl"

    def peer(self, kind: str, target: Path, calibration: str = "", length: int = LENGTH) -> Cost:
        note(f"{kind}: {target.name}")
        more = [self.tokenizer or "-", str(self.data(calibration)), str(length)] if calibration else []
        source = str(self.scratch / "optimum" / "model.onnx")
        return run([sys.executable, str(PARTS / "peers.py"), kind, source, str(target), *more])

    def planish(self, *words: str) -> Cost:
        command = [str(self.args.planish), *words]
        note(shlex.join(command))
        return run(command)

    def make_peers(self) -> None:
        """Peers, calibrated on the texts for accuracy; for entropy all samples must have one length."""
        optimum = self.scratch / "optimum"
        if not (optimum / "model.onnx").is_file():
            note("Optimum's export")
            run([str(self.args.optimum), str(PARTS / "export_optimum.py"), str(self.args.model), str(optimum)])
        self.add(REFERENCE, optimum / "model.onnx")
        made = {
            BASE: ("dynamic", "dynamic.onnx", ""),
            "ONNX Runtime static, minmax": ("static-minmax", "static-minmax.onnx", "calibration"),
            "ONNX Runtime static, minmax, MatMul only": ("static-matmul", "static-matmul.onnx", "calibration"),
            "NNCF on OpenVINO": ("nncf", "nncf.xml", "calibration"),
        }
        for name, (kind, file, calibration) in made.items():
            if not (self.scratch / file).is_file():
                self.peer(kind, self.scratch / file, calibration)
            self.add(name, self.scratch / file)
        self.add(BASE + SPIN, self.scratch / made[BASE][1], spin=True)
        self.add("NNCF on OpenVINO, the rest in float32", self.scratch / "nncf.xml", precision="f32")

    def make_ours(self) -> None:
        """Artifacts of planish: float32, the settings, and those that are there already."""
        calibration = self.data("calibration")
        if not self.tokenizer:
            calibration = self.scratch / "calibration.npz"
            run([sys.executable, str(PARTS / "random_ids.py"), str(self.scratch / "optimum" / "model.onnx"), str(calibration)])
        for number, (name, arguments) in enumerate(read_settings(self.args.settings).items()):
            folder = self.scratch / f"planish-{number}"
            words = shlex.split(arguments.replace("{calibration}", str(calibration)))
            self.planish("compile", str(self.args.model), "-o", str(folder), "--target", "ort", *words)
            self.add(f"planish {name}", folder / "model.onnx")
            if name == "static, default":
                self.add(f"planish {name}{SPIN}", folder / "model.onnx", spin=True)
        for artifact in self.args.artifact:
            name, found, folder = artifact.partition("=")
            if not found or not (Path(folder) / "model.onnx").is_file():
                sys.exit(f"--artifact {artifact}: expected NAME=DIR with a model.onnx in it")
            self.add(name, Path(folder) / "model.onnx")

    def add_entropy(self) -> None:
        """The contestant that measuring calibration leaves."""
        self.add("ONNX Runtime static, entropy", self.scratch / "entropy.onnx")

    def measure_calibration(self) -> Dict[str, Cost]:
        """Time and memory of calibrating on 100 samples of one length."""
        data, costs = "calibration-64", {}
        kinds = {
            "ONNX Runtime static, minmax": ("static-minmax", "cost.onnx"),
            "ONNX Runtime static, entropy": ("static-entropy", "entropy.onnx"),
            "NNCF": ("nncf", "cost.xml"),
        }
        for name, (kind, file) in kinds.items():
            costs[name] = self.peer(kind, self.scratch / file, data, CALIBRATION_LENGTH)
        self.add_entropy()
        words = ["--data", str(self.data(data)), "--max-length", str(CALIBRATION_LENGTH)]
        table = str(self.scratch / "table.json")
        costs["planish calibrate"] = self.planish("calibrate", str(self.args.model), *words, "-o", table)
        return costs

    def measure(self) -> Dict[str, object]:
        job = {
            "contestants": self.contestants,
            "reference": REFERENCE,
            "base": BASE,
            "tokenizer": self.tokenizer,
            "texts": {domain: str(self.data(domain)) for domain in report.DOMAINS},
            "length": LENGTH,
            "shapes": SHAPES,
            "rounds": self.args.rounds,
            "threads": self.args.threads,
            "realtime": self.args.realtime,
        }
        path = self.scratch / "job.json"
        path.write_text(json.dumps(job, indent=2))
        figures = {}
        for what in ("accuracy", "latency"):
            command = [sys.executable, str(PARTS / "measure.py"), what, str(path)]
            figures |= json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("model", type=Path, help="a checkpoint folder")
    parser.add_argument("--settings", type=Path, default=PARTS / "settings.txt", metavar="FILE", help="of `planish compile`")
    parser.add_argument("--artifact", action="append", default=[], metavar="NAME=DIR", help="an artifact of planish")
    parser.add_argument("--optimum", type=Path, default=Path(".deps/compat-optimum/bin/python"), help="Python with Optimum")
    parser.add_argument("--rounds", type=int, default=31, help="rounds of latency")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--skip-calibration", action="store_true", help="keep the figures of calibration of the page")
    parser.add_argument("--realtime", action="store_true", help="measure at real-time priority: nothing else gets to run")
    parser.add_argument("--scratch", type=Path, default=Path(".bench/quant"), help="where models of peers are kept")
    parser.add_argument("--document", type=Path, metavar="FILE.md", help="the page to write the tables into")
    args = parser.parse_args()
    # The environment of a Python is found by the path that it is called by, which may be a link.
    args.planish, args.model, args.scratch = args.planish.resolve(), args.model.resolve(), args.scratch.resolve()
    args.optimum = Path(os.path.abspath(args.optimum))
    if not args.optimum.is_file():
        sys.exit(f"{args.optimum} is missing: make {args.optimum.parent.parent}/.installed installs Optimum")

    bench = Bench(args)
    bench.scratch.mkdir(parents=True, exist_ok=True)
    made = texts.write(bench.texts)
    bench.make_peers()
    costs = {}
    if bench.tokenizer and args.skip_calibration:
        bench.add_entropy()
        costs = report.kept(args.document, args.model.name)["calibration"] if args.document else {}
    elif bench.tokenizer:
        costs = {name: cost._asdict() for name, cost in bench.measure_calibration().items()}
    bench.make_ours()
    figures = bench.measure()
    figures["model"], figures["texts"], figures["rounds"] = args.model.name, made, args.rounds
    figures["threads"], figures["calibration"] = args.threads, costs
    print(report.tables(figures))
    if args.document:
        report.write(args.document, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
