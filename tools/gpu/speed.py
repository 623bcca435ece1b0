"""What the parts that measure share: models, artifacts, jobs in Python, and `planish bench`."""

import json
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from . import checkpoints
from .work import STOPPED, Failed, Part, Work

TOOLS = Path(__file__).resolve().parent.parent
COMPILED = ("reduce-overhead", "max-autotune-no-cudagraphs")
HALVES = ("fp16", "bf16")
# The figures that goals are about come first, in case that time runs out.
SHAPES = [[(32, 128)], [(1, 128), (8, 128)], [(32, 512)], [(1, 512), (8, 512)]]
LENGTHS = [512, 1024, 2048, 4096]
PAST = [128, 512, 2048]
# The option that records no CUDA graph; an error that a run was not recorded names it.
NO_GRAPH = "cuda-graph=false"


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
    return [] if precision == "f32" else [f"--{precision}", "--recipe", "io=half"]


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
    work.need_torch()
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


def bench(work: Work, part: Part, artifacts: Dict[str, Path], model: Path, batch: Sequence[int], seq: Sequence[int], *more: object, most: float = 300, runtimes: Sequence[str] = ()) -> List[Dict]:
    """What `planish bench` measures of artifacts of one model on the runtimes: a cell for each artifact, runtime and shape."""
    sizes = Sizes(work.small)
    out = work.scratch / "bench.json"
    out.unlink(missing_ok=True)
    words = ["bench", *artifacts.values(), "--runtime", ",".join(runtimes or work.runtimes), "--reference", model]
    words += [word for option, numbers in (("--batch", batch), ("--seq", seq)) if numbers for word in (option, ",".join(map(str, numbers)))]
    words += ["--set", f"time={sizes.seconds},iterations={sizes.least},peaks=false", "--json", out, *more]
    done = work.run([work.planish, *words], part.limit(most, f"bench of {', '.join(artifacts)}", least=5))
    # It exits with 3 where a cell is wrong, and has the other cells.
    # One that was stopped has the cells that were finished.
    if done.code not in (0, 3, 130, STOPPED) or not out.is_file():
        raise Failed(f"planish bench {done.why()}")
    cells = [cell_of(cell, artifacts) for cell in json.loads(out.read_text())["cells"]]
    if cells and all(NO_GRAPH in cell.get("failure", "") for cell in cells) and NO_GRAPH not in more:
        part.problems.append(f"no run was recorded as a CUDA graph: {cells[0]['failure']}")
        return bench(work, part, artifacts, model, batch, seq, "--runtime-option", NO_GRAPH, *more, most=most, runtimes=runtimes)
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
        found["without_graph_ms"] = cell.get("without_graph_ms")
        found.update(ms=time["median"], p90=time["p90"], clock="device", cuda_graph=device["cuda_graph"], enqueue_ms=device["enqueue"]["median"])
    elif host:
        found.update(ms=host["p50"], p90=host.get("p90"), clock="host")
    if host:
        found["n"] = host["n"]
    if cell.get("generation"):
        found.update({key: cell["generation"][key] for key in ("ttft_ms", "tpot_ms")})
    if accuracy:
        found["cosine"], found["max_rel"] = accuracy["cos"], accuracy["max_rel"]
    if cell.get("failure"):
        found["failure"] = cell["failure"]
    if cell.get("warnings"):
        found["warnings"] = cell["warnings"]
    return found


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
