"""A model on ONNX Runtime's CUDA provider, in a process of its own: `python -m gpu.ort_job JOB.json`.

Inputs are bound on the GPU and outputs stay there. The session works on PyTorch's stream, so that its runs are timed by
the same events as those of PyTorch. Prints a line of JSON for each shape, as `torch_jobs` does.
"""

import json
import sys
from pathlib import Path

import onnxruntime
import torch

from .torch_jobs import ROTATED, Job, ids, say

PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def open_session(job: Job) -> onnxruntime.InferenceSession:
    options = {}
    if job.device == "cuda":
        options = {"user_compute_stream": str(torch.cuda.current_stream().cuda_stream)}
    provider = PROVIDERS[job.device]
    session = onnxruntime.InferenceSession(job["graph"], providers=[(provider, options)])
    if provider not in session.get_providers():
        raise RuntimeError(f"ONNX Runtime {onnxruntime.__version__} has no working {provider}")
    return session


def feeds(job: Job, session, batch: int, length: int):
    """The inputs of a run: ids, a mask of ones, segments of zeros, an empty cache."""
    made = {}
    for port in session.get_inputs():
        if port.name.startswith("past_key_values"):
            half = torch.float16 if "float16" in port.type else torch.float32
            made[port.name] = torch.empty((batch, port.shape[1], 0, port.shape[3]), dtype=half, device=job.device)
        elif port.name == "input_ids":
            made[port.name] = ids(job, batch, length, job["vocabulary"])
        elif port.name == "position_ids":
            made[port.name] = torch.arange(length, device=job.device).expand(batch, length).contiguous()
        else:
            value = int(port.name == "attention_mask")
            made[port.name] = torch.full((batch, length), value, dtype=torch.int64, device=job.device)
    return made


def bound(job: Job, session, batch: int, length: int):
    """A run on inputs that are bound."""
    import numpy

    types = {torch.int64: numpy.int64, torch.float16: numpy.float16, torch.float32: numpy.float32}
    binding, tensors = session.io_binding(), feeds(job, session, batch, length)
    for name, tensor in tensors.items():
        binding.bind_input(name, job.device, 0, types[tensor.dtype], tuple(tensor.shape), tensor.data_ptr())
    for output in session.get_outputs():
        binding.bind_output(output.name, job.device, 0)

    def run(keep=tensors):
        session.run_with_iobinding(binding)

    return run


def main() -> int:
    job = Job(json.loads(Path(sys.argv[1]).read_text()))
    stream = torch.cuda.Stream() if job.device == "cuda" else None
    with torch.cuda.stream(stream):
        session = open_session(job)
        for batch, length in job["shapes"]:
            key = {"model": job["name"], "precision": job["precision"], "batch": batch, "seq": length}
            job.measured({**key, "who": "ort-cuda"}, lambda: [bound(job, session, batch, length) for _ in range(ROTATED)])
    say(onnxruntime=onnxruntime.__version__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
