"""The parts that measure: models, peaks, bench, padding, head, decode, attention."""

import json
import random
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from . import checkpoints, graphs, memory, safetensors
from .work import STOPPED, Failed, OutOfTime, Part, Work

TOOLS = Path(__file__).resolve().parent.parent
COMPILED = ("reduce-overhead", "max-autotune-no-cudagraphs")
HALVES = ("fp16", "bf16")
# The figures that goals are about come first, in case that time runs out.
SHAPES = [[(32, 128)], [(1, 128), (8, 128)], [(32, 512)], [(1, 512), (8, 512)]]
LENGTHS = [512, 1024, 2048, 4096]
PAST = [128, 512, 2048]
# How far PyTorch's results may be from planish's in half precision.
COSINE = 0.999


class Sizes:
    """What is measured: as users need it, or small to try the script."""

    def __init__(self, small: bool):
        self.shapes = [[(2, 16)], [(1, 16)]] if small else SHAPES
        self.lengths, self.past = ([16, 32], [8]) if small else (LENGTHS, PAST)
        self.heads, self.head_size = (2, 16) if small else (16, 64)
        self.rows = {"shape": (2, 16) if small else (32, 512), "width": 64 if small else 1024}
        self.product, self.copy = (128, 1 << 20) if small else (8192, 1 << 30)
        self.seconds, self.least = (0.05, 3) if small else (0.4, 50)
        self.halves = HALVES
        self.compiled: Sequence[str] = () if small else COMPILED


def options(precision: str) -> List[str]:
    """Options of compile for a precision. In half precision inputs and outputs are half too, as PyTorch has them."""
    return [] if precision == "f32" else [f"--{precision}", "--keep-io", "half"]


def checkpoint(work: Work, name: str) -> Path:
    """A checkpoint with random weights; it is written when it is first used."""
    folder = work.scratch / "models" / name
    if not (folder / "model.safetensors").is_file():
        config = (checkpoints.SMALL if work.small else checkpoints.CONFIGS)[name]
        checkpoints.write(folder, config)
    return folder


def config_of(folder: Path) -> Dict:
    return json.loads((folder / "config.json").read_text())


def models(work: Work, part: Part) -> None:
    """Writes the checkpoints."""
    for name in checkpoints.CONFIGS:
        folder = checkpoint(work, name)
        weights = checkpoints.elements(checkpoints.tensors(config_of(folder)))
        part.data[name] = {"weights": weights, "bytes": (folder / "model.safetensors").stat().st_size}


def artifact(work: Work, part: Part, name: str, precision: str, *more: str, suffix: str = "") -> Path:
    folder = work.scratch / "artifacts" / f"{name}-{precision}{suffix}"
    limit = part.limit(120, f"compile {name}")
    return work.compile(checkpoint(work, name), folder, limit, *options(precision), *more)


def python_job(work: Work, part: Part, module: str, most: float, **job) -> List[Dict]:
    """Runs a job of a Python module to its end or its limit; returns the lines that it said.

    Raises Failed where it fails before it says anything.
    """
    limit = part.limit(most, f"{module} {job.get('kind', '')}", least=5)
    sizes = Sizes(work.small)
    # The job stops by itself between two figures, a little before it would be stopped.
    job = {"device": work.device, "seconds": sizes.seconds, "least": sizes.least, "limit": limit * 0.9, **job}
    path = work.scratch / f"job-{module}-{job.get('kind', 'run')}.json"
    path.write_text(json.dumps(job))
    done = work.run([work.python, "-m", f"gpu.{module}", path], limit, folder=TOOLS)
    lines = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    if done.code != 0:
        if not lines:
            raise Failed(f"{module}: {done.why()}")
        said = f"{module} {job.get('kind', '')}: {done.why()}; the figures before that are kept"
        if done.code == STOPPED:
            part.skip(said)
        else:
            part.notes.append(said)
    return lines


def bench(work: Work, part: Part, artifacts: Dict[str, Path], model: Path, batch: Sequence[int], seq: Sequence[int], *more: object, most: float = 300) -> List[Dict]:
    """What `planish bench` measures of artifacts of one model on the runtimes: a cell for each artifact, runtime and shape."""
    sizes = Sizes(work.small)
    out = work.scratch / "bench.json"
    out.unlink(missing_ok=True)
    words = ["bench", *artifacts.values(), "--runtime", ",".join(work.runtimes), "--reference", model]
    words += [word for option, numbers in (("--batch", batch), ("--seq", seq)) if numbers for word in (option, ",".join(map(str, numbers)))]
    words += ["--time", sizes.seconds, "--iterations", sizes.least, "--json", out, *more]
    done = work.run([work.planish, *words], part.limit(most, f"bench of {', '.join(artifacts)}", least=5))
    # It exits with 3 where a cell is wrong, and has the other cells.
    if done.code not in (0, 3) or not out.is_file():
        raise Failed(f"planish bench {done.why()}")
    cells = [cell_of(cell, artifacts) for cell in json.loads(out.read_text())["cells"]]
    for cell in cells:
        if cell.get("failure"):
            where = f"{cell['artifact']} on {cell['who']}, {cell['batch']} x {cell['seq']}"
            part.problems.append(f"{where}{', ' + cell['run'] if cell['run'] else ''}: {cell['failure']}")
    return cells


def cell_of(cell: Dict, artifacts: Dict[str, Path]) -> Dict:
    """What counts of a cell of planish's document: the time of the device where there is one, else that of the host."""
    named = next((name for name, folder in artifacts.items() if folder.name == Path(cell["model"]["id"]).name), cell["model"]["id"])
    shape = cell["shape"]
    found = {"artifact": named, "who": cell["backend"], "batch": shape["batch"], "seq": shape["seq"], "run": shape.get("part")}
    device, host, accuracy = cell.get("device"), cell.get("latency_ms"), cell.get("accuracy")
    if device:
        time = device["gpu_compute"]
        found.update(ms=time["median"], p90=time["p90"], clock="device", cuda_graph=device["cuda_graph"], enqueue_ms=device["enqueue"]["median"])
    elif host:
        found.update(ms=host["p50"], p90=host.get("p90"), clock="host")
    if host:
        found["n"] = host["n"]
    if accuracy:
        found["cosine"], found["max_rel"] = accuracy["cos"], accuracy["max_rel"]
    if cell.get("failure"):
        found["failure"] = cell["failure"]
    if cell.get("warnings"):
        found["warnings"] = cell["warnings"]
    return found


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


def bench_models(work: Work, part: Part) -> None:
    """BERT and GPT-2 on planish's runtimes, PyTorch and ONNX Runtime."""
    sizes = Sizes(work.small)
    part.data.update(checks=[], cells=[])
    names = ("bert-base", "gpt2")
    artifacts = {name: {} for name in names}
    for name in names:
        for precision in sizes.halves:
            folder = part.attempt(f"{name} in {precision}", artifact, work, part, name, precision)
            if folder:
                artifacts[name][precision] = folder
    cases = [part.attempt(f"{name} in {half}", answered, work, part, name, half, of) for name in names for half, of in artifacts[name].items()]
    part.data["checks"] += part.attempt("PyTorch", compared, work, part, [case for case in cases if case]) or []
    for group in sizes.shapes:
        batch, seq = (list(dict.fromkeys(numbers)) for numbers in zip(*group))
        for name in names:
            model = checkpoint(work, name)
            cells = part.attempt(name, bench, work, part, artifacts[name], model, batch, seq) if artifacts[name] else None
            for cell in cells or []:
                part.data["cells"].append({**cell, "model": name, "precision": cell.pop("artifact")})
        runs = [{"model": n, "folder": str(checkpoint(work, n)), "precision": half} for half in sizes.halves for n in names]
        add_lines(part, part.attempt("PyTorch", torch_forward, work, part, {"runs": runs, "shapes": group, "compiled": list(sizes.compiled)}))
    part.attempt("ONNX Runtime", onnx_runtime, work, part, names, sizes)


def torch_forward(work: Work, part: Part, job: Dict) -> List[Dict]:
    # A share of what is left, so that torch.compile, which takes a minute for a shape, leaves time to the others.
    return python_job(work, part, "torch_jobs", max(40.0, part.left() / 2), kind="forward", **job)


def add_lines(part: Part, lines: Optional[List[Dict]]) -> None:
    """Adds what a Python job measured to the cells; a contestant that failed is a note, and no problem of planish."""
    for line in lines or []:
        if "who" not in line:
            part.data.update(line)
            continue
        part.data.setdefault("cells", []).append(line)
        reason = line.get("failure") or line.get("skipped")
        if reason:
            key = ", ".join(str(line[k]) for k in ("model", "precision", "batch", "seq", "past", "length") if k in line)
            part.late |= "skipped" in line
            part.notes.append(f"{line['who']} ({key}): {reason}")


def onnx_runtime(work: Work, part: Part, names: Sequence[str], sizes: Sizes) -> None:
    code = "import onnxruntime; print(*onnxruntime.get_available_providers())"
    done = work.run([work.python, "-c", code], part.limit(60, "ONNX Runtime"))
    wanted = "CUDAExecutionProvider" if work.device == "cuda" else "CPUExecutionProvider"
    if done.code != 0 or wanted not in done.output.split():
        part.notes.append(f"ONNX Runtime with {wanted} is not installed")
        return
    for name in names:
        precision = sizes.halves[0]
        folder = work.scratch / "artifacts" / f"{name}-{precision}-ort"
        target = "ort-cuda" if work.device == "cuda" else "onnx"
        work.compile(checkpoint(work, name), folder, part.limit(120, name), *options(precision), "--target", target)
        job = {"name": name, "precision": precision, "graph": str(folder / "model.onnx"), "shapes": [s for g in sizes.shapes for s in g]}
        add_lines(part, python_job(work, part, "ort_job", 120, vocabulary=config_of(checkpoint(work, name))["vocab_size"], **job))


def padding(work: Work, part: Part) -> None:
    """BERT on rows of one length and of different lengths, whose padding `cuda` leaves out."""
    sizes, name = Sizes(work.small), "bert-base"
    model, precision = checkpoint(work, name), sizes.halves[0]
    part.data.update(model=name, precision=precision, cells=[])
    artifacts = {precision: artifact(work, part, name, precision)}
    vocabulary, source = config_of(model)["vocab_size"], random.Random(0)
    for batch, seq in [group[0] for group in sizes.shapes if group[0][0] > 1]:
        # The longest row has all tokens.
        mixed = [seq] + [source.randint(1, seq) for _ in range(batch - 1)]
        for lengths in ([seq] * batch, mixed):
            mask = [[int(at < length) for at in range(seq)] for length in lengths]
            ids = [[source.randrange(vocabulary) for _ in range(seq)] for _ in lengths]
            path = work.scratch / "padding.safetensors"
            safetensors.write_ids(path, {"input_ids": ids, "attention_mask": mask, "token_type_ids": [[0] * seq for _ in lengths]})
            left = batch * seq - sum(lengths)
            what = f"{batch} x {seq}, {left} positions of padding"
            cells = part.attempt(what, bench, work, part, artifacts, model, [], [], "--inputs", path) or []
            part.data["cells"] += [{**cell, "batch": batch, "seq": seq, "padding": left} for cell in cells]


def head(work: Work, part: Part) -> None:
    """The head over the vocabulary with and without padding: a GPT-2 of one layer, and PyTorch's product alone."""
    sizes, name = Sizes(work.small), "gpt2-head"
    batch, seq = sizes.shapes[0][0]
    model = checkpoint(work, name)
    forms = {"off": ("--pad-vocab", "off"), "sliced": ("--pad-vocab", "64"), "padded": ("--pad-vocab", "64", "--logits", "padded")}
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


def decode(work: Work, part: Part) -> None:
    """Steps of a Llama with one row behind a cache."""
    sizes, name = Sizes(work.small), "llama-1.1b"
    precision = "bf16"
    part.data.update(precision=precision, checks=[], cells=[])
    folder = artifact(work, part, name, precision)
    model = checkpoint(work, name)
    part.data["config"] = config_of(model)
    case = part.attempt("check", answered, work, part, name, precision, folder)
    part.data["checks"] += (part.attempt("PyTorch", compared, work, part, [case]) if case else None) or []
    for past in sizes.past:
        cells = part.attempt(f"past {past}", bench, work, part, {name: folder}, model, [1], [past])
        part.data["cells"] += [{**cell, "past": past} for cell in cells or [] if cell["run"] == "step"]
    compiled = [mode for mode in sizes.compiled if mode == "reduce-overhead"]
    job = {"model": str(model), "precision": precision, "past": sizes.past, "compiled": compiled}
    add_lines(part, part.attempt("PyTorch", lambda: python_job(work, part, "torch_jobs", 150, kind="decode", **job)))


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
