"""What is measured in PyTorch, in a process of its own: `python -m gpu.torch_jobs JOB.json`.

The job names a kind and its arguments. Each result is a line of JSON on standard output as soon as it is there, so a
process that is stopped leaves what it has measured. Times are taken as `planish bench` takes them: runs to warm up until
times settle, then for each run an event in front, the run, an event after, and waiting for it; the median counts. Inputs
are rotated.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Sequence

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import models

# Sets of inputs that take turns.
ROTATED = 4
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def say(**result) -> None:
    print(json.dumps(result), flush=True)


class Clock:
    """Times runs on a device."""

    def __init__(self, device: str, seconds: float, least: int):
        self.device, self.seconds, self.least = device, seconds, least

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def once(self, run: Callable[[], object]) -> float:
        """The milliseconds of one run."""
        if self.device != "cuda":
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def warm_up(self, run: Callable[[], object]) -> None:
        """Runs in blocks until the time of a run changes by less than 2 %, ten times the least time at most."""
        start, before, least = time.perf_counter(), None, self.seconds / 2
        while True:
            block, runs = time.perf_counter(), 0
            while runs == 0 or time.perf_counter() - block < least / 4:
                run()
                self.wait()
                runs += 1
            took, spent = (time.perf_counter() - block) / runs, time.perf_counter() - start
            settled = before is not None and abs(took - before) < 0.02 * before
            if spent >= least and (settled or spent >= 10 * least):
                return
            before = took

    def measure(self, runs: Sequence[Callable[[], object]]) -> Dict:
        """The statistics of runs that take turns."""
        turn, all_of = iter(range(1 << 60)), list(runs)
        run = lambda: all_of[next(turn) % len(all_of)]()
        self.warm_up(run)
        samples, start = [], time.perf_counter()
        while len(samples) < self.least or time.perf_counter() - start < self.seconds:
            samples.append(self.once(run))
            if time.perf_counter() - start > max(20.0, 5 * self.seconds):
                break
        samples.sort()
        return {"ms": statistics.median(samples), "p90": samples[int(0.9 * (len(samples) - 1))], "n": len(samples)}


class Job:
    """The arguments of a job."""

    def __init__(self, job: Dict):
        self.job = job
        self.device = job["device"]
        self.clock = Clock(self.device, job.get("seconds", 0.5), job.get("least", 50))
        self.deadline = time.monotonic() + job["limit"]

    def __getitem__(self, name: str):
        return self.job[name]

    def measured(self, key: Dict, prepare: Callable[[], Iterable[Callable[[], object]]], **more: Callable[[], object]) -> None:
        """Says the time of what `prepare` gives, or why there is none; `more` is asked for figures afterwards."""
        if time.monotonic() > self.deadline:
            return say(**key, skipped="no time was left")
        try:
            with torch.inference_mode():
                if self.device == "cuda":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                start = time.monotonic()
                figures = self.clock.measure(list(prepare()))
                figures["took_s"] = round(time.monotonic() - start, 2)
                if self.device == "cuda":
                    figures["peak_bytes"] = torch.cuda.max_memory_allocated()
            say(**key, **figures, **{name: figure() for name, figure in more.items()})
        # Whatever a library raises is the end of this figure, not of the others.
        except Exception as error:
            say(**key, failure=f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300])


def normal(job: Job, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device=job.device, dtype=dtype)


def recorded(job: Job, runs: Iterable[Callable[[], object]]) -> List[Callable[[], object]]:
    """The runs as CUDA graphs, so that the time of the host to start kernels does not count; planish records its runs too."""
    if job.device != "cuda":
        return list(runs)
    replays = []
    for run in runs:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        replays.append(graph.replay)
    return replays


def peaks(job: Job) -> None:
    """The rate of matrix products, and of copies."""
    size, count = job["size"], job["bytes"]
    for name in ("bf16", "fp16"):

        def products():
            a, b = (normal(job, size, size, dtype=HALF[name]) for _ in range(2))
            return [lambda: a @ b]

        job.measured({"what": "product", "precision": name, "size": size}, products)

    def copies():
        source = torch.randint(0, 255, (count,), dtype=torch.uint8, device=job.device)
        target = torch.empty_like(source)
        return [lambda: target.copy_(source)]

    job.measured({"what": "copy", "bytes": 2 * count}, copies)


def ids(job: Job, batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), device=job.device)


def compare(job: Job) -> None:
    """How far modules are from outputs that planish wrote, on the same inputs."""
    for case in job["cases"]:
        given, wanted = models.read(Path(case["inputs"])), models.read(Path(case["outputs"]))
        module = models.load(Path(case["folder"]), HALF[case["precision"]], job.device)
        is_llama = isinstance(module, models.Llama)
        for how in ("sdpa",) if is_llama else ("written", "sdpa"):
            module.how = how
            with torch.inference_mode():
                if is_llama:
                    outputs = [by_step(job, module, given["input_ids"])]
                else:
                    outputs = module(*(given[name].to(job.device) for name in module.inputs))
            for name, output in zip(module.outputs, outputs):
                want = wanted[name][:, -1:] if is_llama else wanted[name]
                key = {"model": case["model"], "precision": case["precision"], "how": how, "output": name}
                say(**key, **difference(output, want))


def by_step(job: Job, module, tokens: torch.Tensor) -> torch.Tensor:
    """The logits of the last token as a step after the others."""
    tokens, past = tokens.to(job.device), tokens.shape[1] - 1
    cache = module.cache(tokens.shape[0], past + 1)
    module(tokens[:, :-1], *module.angles(0, past), cache, 0)
    return module(tokens[:, -1:], *module.angles(past, 1), cache, past)


def difference(got: torch.Tensor, want: torch.Tensor) -> Dict:
    """Cosine, and the largest difference relative to the largest wanted number."""
    got, want = got.double().cpu().flatten(), want.double().flatten()
    if got.shape != want.shape:
        return {"failure": f"{got.numel()} elements, and planish has {want.numel()}"}
    relative = float((got - want).abs().max() / want.abs().max().clamp(min=1))
    return {"cosine": float(functional.cosine_similarity(got, want, 0)), "max_rel": relative}


def forward(job: Job) -> None:
    """Models at each shape: eager, with SDPA, and compiled. What takes least comes first, in case that time runs out."""
    loaded = [(run, models.load(Path(run["folder"]), HALF[run["precision"]], job.device)) for run in job["runs"]]
    cases = [(run, module, *shape) for run, module in loaded for shape in job["shapes"]]

    def measure(run: Dict, module, batch: int, length: int, who: str, how: str, mode: Optional[str]) -> None:
        def runs():
            if mode:
                torch._dynamo.reset()
            module.how = how
            function = torch.compile(module, mode=mode, dynamic=False, fullgraph=True) if mode else module
            tokens = [ids(job, batch, length, module.config["vocab_size"]) for _ in range(ROTATED)]
            given = {"input_ids": tokens, "token_type_ids": [torch.zeros_like(t) for t in tokens]}

            def once(row):
                if mode:
                    torch.compiler.cudagraph_mark_step_begin()
                return function(*row)

            return [lambda row=row: once(row) for row in zip(*(given[name] for name in module.inputs))]

        key = {"model": run["model"], "precision": run["precision"], "batch": batch, "seq": length}
        job.measured({**key, "who": who}, runs)

    for case in cases:
        measure(*case, "torch eager", "written", None)
        measure(*case, "torch SDPA", "sdpa", None)
    for mode in job["compiled"]:
        for case in cases:
            measure(*case, f"torch.compile {mode}", "sdpa", mode)


def head(job: Job) -> None:
    """The product of all tokens with a table, by its number of rows."""
    tokens, hidden = job["tokens"], job["hidden"]
    for precision in job["precisions"]:
        for rows in job["rows"]:

            def products():
                table = normal(job, rows, hidden, dtype=HALF[precision])
                states = [normal(job, tokens, hidden, dtype=HALF[precision]) for _ in range(ROTATED)]
                return recorded(job, (lambda x=x: functional.linear(x, table) for x in states))

            job.measured({"who": "torch", "precision": precision, "rows": rows}, products)


def decode(job: Job) -> None:
    """A step of a Llama after a cache: eager, and compiled with CUDA graphs."""
    folder = Path(job["model"])
    module = models.load(folder, HALF[job["precision"]], job.device)
    for past in job["past"]:
        cache = module.cache(1, past + 1)
        angles = module.angles(past, 1)
        tokens = [ids(job, 1, 1, module.config["vocab_size"]) for _ in range(ROTATED)]
        step = lambda function: [lambda t=t: function(t, *angles, cache, past) for t in tokens]
        job.measured({"who": "torch eager", "past": past}, lambda: step(module))
        if job.device == "cuda":
            job.measured({"who": "torch CUDA graph", "past": past}, lambda: recorded(job, step(module)))
        for mode in job["compiled"]:

            def compiled():
                torch._dynamo.reset()
                # The cache is written in place, so its addresses are part of the graph.
                for pair in cache:
                    for tensor in pair:
                        torch._dynamo.mark_static_address(tensor)
                return step(torch.compile(module, mode=mode, dynamic=False, fullgraph=True))

            job.measured({"who": f"torch.compile {mode}", "past": past}, compiled)


def attention(job: Job) -> None:
    """Attention alone by its length: the kernel FlashAttention, and products with scores in memory."""
    batch, heads, size = job["batch"], job["heads"], job["size"]
    forms = {"torch SDPA flash": SDPBackend.FLASH_ATTENTION, "torch SDPA math": SDPBackend.MATH}
    for length in job["lengths"]:
        for who, backend in forms.items():

            def runs():
                shape = (batch, heads, length, size)
                q, k, v = (normal(job, *shape, dtype=HALF[job["precision"]]) for _ in range(3))

                def run():
                    with sdpa_kernel(backend):
                        return functional.scaled_dot_product_attention(q, k, v)

                return recorded(job, [run])

            job.measured({"who": who, "length": length}, runs)


def rows(job: Job) -> None:
    """The norm of a sum, and softmax: eager, and compiled into one kernel."""
    shape, dtype = (*job["shape"], job["width"]), HALF[job["precision"]]
    weight, bias = (normal(job, job["width"], dtype=dtype) for _ in range(2))
    functions = {
        "layer-norm": (2, lambda x, r: functional.layer_norm(x + r, (x.shape[-1],), weight, bias)),
        "softmax": (1, lambda x: torch.softmax(x, -1)),
    }
    for what, (count, function) in functions.items():
        for mode in ("eager", *job["compiled"]):

            def runs():
                torch._dynamo.reset()
                called = function if mode == "eager" else torch.compile(function, mode=mode, dynamic=False)
                given = [[normal(job, *shape, dtype=dtype) for _ in range(count)] for _ in range(ROTATED)]
                return recorded(job, (lambda x=x: called(*x) for x in given))

            job.measured({"who": f"torch {mode}", "what": what}, runs)


KINDS = {job.__name__: job for job in (peaks, compare, forward, head, decode, attention, rows)}


def main() -> int:
    job = Job(json.loads(Path(sys.argv[1]).read_text()))
    torch.manual_seed(0)
    if job.device != "cuda":
        torch.set_num_threads(1)
    KINDS[job["kind"]](job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
