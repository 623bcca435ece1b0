"""The parts that check targets ort-cuda and trt on a GPU."""

import json
from pathlib import Path
from typing import Dict, List, Optional

from .correctness import PRECISIONS, goldens_of
from .work import Part, Work

# An encoder, a decoder with shared heads, an encoder-decoder.
MODELS = ("bert", "llama", "t5")
SECONDS = 60
# What `bench --set` takes where figures do not count.
BRIEF = "time=0.2,iterations=5,peaks=false"


def unavailable(work: Work, part: Part, runtime: str) -> Optional[str]:
    """Why a runtime cannot be used here; None where it can."""
    entries = json.loads(work.planish_run(["runtimes", "--json"], part.limit(60, "runtimes")).output)
    found = next((entry for entry in entries if entry["name"] == runtime), {"problem": f"planish has no runtime {runtime}"})
    return None if found.get("available") else (found.get("problem") or f"{runtime} is unavailable").splitlines()[0]


def ort_cuda(work: Work, part: Part) -> None:
    """Goldens of target ort-cuda on ONNX Runtime's CUDA provider."""
    check(work, part, "ort-cuda", "ort-cuda", "name a GPU build of ONNX Runtime with PLANISH_ORT_LIB")


def trt(work: Work, part: Part) -> None:
    """Goldens as engines, and the options of engines."""
    remedy = "TensorRT-RTX runs on an A100 or an RTX card; an H100 or H200 needs an installed TensorRT and a planish built for it"
    folders = check(work, part, "trt", "trt", remedy)
    if "bert-fp16" in folders:
        part.attempt("options of engines", engine_options, work, part, folders["bert-fp16"])


def check(work: Work, part: Part, target: str, runtime: str, remedy: str) -> Dict[str, Path]:
    """Compiles, verifies and measures goldens in each precision; returns their folders."""
    reason = unavailable(work, part, runtime)
    if reason:
        part.absent = True
        part.notes.append(f"target {target}: {reason}; {remedy}")
        return {}
    part.data["cases"] = cases = []
    folders = {}
    for model in (model for model in goldens_of(work.fixtures) if model.name in MODELS):
        for precision, options in PRECISIONS.items():
            name = f"{model.name}-{precision}"
            folder = work.scratch / target / name
            done = part.attempt(name, one, work, part, target, model, folder, options)
            cases.append({"model": model.name, "precision": precision, "verdict": "ok" if done else "failed"})
            if done:
                folders[name] = folder
    return folders


def one(work: Work, part: Part, target: str, model: Path, folder: Path, options: List[str]) -> bool:
    work.compile(model, folder, part.limit(SECONDS, "compile"), "--target", target, *options)
    work.planish_run(["verify", folder, "--reference", model], part.limit(SECONDS, "verify"))
    words = ["bench", folder, "--batch", "1,4", "--set", BRIEF]
    work.planish_run(words, part.limit(SECONDS, "bench"))
    return True


def engine_options(work: Work, part: Part, engine: Path) -> None:
    """Transfers, runs without a CUDA graph, streamed weights, stripped weights, attention in float32."""
    model = next(model for model in goldens_of(work.fixtures) if model.name == "bert")
    run = lambda *words: work.planish_run(words, part.limit(SECONDS, str(words[0])))
    for option in ("--set=transfers", "--runtime-option=cuda-graph=false"):
        part.attempt(option, run, "bench", engine, option, "--set", BRIEF)

    def built(suffix: str, option: str) -> Path:
        return work.compile(model, engine.parent / f"bert-{suffix}", part.limit(SECONDS, option), "--target", "trt", "--fp16", option)

    def streamed() -> None:
        run("verify", built("streaming", "--recipe=engine.weight-streaming=true"), "--runtime-option", "weight-streaming-budget=50%")

    def stripped() -> None:
        folder = built("stripped", "--recipe=engine.strip-weights=true")
        run("refit-engine", folder)
        run("verify", folder)

    def in_float32() -> None:
        folder = built("fp32", "--recipe=attention-fp32=true")
        run("verify", folder)
        run("bench", engine, folder, "--set", BRIEF)

    for what, step in (("weight streaming", streamed), ("stripped weights", stripped), ("attention in float32", in_float32)):
        part.attempt(what, step)
