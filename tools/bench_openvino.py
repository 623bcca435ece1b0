#!/usr/bin/env python3
"""Forms of an encoder on OpenVINO next to NNCF's and to ONNX Runtime: accuracy and latency, in one process, interleaved.

    tools/bench_openvino.py PLANISH MODEL [--rounds 40] [--threads 2] [--cpu-time] [--only NAME]... [--nodes]

MODEL is a checkpoint with a tokenizer.json. Each form of FORMS is compiled with the calibration texts of bench_quant.py, and
NNCF quantizes the float32 graph with the same texts. The contestants are measured by quantization/measure.py: the cosine
of each text's embedding to that of float32, and the median of the ratios to NNCF's time in the same round. --nodes prints what
each compiled graph computes its products in. Runs in .deps/compat-openvino.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ["CI"] = "true"  # keeps the telemetry of OpenVINO and NNCF off

from quantization import texts

PARTS = Path(__file__).resolve().parent / "quantization"
REFERENCE, BASE = "float32", "NNCF"
SHAPES = [[1, 128], [8, 128], [1, 512]]
LENGTH = 128  # the most tokens of a text where accuracy is measured
F32, BF16 = {"openvino": True, "precision": "f32"}, {"openvino": True, "precision": "bf16"}
INT8 = ["--int8", "--calibrate", "{calibration}"]
# By name: the arguments of `planish compile`, and how the session is made.
FORMS = {
    REFERENCE: (["--target", "openvino"], F32),
    "bfloat16": (["--target", "openvino", "--bf16"], BF16),
    "INT8": (["--target", "openvino", *INT8], F32),
    "INT8, nothing split": (["--target", "openvino", *INT8, "--recipe", "split-columns=0"], F32),
    "INT8, neither split nor smoothed": (
        ["--target", "openvino", *INT8, "--recipe", "split-columns=0", "--recipe", "smooth=off"], F32,
    ),
    "INT8 and bfloat16": (["--target", "openvino", *INT8], BF16),
    "INT8 of target onnx": (["--target", "onnx", *INT8], F32),
    "ONNX Runtime, INT8 of target ort": (["--target", "ort", *INT8], {}),
}  # fmt: skip


def compiled(args, name, more, work):
    """The graph of a form."""
    folder = work / name.replace(" ", "-")
    filled = [text.format(calibration=work / "texts" / "calibration.jsonl") for text in more]
    subprocess.run([args.planish, "compile", args.model, "-o", folder, *filled], check=True, stdout=subprocess.DEVNULL)
    return folder / "model.onnx"


def measured(what, job, work):
    """What measure.py says of the contestants."""
    path = work / "job.json"
    path.write_text(json.dumps(job))
    command = [sys.executable, PARTS / "measure.py", what, path]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def print_nodes(name, path, settings):
    """What the products of a compiled graph are computed in, with how many of each."""
    import openvino

    hint = {"INFERENCE_PRECISION_HINT": settings["precision"]}
    graph = openvino.Core().compile_model(str(path), "CPU", hint).get_runtime_model()
    value = lambda node, key: str(getattr(node.get_rt_info()[key], "value", node.get_rt_info()[key]))
    products = [n for n in graph.get_ops() if value(n, "layerType") in ("FullyConnected", "MatMul", "Subgraph")]
    count = Counter(f"{value(n, 'layerType')} {value(n, 'primitiveType')}" for n in products)
    print(f"{name}: {', '.join(f'{kind} {number}' for kind, number in sorted(count.items()))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", choices=[*FORMS, BASE], help="this contestant, beside float32 and NNCF")
    parser.add_argument("--cpu-time", action="store_true", help="time of the processor, for a machine that is shared")
    parser.add_argument("--nodes", action="store_true", help="print what products are computed in")
    args = parser.parse_args()
    wanted = {REFERENCE, BASE, *args.only} if args.only else {*FORMS, BASE}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        texts.write(work / "texts")
        tokenizer = str(args.model / "tokenizer.json")
        contestants = {}
        for name, (more, settings) in FORMS.items():
            if name in wanted:
                contestants[name] = {"file": str(compiled(args, name, more, work)), "settings": settings}
        nncf = work / "nncf.xml"
        calibration = work / "texts" / "calibration.jsonl"
        peer = [PARTS / "peers.py", "nncf", contestants[REFERENCE]["file"], nncf, tokenizer, calibration, str(LENGTH)]
        subprocess.run([sys.executable, *peer], check=True, stdout=subprocess.DEVNULL)
        contestants[BASE] = {"file": str(nncf), "settings": {"precision": "f32"}}
        if args.nodes:
            for name, of in contestants.items():
                if of["settings"]:
                    print_nodes(name, of["file"], of["settings"])
        domains = {name: str(work / "texts" / f"{name}.jsonl") for name in ("licenses", "docstrings")}
        job = {"contestants": contestants, "reference": REFERENCE, "base": BASE, "tokenizer": tokenizer, "texts": domains}
        job |= {"length": LENGTH, "shapes": SHAPES, "rounds": args.rounds, "threads": args.threads, "realtime": False}
        job["cpu_time"] = args.cpu_time
        accuracy, speed = measured("accuracy", job, work)["accuracy"], measured("latency", job, work)
    print(f"{speed['processor']}, {args.threads} threads, load {speed['load']}, {speed['versions']}")
    shapes = [f"{batch} x {sequence}" for batch, sequence in SHAPES]
    print("| form |", " | ".join(shapes), "| licenses | docstrings |")
    print("|---|" + "---|" * (len(shapes) + 2))
    for name in contestants:
        cells = [f"{speed['latency'][name][s]['ms']:.1f} ms, {speed['latency'][name][s]['ratio']:.2f}" for s in shapes]
        cosines = [f"{accuracy[name][domain]['mean']:.4f} / {accuracy[name][domain]['least']:.4f}" for domain in domains]
        print(f"| {name} |", " | ".join([*cells, *cosines]), "|")


if __name__ == "__main__":
    sys.exit(main())
