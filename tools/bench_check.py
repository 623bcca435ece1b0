#!/usr/bin/env python3
"""Holds the times of planish bench against those of Python's onnxruntime on the same file, in the same rounds.

    tools/bench_check.py planish model.onnx --library .deps/onnxruntime 1x128 8x128 [--rounds 40] [--limit 0.03]

A worker of `planish bench --set isolate` and a session of the Python package take turns, in another order each round, with inputs
that are bound before. A visit is one run that is not timed and at least three runs or 100 ms that are. Exits with 1 if the
medians of a shape differ by more than --limit. Needs the Python packages onnxruntime, numpy and safetensors.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnxruntime
from bench_latency import make_inputs, open_session
from safetensors.numpy import save_file

VISIT_SECONDS = 0.1
VISIT_RUNS = 3


class Worker:
    """The process of planish that loads the file and is asked for one run at a time."""

    def __init__(self, planish, model, library, threads):
        command = [planish, "bench-worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        start = {"what": {"File": {"format": "ONNX", "file": str(model)}}, "runtime": "ort", "threads": threads, "sleeping": True}
        start.update(unfused_codes=False, cuda_graph=True, kernel_specialization="eager", weight_streaming_budget="-2")
        start.update(ort_library=str(library) if library else None, trt_library=None)
        start.update(openvino_library=None, openvino_precision=None)
        self.ask(start)

    def ask(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the worker has ended; what it said is above")
        answer = json.loads(line)
        if "Failed" in answer:
            sys.exit(f"planish: {answer['Failed']}")
        return answer

    def bind(self, inputs):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "inputs.safetensors"
            save_file(inputs, path)
            self.ask({"Bind": str(path)})

    def run(self):
        host = self.ask({"Time": {"transfers": False}})["Time"]["host"]
        return host["secs"] + host["nanos"] / 1e9


class Python:
    """The same by the Python package."""

    def __init__(self, model, threads):
        self.session = open_session(model, threads)

    def bind(self, inputs):
        self.binding = self.session.io_binding()
        for name, array in inputs.items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")

    def run(self):
        start = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        return time.perf_counter() - start


def visit(runner):
    """The times of a visit in seconds."""
    runner.run()
    times = []
    while len(times) < VISIT_RUNS or sum(times) < VISIT_SECONDS:
        times.append(runner.run())
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish")
    parser.add_argument("model")
    parser.add_argument("shapes", nargs="+", metavar="BATCHxSEQUENCE")
    parser.add_argument("--library", help="the folder of the shared library that planish loads")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--limit", type=float, default=0.03)
    args = parser.parse_args()

    runners = {
        "planish": Worker(args.planish, args.model, args.library, args.threads),
        "python": Python(args.model, args.threads),
    }
    print(f"onnxruntime {onnxruntime.__version__}, {args.rounds} rounds, medians")
    print("| shape | planish ms | Python ms | planish / Python |\n|---|---|---|---|")
    beyond = []
    for shape in args.shapes:
        batch, sequence = map(int, shape.split("x"))
        inputs = make_inputs(runners["python"].session, batch, sequence)
        for runner in runners.values():
            runner.bind({name: numpy.ascontiguousarray(array) for name, array in inputs.items()})
            for _ in range(3):
                runner.run()
        times = {name: [] for name in runners}
        for _ in range(args.rounds):
            for name in random.sample(list(runners), len(runners)):
                times[name].extend(visit(runners[name]))
        ours, theirs = (statistics.median(times[name]) * 1e3 for name in ("planish", "python"))
        print(f"| {shape} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.4f} |", flush=True)
        if abs(ours / theirs - 1) > args.limit:
            beyond.append(shape)
    if beyond:
        sys.exit(f"the medians differ by more than {args.limit:.0%}: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
