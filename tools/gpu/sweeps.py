"""The parts that measure one thing by its size: the head, attention, rows, and the limits of the forms of attention."""

import random
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from . import graphs, memory, safetensors
from .speed import Sizes, add_lines, artifact, bench, checkpoint, config_of, options, python_job
from .work import OutOfTime, Part, Work
from .workloads import step_inputs


def head(work: Work, part: Part) -> None:
    """The head over the vocabulary with and without padding: a GPT-2 of one layer, and PyTorch's product alone."""
    sizes, name = Sizes(work.small), "gpt2-head"
    batch, seq = sizes.shapes[0][0]
    model = checkpoint(work, name)
    forms = {"off": ("--recipe", "pad-vocab=off"), "sliced": ("--recipe", "pad-vocab=64"), "padded": ("--recipe", "pad-vocab=64", "--recipe", "logits=padded")}
    part.data.update(batch=batch, seq=seq, cells=[])
    for precision in sizes.halves:
        artifacts = {form: artifact(work, part, name, precision, *more, suffix=f"-{form}") for form, more in forms.items()}
        cells = part.attempt(precision, bench, work, part, artifacts, model, [batch], [seq]) or []
        prompts = [cell for cell in cells if cell["run"] in (None, "prompt")]
        part.data["cells"] += [{**cell, "form": cell.pop("artifact"), "precision": precision} for cell in prompts]
    vocabulary, hidden = config_of(model)["vocab_size"], config_of(model)["n_embd"]
    table = [vocabulary, -(-vocabulary // 64) * 64]
    part.data.update(hidden=hidden, rows=table)
    job = {"tokens": batch * seq, "hidden": hidden, "rows": table, "precisions": list(sizes.halves)}
    add_lines(part, python_job(work, part, "torch_jobs", 60, kind="head", **job))


def attention(work: Work, part: Part) -> None:
    """Attention by its length, and kernels along rows: fused, unfused, and PyTorch's."""
    sizes = Sizes(work.small)
    precision = sizes.halves[0]
    heads, size = sizes.heads, sizes.head_size
    folder = work.scratch / "graphs"
    folder.mkdir(exist_ok=True)
    graphs.attention(folder / "attention.onnx", heads, size)
    graphs.layer_norm(folder / "layer-norm.onnx", sizes.rows["width"])
    graphs.softmax(folder / "softmax.onnx", sizes.rows["width"])
    part.data.update(batch=1, heads=heads, size=size, precision=precision, **sizes.rows, cells=[], rows=[])
    made = {}
    for name in ("attention", "layer-norm", "softmax"):
        limit = part.limit(60, name)
        target = work.scratch / "artifacts" / f"{name}-{precision}"
        made[name] = part.attempt(name, work.compile, folder / f"{name}.onnx", target, limit, *options(precision))
    job = {"batch": 1, "heads": heads, "size": size, "lengths": sizes.lengths, "precision": precision}
    add_lines(part, part.attempt("PyTorch", lambda: python_job(work, part, "torch_jobs", 60, kind="attention", **job)))
    compiled = ["default"] if sizes.compiled else []
    lines = part.attempt("PyTorch", lambda: python_job(work, part, "torch_jobs", 60, kind="rows", precision=precision, compiled=compiled, **sizes.rows))
    part.data["rows"] += lines or []
    rows, columns = sizes.rows["shape"]
    for name in ("layer-norm", "softmax"):
        if made[name]:
            cells = part.attempt(name, bench, work, part, {name: made[name]}, folder / f"{name}.onnx", [rows], [columns])
            part.data["rows"] += [{**cell, "what": name} for cell in cells or []]
    if made["attention"]:
        memories = part.attempt("memory", attention_memory, work, part, made["attention"], sizes) or {}
        for length in sizes.lengths:
            cells = part.attempt(f"attention of {length}", bench, work, part, {"attention": made["attention"]}, folder / "attention.onnx", [1], [length])
            for cell in cells or []:
                part.data["cells"].append({**cell, "length": length, "peak_bytes": memories.get((cell["who"], length))})


def attention_memory(work: Work, part: Part, folder: Path, sizes: Sizes) -> Dict[Tuple[str, int], Optional[int]]:
    """The memory of the GPU that a run takes by runtime and length, above that of a run of 16 tokens."""
    if work.device != "cuda":
        return {}
    width, found = sizes.heads * sizes.head_size, {}
    for name in work.runtimes:
        least = None
        for length in (16, *sizes.lengths):
            inputs = work.scratch / "attention.in"
            # The bits of 0.0 to 1.0 in float16, at random.
            data = bytearray(random.Random(length).randbytes(length * width * 2))
            data[1::2] = bytes(byte % 0x3C for byte in data[1::2])
            safetensors.write_floats(inputs, {one: ((1, length, width), bytes(data)) for one in "qkv"}, "F16")
            with memory.Watch() as watch:
                work.planish_run(["run", folder, "--inputs", inputs, "--runtime", name], part.limit(60, "memory"))
            if watch.peak is None:
                raise OutOfTime("the memory of the GPU cannot be read: libnvidia-ml.so.1 is missing")
            least = watch.peak if least is None else least
            found[name, length] = watch.peak - least
    return found


# Limits of the forms of attention (PLANISH_CUDA_LIMITS): the planner's own, then ones that force a form or a tile.
LIMITS = {
    "own": "",
    "large tiles": "split_rows=0,blocks=0",
    "small tiles": "split_rows=0,blocks=1000000",
    "scores in memory": "largest_head=0",
}
STEP_LIMITS = {
    "own": "", "64 blocks": "blocks=64", "1000 blocks": "blocks=1000", "flash": "split_rows=0", "products by cublasLt": "few_rows=0",
}
CODE_LIMITS = {"own": "", "products by cublasLt": "code_rows=0"}
# What another choice has to save before the planner's own is named as what to mend.
BETTER = 1.1


def limits(work: Work, part: Part) -> None:
    """Times attention by its form and tile, beside the form that the planner chooses."""
    sizes = Sizes(work.small)
    precision = sizes.halves[0]
    folder = work.scratch / "graphs"
    folder.mkdir(exist_ok=True)
    part.data["cells"] = []
    for size in (sizes.head_size, 2 * sizes.head_size):
        name = f"attention-{size}"
        graphs.attention(folder / f"{name}.onnx", sizes.heads, size)
        target = work.scratch / "artifacts" / f"{name}-{precision}"
        made = part.attempt(name, work.compile, folder / f"{name}.onnx", target, part.limit(60, name), *options(precision))
        if made:
            lengths = sizes.lengths[:3]
            swept(work, part, LIMITS, {name: made}, folder / f"{name}.onnx", [1], lengths, what=f"heads of {size}")
    int8 = part.attempt("bert-base in int8", codes, work, part)
    if int8:
        for group in sizes.shapes[:1]:
            batch, seq = (list(dict.fromkeys(numbers)) for numbers in zip(*group))
            swept(work, part, CODE_LIMITS, {"int8": int8}, checkpoint(work, "bert-base"), batch, seq, what="BERT-base in INT8")
    step = part.attempt("llama-1.1b", artifact, work, part, "llama-1.1b", "bf16")
    if step:
        for past in sizes.past:
            path = work.scratch / "limits.safetensors"
            step_inputs(path, config_of(checkpoint(work, "llama-1.1b")), past)
            what = f"a step of Llama after {past}"
            swept(work, part, STEP_LIMITS, {"llama": step}, checkpoint(work, "llama-1.1b"), [], [], "--inputs", path, what=what)


def codes(work: Work, part: Part) -> Path:
    """BERT-base with layers of codes, whose scales follow from random tokens."""
    texts = work.scratch / "calibrate.safetensors"
    source = random.Random(0)
    vocabulary = config_of(checkpoint(work, "bert-base"))["vocab_size"]
    rows = [[source.randrange(vocabulary) for _ in range(16)] for _ in range(4)]
    safetensors.write_ids(texts, {"input_ids": rows, "attention_mask": [[1] * 16] * 4, "token_type_ids": [[0] * 16] * 4})
    return artifact(work, part, "bert-base", "fp16", "--int8", "--calibrate", texts, suffix="-int8")


def swept(work: Work, part: Part, forms: Dict[str, str], artifacts: Dict[str, Path], model: Path, batch, seq, *more, what: str) -> None:
    """Measures the fused runtime under each set of limits."""
    for form, variable in forms.items():
        work.environment["PLANISH_CUDA_LIMITS"] = variable
        try:
            run = lambda: bench(work, part, artifacts, model, batch, seq, *more, runtimes=[work.fused])
            cells = part.attempt(f"{what}, {form}", run)
        finally:
            del work.environment["PLANISH_CUDA_LIMITS"]
        part.data["cells"] += [{**cell, "what": what, "form": form} for cell in cells or []]


def choices(cells: List[Dict]) -> List[Dict]:
    """For each shape the planner's own time, and the best form with its time."""
    found = []
    key = lambda cell: (cell["what"], cell.get("batch", 1), cell["seq"])
    for what, batch, seq in dict.fromkeys(key(cell) for cell in cells):
        of = {cell["form"]: cell["ms"] for cell in cells if key(cell) == (what, batch, seq) and cell.get("ms")}
        if "own" in of:
            best = min(of, key=of.__getitem__)
            found.append({"what": what, "batch": batch, "seq": seq, "own": of["own"], "best": best, "ms": of[best], "forms": of})
    return found
