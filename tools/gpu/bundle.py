"""What a check on another machine needs, in one folder."""

import os
import shutil
import subprocess
from pathlib import Path

MOST = 60 * 2**20
# What a checkpoint has beside its configuration that a check reads.
FILES = ("config.json", "generation_config.json", "model.safetensors")


def write(target: Path, planish: Path, fixtures: Path, tools: Path) -> str:
    """Copies the binary, the small checkpoints and the script into a folder that must not be there yet.

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
    size = sum(os.path.getsize(path) for path in target.rglob("*") if path.is_file())
    if size > MOST:
        raise ValueError(f"{target} has {size / 2**20:.1f} MiB, and at most {MOST // 2**20} are allowed; is the binary a release?")
    return (
        f"{target} has {size / 2**20:.1f} MiB. On the machine with the GPU, in this folder:\n"
        "  python3 tools/gpu_check.py ./planish --out results"
    )


def strip(binary: Path) -> None:
    """Removes symbols, where the program `strip` is there; a release binary has none."""
    if shutil.which("strip"):
        subprocess.run(["strip", str(binary)], check=False, capture_output=True)
