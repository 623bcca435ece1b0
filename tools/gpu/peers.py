"""The parts that measure others: what this card does at most, PyTorch and ONNX Runtime."""

import random
from pathlib import Path
from typing import Dict, List

from . import safetensors
from .speed import Sizes, add_lines, artifact, checkpoint, config_of, options, python_job
from .work import Part, Work
from .workloads import NAMES

# How far PyTorch's results may be from planish's in half precision.
COSINE = 0.999


def peaks(work: Work, part: Part) -> None:
    """The most that this card does: matrix products and copies."""
    sizes = Sizes(work.small)
    for line in python_job(work, part, "torch_jobs", 90, kind="peaks", size=sizes.product, bytes=sizes.copy):
        if "ms" not in line:
            part.problems.append(f"{line['what']}: {line.get('failure') or line.get('skipped')}")
        elif line["what"] == "copy":
            part.data["copy"] = {**line, "gb_s": line["bytes"] / line["ms"] / 1e6}
        else:
            part.data[line["precision"]] = {**line, "tflop_s": 2 * line["size"] ** 3 / line["ms"] / 1e9}


def answered(work: Work, part: Part, name: str, precision: str, folder: Path) -> Dict:
    """Has planish compute random tokens; returns what PyTorch's module is to be held against."""
    model = checkpoint(work, name)
    vocabulary, source = config_of(model)["vocab_size"], random.Random(0)
    rows = [[source.randrange(vocabulary) for _ in range(16)] for _ in range(1 if name.startswith("llama") else 2)]
    inputs, outputs = work.scratch / f"compare-{name}.in", work.scratch / f"compare-{name}-{precision}.out"
    tensors = {"input_ids": rows}
    if name.startswith("bert"):
        tensors["token_type_ids"] = [[0] * 16 for _ in rows]
    safetensors.write_ids(inputs, tensors)
    words = ["run", folder, "--inputs", inputs, "--outputs", outputs, "--runtime", work.fused]
    work.planish_run(words, part.limit(120, f"run {name}"))
    paths = {"folder": str(model), "inputs": str(inputs), "outputs": str(outputs)}
    return {"model": name, "precision": precision, **paths}


def compared(work: Work, part: Part, cases: List[Dict]) -> List[Dict]:
    """Holds PyTorch's modules against what planish computed."""
    found = python_job(work, part, "torch_jobs", 120, kind="compare", cases=cases)
    for line in found:
        name, precision = line["model"], line["precision"]
        # A comparison that is not a number fails too.
        if line.get("failure") or not line["cosine"] >= COSINE:
            wrong = line.get("failure") or f"cosine {line['cosine']:.5f}, at least {COSINE} is needed"
            part.problems.append(f"PyTorch's {name} in {precision} ({line['how']}), {line['output']}: {wrong}")
    return found


def torch(work: Work, part: Part) -> None:
    """The models in PyTorch: whether its modules compute the same, then their times, eager and with SDPA, and compiled where
    there is time left."""
    sizes = Sizes(work.small)
    part.data.update(checks=[], cells=[])
    models = [(name, half) for name in NAMES for half in sizes.halves] + [("llama-1.1b", "bf16")]
    cases = []
    for name, precision in models:
        what = f"{name} in {precision}"
        folder = part.attempt(what, artifact, work, part, name, precision)
        case = part.attempt(what, answered, work, part, name, precision, folder) if folder else None
        cases += [case] if case else []
    part.data["checks"] += part.attempt("PyTorch", compared, work, part, cases) or []
    runs = [{"model": name, "folder": str(checkpoint(work, name)), "precision": half} for half in sizes.halves for name in NAMES]
    shapes = [shape for group in sizes.shapes for shape in group]
    step = {"model": str(checkpoint(work, "llama-1.1b")), "precision": "bf16", "past": sizes.past}

    def measured(of: str, most: float, **job) -> None:
        lines = part.attempt("PyTorch", lambda: python_job(work, part, "torch_jobs", most, **job))
        add_lines(part, [{**line, "of": of} if "who" in line else line for line in lines or []])

    measured("decode", 15.0, kind="decode", compiled=[], **step)
    measured("bench", max(30.0, part.left() - 10), kind="forward", runs=runs, shapes=shapes, compiled=[])
    # torch.compile takes up to a minute for each shape.
    if sizes.compiled and part.left() > 60:
        compiled = [mode for mode in sizes.compiled if mode == "reduce-overhead"]
        measured("decode", part.left() / 4, kind="decode", compiled=compiled, **step)
        measured("bench", part.left(), kind="forward", runs=runs, shapes=shapes, compiled=list(sizes.compiled))


def onnx_runtime(work: Work, part: Part) -> None:
    """The encoders and prompts on ONNX Runtime's CUDA provider, by its Python package."""
    sizes = Sizes(work.small)
    part.data["cells"] = []
    code = "import onnxruntime; print(*onnxruntime.get_available_providers())"
    done = work.run([work.python, "-c", code], part.limit(60, "ONNX Runtime"))
    wanted = "CUDAExecutionProvider" if work.device == "cuda" else "CPUExecutionProvider"
    if done.code != 0 or wanted not in done.output.split():
        part.absent = True
        part.notes.append(f"the Python package onnxruntime with {wanted} is not installed")
        return
    for name in NAMES:
        precision = sizes.halves[0]
        folder = work.scratch / "artifacts" / f"{name}-{precision}-ort"
        target = "ort-cuda" if work.device == "cuda" else "onnx"
        work.compile(checkpoint(work, name), folder, part.limit(120, name), *options(precision), "--target", target)
        job = {"name": name, "precision": precision, "graph": str(folder / "model.onnx"), "shapes": [s for g in sizes.shapes for s in g]}
        vocabulary = config_of(checkpoint(work, name))["vocab_size"]
        lines = part.attempt(name, lambda: python_job(work, part, "ort_job", 120, vocabulary=vocabulary, **job))
        add_lines(part, [{**line, "of": "bench"} if "who" in line else line for line in lines or []])


