#!/usr/bin/env python3
"""Runs contestants of one bench in one process: measure.py accuracy|latency JOB.json prints a JSON document.

The job has `contestants` (name -> {`file`, `settings` of the session}), `reference` and `base` (names), `tokenizer` (a tokenizer.json, or null), `texts`
(domain -> .jsonl), `length` (the most tokens of a text), `shapes` ([batch, sequence]), `rounds` and `threads`.

Accuracy: each text alone, so nothing is padded. Its embedding is the mean of `last_hidden_state` over the tokens, scaled
to length 1. Speed: after a run that does not count, all contestants run once in each round, in another order each round.
With `cpu_time` in the job, times are those of the processor for all threads of the process, which other programs change less.
Meanwhile the process has a high priority, so that other programs on the machine disturb it less: with `realtime` in the
job the real-time one, which leaves other programs almost no time, else a low nice value where the system allows it.
"""

import json
import os
import platform
import random
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

os.environ["CI"] = "true"  # keeps the telemetry of OpenVINO off

import numpy  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from quantization import inputs, metrics, sessions  # noqa: E402

PACKAGES = ["onnxruntime", "openvino", "nncf", "numpy", "onnx", "tokenizers"]


def embeddings(session, job, domain):
    """[texts, features], each row of length 1."""
    rows = []
    for sample in inputs.samples(job["tokenizer"], Path(job["texts"][domain]), job["length"], session.names):
        row = session.run(sample)[0].astype(numpy.float64).mean(axis=0)
        rows.append(row / numpy.linalg.norm(row))
    return numpy.stack(rows)


def accuracy(job, loaded):
    if job["tokenizer"] is None:
        return {}
    result = {}
    for domain in job["texts"]:
        wanted = embeddings(loaded[job["reference"]], job, domain)
        for name, session in loaded.items():
            figures = metrics.embeddings(wanted, embeddings(session, job, domain))
            result.setdefault(name, {})[domain] = figures
            print(f"{domain}: {name}: {figures}", file=sys.stderr, flush=True)
    return result


def prefer(realtime):
    """Takes a high priority, for threads that start later too; returns its name."""
    if realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return "real-time priority"
    try:
        return f"nice value {os.nice(-20)}"
    except PermissionError:
        return f"nice value {os.nice(0)}"


def latency(job, loaded):
    """By name and shape: the median of milliseconds, and of the time of `base` over the own time in the same round."""
    result = {name: {} for name in loaded}
    clock = time.process_time if job.get("cpu_time") else time.perf_counter
    order, shuffle = list(loaded), random.Random(0)
    for batch, sequence in job["shapes"]:
        fed = {name: inputs.random(batch, sequence, session.names) for name, session in loaded.items()}
        for name, session in loaded.items():
            session.run(fed[name])
        rounds = []
        for _ in range(job["rounds"]):
            shuffle.shuffle(order)
            seconds = {}
            for name in order:
                start = clock()
                loaded[name].run(fed[name])
                seconds[name] = clock() - start
            rounds.append(seconds)
        for name in loaded:
            ratios = [row[job["base"]] / row[name] for row in rounds]
            quarters = statistics.quantiles(ratios, n=4)
            result[name][f"{batch} x {sequence}"] = {
                "ms": statistics.median(row[name] for row in rounds) * 1e3,
                "ratio": statistics.median(ratios),
                "quartiles": [quarters[0], quarters[2]],
            }
            print(f"{batch} x {sequence}: {name}: {result[name][f'{batch} x {sequence}']}", file=sys.stderr, flush=True)
    return result


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    known = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if flag in flags]
    return {"name": names[0] if names else platform.processor(), "cores": len(names), "instructions": known}


def load(job):
    return {
        name: sessions.load(Path(of["file"]), job["threads"], **of.get("settings", {}))
        for name, of in job["contestants"].items()
    }


def main():
    what, job = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    if what == "accuracy":
        return json.dump({"accuracy": accuracy(job, load(job))}, sys.stdout)
    # Before the first thread of a runtime starts: threads have the priority of the one that starts them.
    busy, priority = os.getloadavg(), prefer(job["realtime"])
    loaded = load(job)
    document = {
        "processor": processor(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "load": list(busy),
        "priority": priority,
        "precision": {name: session.precision for name, session in loaded.items()},
        "latency": latency(job, loaded),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
