"""What the checks of this folder share: cases, compiling them, comparing, and a line for each."""

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


class Mismatch(Exception):
    """The case fails; the message says in what."""


class Case:
    """A checkpoint with stored inputs and outputs."""

    def __init__(self, text: str):
        """CASE as scripts take it: a folder with an io.safetensors in it, or MODEL:IO."""
        model, _, io = text.partition(":")
        self.model = Path(model)
        self.io = Path(io) if io else self.model / "io.safetensors"
        self.name = self.model.name

    def model_type(self) -> str:
        """The type that config.json names."""
        return json.loads((self.model / "config.json").read_text())["model_type"]

    def tensors(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs and expected outputs, without `in.` and `out.`."""
        stored = load_file(self.io)
        take = lambda prefix: {name.removeprefix(prefix): t for name, t in stored.items() if name.startswith(prefix)}
        inputs, expected = take("in."), take("out.")
        if not expected:
            raise Mismatch(f"{self.io} holds no out.NAME")
        return inputs, expected

    def compile(self, planish: Path, folder: Path, *more: str) -> Path:
        """Compiles the checkpoint into `folder`, which must not be there yet."""
        return compiled(planish, self.model, folder, *more)


def compiled(planish: Path, model: Path, folder: Path, *more: str) -> Path:
    """Compiles a checkpoint into `folder`, which must not be there yet."""
    command = [planish, "compile", model, "-o", folder, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Mismatch(f"compile exited with {done.returncode}: {done.stderr.strip()}")
    return folder


def difference(what: str, got: np.ndarray, want: np.ndarray, mask: np.ndarray | None, tolerance: float) -> float:
    """Largest absolute difference, relative to the largest expected value where that is above 1.

    Positions of the first two axes that `mask` hides are not compared: nothing is promised for them.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Mismatch(f"{what}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    if mask is not None and want.shape[:2] == mask.shape:
        got, want = got[mask], want[mask]
    largest = max(1.0, float(np.abs(want).max()))
    found = float(np.abs(got.astype(np.float64) - want).max()) / largest
    # Written so that a NaN fails.
    if not found <= tolerance:
        raise Mismatch(f"{what}: differs by {found:.1e}, {tolerance:g} allowed")
    return found


def same_ids(what: str, got: np.ndarray, want: np.ndarray) -> None:
    """Generated ids, which must be equal."""
    got, want = np.asarray(got).tolist(), want.tolist()
    if got != want:
        raise Mismatch(f"{what}: {got}, expected {want}")


def as_known(known: str | None, check: Callable[[], str]) -> str:
    """What a check returns, or where a limit is known, that it fails with that in its message, and with nothing else."""
    if known is None:
        return check()
    try:
        check()
    except Exception as e:
        if known not in str(e):
            raise
        return f"fails as known: {' '.join(known.split())}"
    raise Mismatch("this passes now: take it out of KNOWN")


class Lines:
    """A line for each check of a library, and how many failed."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.checked = self.failed = 0

    def check(self, name: str, check: Callable[[], str]) -> None:
        self.checked += 1
        text = " ".join(part for part in (f"{self.label:10}", f"{name:24}") if part.strip())
        try:
            print(f"ok    {text} {check()}", flush=True)
        # Whatever a library raises is a failure of this case, not the end of the others.
        except Exception as error:
            self.failed += 1
            print(f"FAIL  {text} {type(error).__name__}: {error}", flush=True)

    def ended(self) -> int:
        """Prints the counts; returns the exit code."""
        print(f"{self.checked - self.failed} passed, {self.failed} failed")
        return int(self.failed > 0)


def check_all(cases: list[Case], label: str, check: Callable[[Case, Path], str]) -> int:
    """Checks each case with a scratch folder, prints a line each; returns the exit code."""
    lines = Lines(label)
    for case in cases:
        with tempfile.TemporaryDirectory() as scratch:
            lines.check(case.name, lambda: check(case, Path(scratch)))  # noqa: B023, called at once
    return lines.ended()
