"""The part that holds the outputs of replayed CUDA graphs against the reference."""

import json
from typing import Dict

from .correctness import goldens_of
from .work import Part, Work

# An encoder, and decoders with a cache and with grouped heads.
MODELS = ("bert", "gpt2", "llama")
SECONDS = 30


def replay(work: Work, part: Part) -> None:
    """Verifies artifacts by runs that replay a graph on poisoned outputs, and generation with graphs against that without."""
    known = {model.name: model for model in goldens_of(work.fixtures)}
    part.data["cases"] = cases = []
    for name in (name for name in MODELS if name in known):
        # The caches of a decoder are in half precision, so that its steps replay a graph.
        folder = work.scratch / "goldens" / f"{name}-fp16-half"
        if not part.attempt(name, work.compile, known[name], folder, part.limit(60, name), "--fp16", "--recipe", "io=half"):
            continue
        for runtime in work.runtimes:
            case: Dict = {"model": name, "runtime": runtime}
            words = ["verify", folder, "--reference", known[name], "--replay", "--runtime", runtime]
            case["replayed"] = part.attempt(f"{name} on {runtime}, replayed", work.planish_run, words, part.limit(SECONDS, name)) is not None
            cases.append(case)
        if name != "bert":
            same = part.attempt(f"generation by {name}", generated, work, part, folder)
            cases.append({"model": name, "runtime": work.fused, "generation": same})


def generated(work: Work, part: Part, folder) -> bool:
    """Whether tokens are the same with graphs and without."""
    words = ["generate", folder, "--ids", "3,5,7", "--max-new-tokens", 20, "--runtime", work.fused, "--json"]
    texts = [work.planish_run([*words, *more], part.limit(SECONDS, "generate")).output for more in ([], ["--runtime-option=cuda-graph=false"])]
    if tokens(texts[0]) != tokens(texts[1]):
        part.problems.append(f"generation by {folder.name} gives other tokens with CUDA graphs than without")
        return False
    return True


def tokens(text: str):
    return json.loads(text)["ids"]
