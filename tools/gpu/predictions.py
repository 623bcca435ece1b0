"""What a GPU should take for runs of models, from the plans of their kernels: tables for a page, to be checked on a GPU."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, Tuple

from . import checkpoints
from .findings import title
from .measured import amount_text
from .report import replaced
from .speed import options
from .tables import markdown, number

MARKS = ("<!-- predictions: begin -->", "<!-- predictions: end -->")
# A model, its precision, and the sizes: rows, tokens of a row, tokens in the cache.
CASES: List[Tuple[str, str, List[Tuple[int, int, int]]]] = [
    ("bert-base", "fp16", [(batch, seq, 0) for batch in (1, 8, 32) for seq in (128, 512)]),
    ("gpt2", "fp16", [(1, 1, 512)]),
    ("llama-1.1b", "bf16", [(1, 1, 512), (1, 1, 2048)]),
]


def plans(planish: Path, gpu: str) -> List[Dict]:
    """The plan of each case by `planish inspect --show kernels`.

    Raises ValueError where planish fails.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="predictions-") as scratch:

        def run(*words: object) -> str:
            done = subprocess.run([str(word) for word in (planish, *words)], capture_output=True, text=True)
            if done.returncode != 0:
                raise ValueError(f"planish {words[0]}: {done.stderr.strip()}")
            return done.stdout

        for name, precision, sizes in CASES:
            model, out = Path(scratch) / name, Path(scratch) / f"{name}-{precision}"
            checkpoints.write(model, checkpoints.CONFIGS[name])
            run("compile", model, "-o", out, "--target", "cuda", *options(precision))
            for batch, seq, past in sizes:
                words = ["--batch", batch, "--seq", seq, *(["--past", past] if past else [])]
                plan = json.loads(run("inspect", out, "--show", "kernels", "--gpu", gpu, "--json", *words))
                shape = {"model": name, "precision": precision, "batch": batch, "seq": seq, "past": past}
                found.append({**shape, **plan["parts"][0]})
    return found


def row(name: str, kernels: str, of: Dict) -> List[str]:
    times = [number(of[key]) for key in ("least_us", "predicted_us")]
    return [name, kernels, str(of["launches"]), amount_text(of["flops"]), amount_text(of["bytes"]), *times]


def text(found: List[Dict]) -> str:
    """The tables: all runs, then each by its kernels."""
    figures = ["launches", "FLOPs", "bytes", "least us", "predicted us"]
    runs = markdown([["run", "kernels of", *figures], *(row(title(case), "all", case["total"]) for case in found)])
    sections = [runs]
    for case in found:
        rows = [row(of["operator"], ", ".join(of["kernels"]), of) for of in case["rows"]]
        sections += [f"#### {title(case)}", markdown([["operator", "kernels", *figures], *rows])]
    return "\n\n".join(sections)


def write(page: Path, planish: Path, gpu: str) -> None:
    """Writes the tables into a page."""
    body = text(plans(planish, gpu))
    page.write_text(replaced(page.read_text(), body, MARKS))
