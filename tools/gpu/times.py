"""The part that times each kernel of a run by events, beside what the GPU should take for it."""

import json
from typing import Dict, List, Optional, Tuple

from .speed import Sizes, artifact
from .work import Part, Work

# The names that `planish inspect --gpu` knows, each in the names that the driver gives.
GPUS = ("A100", "H100", "H200")
RUNS = 20
# A model, its precision, rows, tokens of a row, and tokens in the cache.
Case = Tuple[str, str, int, int, int]
CASES: List[Case] = [
    ("bert-base", "fp16", 1, 128, 0),
    ("bert-base", "fp16", 32, 128, 0),
    ("bert-base", "fp16", 8, 512, 0),
    ("gpt2", "fp16", 1, 1, 512),
    ("llama-1.1b", "bf16", 1, 1, 2048),
]
SMALL: List[Case] = [("bert-base", "fp16", 2, 16, 0), ("llama-1.1b", "bf16", 1, 1, 8)]
# Rows that take so many times the prediction, and so much of the run, are named as what to mend.
SLOW, MATTERS = 1.5, 0.03
# Milliseconds for each launch that an event between launches may add.
BETWEEN = 0.005


def known_gpu(work: Work) -> str:
    """The GPU that predictions are for: the one here where its figures are known."""
    done = work.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 30)
    return next((name.lower() for name in GPUS if done.code == 0 and name in done.output), "h100")


def times(work: Work, part: Part) -> None:
    """Profiles runs, and joins them with the plan of their kernels."""
    gpu = known_gpu(work)
    part.data.update(gpu=gpu, cases=[])
    for case in SMALL if work.small else CASES:
        name, precision, batch, seq, past = case
        folder = part.attempt(name, artifact, work, part, name, precision)
        found = part.attempt(str(case), timed, work, part, folder, gpu, case) if folder else None
        if found:
            part.data["cases"].append(found)


def timed(work: Work, part: Part, folder, gpu: str, case: Case) -> Dict:
    name, precision, batch, seq, past = case
    sizes = ["--batch", batch, "--seq", seq, *(["--past", past] if past else []), "--json"]
    words = ["profile", folder, "--runtime", work.fused, "--runs", 4 if work.small else RUNS, *sizes]
    profile = json.loads(work.planish_run(words, part.limit(60, f"profile {name}")).output)["parts"][0]
    words = ["inspect", folder, "--show", "kernels", "--gpu", gpu, *sizes]
    plan = json.loads(work.planish_run(words, part.limit(30, f"inspect {name}")).output)["parts"][0]
    shape = {"model": name, "precision": precision, "batch": batch, "seq": seq, "past": past}
    rows = joined(profile["nodes"], plan["rows"])
    total = {"ms": profile["nodes_ms"], "run_ms": profile["latency_ms"], "predicted_ms": plan["total"]["predicted_us"] / 1e3}
    return {**shape, **total, "launches": plan["total"]["launches"], "rows": rows}


def joined(nodes: List[Dict], plan: List[Dict]) -> List[Dict]:
    """The rows of a plan with the times of their launches: launches of one node follow each other."""
    groups: List[Tuple[Optional[str], List[Dict]]] = []
    for node in nodes:
        if groups and groups[-1][0] == node["name"] and node["operator"] != "copy":
            groups[-1][1].append(node)
        else:
            groups.append((node["name"], [node]))
    rows = [{**row, "ms": 0.0, "found": 0} for row in plan]
    by_key = {(row["operator"], tuple(row["kernels"])): row for row in rows}
    for _, launches in groups:
        key = (launches[0]["operator"], tuple(launch["provider"] for launch in launches))
        row = by_key.get(key)
        if row is None:
            row = {"operator": key[0], "kernels": list(key[1]), "nodes": 0, "launches": 0, "ms": 0.0, "found": 0}
            by_key[key] = row
            rows.append(row)
        row["ms"] += sum(launch["total_ms"] for launch in launches)
        row["found"] += 1
    return sorted(rows, key=lambda row: -row["ms"])


def slow(case: Dict) -> List[Dict]:
    """The rows that take much longer than predicted, and matter."""
    whole = case["ms"] or 1.0
    allowed = lambda row: SLOW * row["predicted_us"] / 1e3 + BETWEEN * row["launches"]
    return [row for row in case["rows"] if row.get("predicted_us") and row["ms"] > allowed(row) and row["ms"] > MATTERS * whole]
