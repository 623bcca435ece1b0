"""The part that runs kernels and small models under compute-sanitizer."""

import glob
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, Optional

from .work import STOPPED, Done, OutOfTime, Part, Work

SANITIZER = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# An encoder, a decoder with a cache, one with grouped heads, and an encoder-decoder.
MODELS = ("bert", "gpt2", "llama", "t5")
# The most for one tool on one subject.
SECONDS = 40
# Has the CUDA runtime allocate each buffer by itself instead of in one arena.
SEPARATE = "PLANISH_CUDA_SEPARATE_BUFFERS"


def sanitizer() -> Optional[str]:
    """The program compute-sanitizer; None where it is not installed."""
    places = sorted(glob.glob("/usr/local/cuda*/bin/compute-sanitizer"), reverse=True)
    return shutil.which(SANITIZER) or next(iter(places), None)


def sanitize(work: Work, part: Part) -> None:
    """Runs small artifacts and the kernels under compute-sanitizer."""
    program = sanitizer()
    if program is None:
        part.absent = True
        part.notes.append(f"{SANITIZER} is not installed")
        return
    part.data["runs"] = runs = []
    folders = {}
    for name in MODELS:
        model = work.fixtures / "goldens" / name
        folder = work.scratch / "goldens" / f"{name}-fp16"
        if part.attempt(name, work.compile, model, folder, part.limit(60, name), "--fp16"):
            folders[name] = (folder, model)
    verified = {
        f"verify {name} on {runtime}": ["verify", folder, "--reference", model, "--max-length", 16, "--runtime", runtime]
        for runtime in work.runtimes
        for name, (folder, model) in folders.items()
    }
    tested = {f"kernels of {name}": ["runtimes", "--test-kernels", name] for name in work.runtimes}
    # One model, then all kernels, then the others: little time still tells something of all tools.
    first = dict(list(verified.items())[:1])
    subjects = {**first, **tested, **verified}
    order = [(tool, subject) for subject in subjects for tool in TOOLS]

    def one(tool: str, subject: str) -> None:
        try:
            limit = part.limit(SECONDS, f"{tool}, {subject}", least=5)
        except OutOfTime as problem:
            part.skip(str(problem))
            return
        # `--error-exitcode` makes the exit code tell what the tool found from what planish says.
        options = ["--tool", tool, "--error-exitcode", 99, "--print-limit", 20]
        done = work.run([program, *options, work.planish, *subjects[subject]], limit)
        run = sanitized(done)
        runs.append({"tool": tool, "subject": subject, "seconds": round(done.seconds, 1), **run})
        if run["verdict"] == "failed":
            part.problems.append(f"{tool}, {subject}: {run['why']}")
        elif run["verdict"] == "stopped":
            part.skip(f"{tool}, {subject}: {run['why']}")

    # Each buffer has memory of its own, so that an access after its end is one outside of any memory.
    work.environment[SEPARATE] = "1"
    try:
        with ThreadPoolExecutor(min(4, work.jobs)) as pool:
            list(pool.map(lambda pair: one(*pair), order))
    finally:
        del work.environment[SEPARATE]


def sanitized(done: Done) -> Dict:
    """What a run under compute-sanitizer says: its count of errors, and the first kernels that it names."""
    text = done.output + done.errors
    counts = [int(n) for n in re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:error|hazard)", text)]
    named = list(dict.fromkeys(re.findall(r"(?:at|in) ([\w:<>, ]+?)\(.*?\)\+0x", text)))[:5]
    if done.code == 0 and not any(counts):
        return {"verdict": "ok"}
    if done.code == STOPPED:
        return {"verdict": "stopped", "why": done.why()}
    if any(counts):
        return {"verdict": "failed", "why": f"{max(counts)} errors" + (f", in {', '.join(named)}" if named else "")}
    return {"verdict": "failed", "why": done.why()}
