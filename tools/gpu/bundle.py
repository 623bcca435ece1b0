"""What a check on another machine needs, in one folder."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import List, Tuple

from . import checkpoints
from .correctness import PRECISIONS, goldens_of
from .speed import options

MOST = 60 * 2**20
# A folder of caches in the bundle, compressed: kernels that are compiled ahead for the GPU of the check.
CACHE = Path(__file__).resolve().parent.parent.parent / "cache.tar.xz"
# Sizes at which kernels of small checkpoints are compiled: --batch, --seq and --past.
SIZES = [(2, 9, 0), (2, 1, 9)]
# What a checkpoint has beside its configuration that a check reads.
FILES = ("config.json", "generation_config.json", "model.safetensors")


def write(target: Path, planish: Path, fixtures: Path, tools: Path, architecture: str = "") -> str:
    """Copies the binary, the small checkpoints and the script into a folder that must not be there yet. With an architecture,
    e.g. sm_90, kernels are compiled for it; that needs NVRTC, and takes minutes.

    Raises ValueError where the folder is there, or gets too large.
    """
    if target.exists():
        raise ValueError(f"{target} is there already; name a new folder")
    (target / "tools").mkdir(parents=True)
    shutil.copy2(planish, target / "planish")
    strip(target / "planish")
    for config in sorted((fixtures / "goldens").glob("*/config.json")):
        folder = target / "fixtures" / "goldens" / config.parent.name
        folder.mkdir(parents=True)
        for name in FILES:
            if (config.parent / name).is_file():
                shutil.copy2(config.parent / name, folder / name)
    shutil.copy2(tools / "gpu_check.py", target / "tools" / "gpu_check.py")
    shutil.copytree(tools / "gpu", target / "tools" / "gpu", ignore=shutil.ignore_patterns("__pycache__"))
    kernels = fill(target, planish, fixtures, architecture) if architecture else 0
    size = sum(os.path.getsize(path) for path in target.rglob("*") if path.is_file())
    if size > MOST:
        raise ValueError(f"{target} has {size / 2**20:.1f} MiB, and at most {MOST // 2**20} are allowed; is the binary a release?")
    ahead = f", with {kernels} kernels for {architecture}" if architecture else ""
    return (
        f"{target} has {size / 2**20:.1f} MiB{ahead}. On the machine with the GPU, in this folder:\n"
        "  python3 tools/gpu_check.py ./planish --out results"
    )


def strip(binary: Path) -> None:
    """Removes symbols, where the program `strip` is there; a release binary has none."""
    if shutil.which("strip"):
        subprocess.run(["strip", str(binary)], check=False, capture_output=True)


def fill(target: Path, planish: Path, fixtures: Path, architecture: str) -> int:
    """Compiles the kernels of the check for an architecture; returns how many there are.

    Raises ValueError where planish fails.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-bundle-") as scratch:
        folder = Path(scratch)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}

        def run(*words: object) -> None:
            done = subprocess.run([str(word) for word in (planish, *words)], env=environment, capture_output=True, text=True)
            if done.returncode != 0:
                raise ValueError(f"planish {words[0]}: {done.stderr.strip()}")

        run("runtimes", "--compile-kernels", architecture)
        for model, more, sizes in subjects(folder, fixtures):
            out = folder / "artifact"
            run("compile", model, "-o", out, "--force", "--target", "cuda", *more)
            has_past = "past_key_values" in (out / "planish.json").read_text()
            for batch, seq, past in (one for one in sizes if has_past or not one[2]):
                words = ["--batch", batch, "--seq", seq, *(["--past", past] if past else [])]
                run("inspect", out, "--show", "kernels", "--compile", architecture, *words)
        kernels = list((folder / "cache" / "planish" / "cuda").iterdir())
        with tarfile.open(target / CACHE.name, "w:xz") as archive:
            archive.add(folder / "cache" / "planish" / "cuda", "planish/cuda")
    return len(kernels)


def subjects(folder: Path, fixtures: Path) -> List[Tuple[Path, List[str], List[Tuple[int, int, int]]]]:
    """Models with options of compile and sizes: the small checkpoints, then those that are measured."""
    found = [(model, more, SIZES) for model in goldens_of(fixtures) for more in PRECISIONS.values()]
    large = {
        "bert-base": ("fp16", "bf16"), "gpt2": ("fp16", "bf16"), "llama-1.1b": ("bf16",), "gpt2-head": ("fp16", "bf16"),
    }
    for name, halves in large.items():
        model = folder / "models" / name
        checkpoints.write(model, checkpoints.CONFIGS[name])
        sizes = [(1, 128, 0), (32, 128, 0), (8, 512, 0), (1, 1, 512), (1, 1, 1000)]
        found += [(model, options(half), sizes) for half in halves]
    return found
