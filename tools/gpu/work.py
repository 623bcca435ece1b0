"""What the parts of a check share: the arguments, the log, commands with time limits, and what a part found."""

import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

# A command that is stopped for its time has this exit code, as with timeout(1).
STOPPED = 124


class Failed(Exception):
    """A step of a part did not do what it should; the message says which and what."""


class OutOfTime(Failed):
    """There is no time left for a step."""


class Missing(Failed):
    """What a comparison needs is not installed, which is no problem of planish."""


class Done(NamedTuple):
    """A command that ended."""

    code: int
    output: str
    errors: str
    seconds: float

    def why(self) -> str:
        """Its last lines, for a message."""
        lines = [line for line in (self.errors.strip() or self.output.strip()).splitlines() if line.strip()]
        if self.code == STOPPED:
            return f"stopped after {self.seconds:.0f} s"
        return f"exited with {self.code}: " + " / ".join(line.strip() for line in lines[-4:])[-600:]


class Log:
    """All commands with what they printed, in a file; lines for a reader on standard error too."""

    def __init__(self, path: Path):
        self.file = open(path, "a", encoding="utf-8")
        self.lock = threading.Lock()
        self.start = time.monotonic()

    def note(self, text: str) -> None:
        with self.lock:
            line = f"[{time.monotonic() - self.start:6.1f} s] {text}"
            os.write(2, (line + "\n").encode())
            self.file.write(line + "\n")
            self.file.flush()

    def command(self, words: Sequence[str], done: Done) -> None:
        with self.lock:
            self.file.write(f"$ {shlex.join(words)}\n{done.output}{done.errors}= {done.code}, {done.seconds:.2f} s\n\n")
            self.file.flush()


class Part:
    """What a part of the check found. `data` is filled while it runs, so that a part that is stopped keeps its figures."""

    def __init__(self, deadline: float):
        self.deadline = deadline
        self.problems: List[str] = []
        self.notes: List[str] = []
        self.data: Dict = {}
        # Whether time ended before everything was done, and whether nothing can be done here.
        self.late = self.absent = False

    def verdict(self) -> str:
        if self.problems:
            return "failed"
        return "not run" if self.absent else "incomplete" if self.late else "passed"

    def skip(self, note: str) -> None:
        """Notes what there was no time for."""
        self.late = True
        self.notes.append(note)

    def left(self) -> float:
        """The seconds that are left."""
        return self.deadline - time.monotonic()

    def limit(self, most: float, what: str, least: float = 2.0) -> float:
        """The seconds that a step may take.

        Raises OutOfTime where fewer than `least` are left.
        """
        left = self.left()
        if left < least:
            raise OutOfTime(f"{what}: not run, no time was left")
        return min(most, left)

    def attempt(self, what: str, step, *arguments):
        """Runs a step; what goes wrong becomes a problem of the part, and the others go on. Returns None then. A step that
        was stopped because the time of the part ended is a note."""
        try:
            return step(*arguments)
        except OutOfTime as problem:
            self.skip(str(problem))
        except Missing as problem:
            if str(problem) not in self.notes:
                self.notes.append(str(problem))
        except Failed as problem:
            if self.is_over():
                self.skip(f"{what}: {problem}")
            else:
                self.problems.append(f"{what}: {problem}")
        # An answer that the step did not expect is a problem of this step alone.
        except Exception as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
        return None

    def is_over(self) -> bool:
        """Whether the time of the part has ended, or as good as."""
        return self.left() < 1.0


class Work:
    """One check: the arguments and the folders."""

    def __init__(self, planish: Path, fixtures: Path, out: Path, scratch: Path, device: str, fused: str, baseline: str, small: bool):
        self.planish, self.fixtures, self.out, self.scratch = planish, fixtures, out, scratch
        self.device, self.fused, self.baseline, self.small = device, fused, baseline, small
        # The processes of tools that are in Python, PyTorch among them.
        self.python = "python3"
        # The architecture of the GPU, e.g. sm_90; empty without one.
        self.architecture = ""
        self.jobs = max(1, min(8, (os.cpu_count() or 2) // 2))
        self.environment: Dict[str, str] = {}
        self.torch: Optional[bool] = None
        self.log = Log(out / "log.txt")

    @property
    def runtimes(self) -> List[str]:
        """The fused runtime and its baseline, once each."""
        return list(dict.fromkeys([self.fused, self.baseline]))

    def run(self, words: Sequence[object], limit: float, folder: Optional[Path] = None) -> Done:
        """Runs a command to its end or to its limit in seconds; its processes are ended with it."""
        command = [str(word) for word in words]
        start = time.monotonic()
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            process = subprocess.Popen(
                command, cwd=folder or self.scratch, env={**os.environ, **self.environment}, start_new_session=True, **pipes
            )
        except OSError as error:
            done = Done(127, "", f"{error}\n", 0.0)
            self.log.command(command, done)
            return done
        try:
            output, errors = process.communicate(timeout=max(limit, 0.1))
            code = process.returncode
        except subprocess.TimeoutExpired:
            # planish ends with what it has on an interrupt. Processes that others started may ignore it.
            for ending, wait in ((signal.SIGINT, 3), (signal.SIGKILL, 1)):
                try:
                    os.killpg(process.pid, ending)
                    process.wait(wait)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
            # A process that the driver holds, or one in a session of its own, may keep the pipes open.
            try:
                output, errors = process.communicate(timeout=10)
            except subprocess.TimeoutExpired as left:
                output, errors = left.stdout or b"", left.stderr or b""
            code = STOPPED
        texts = [data.decode(errors="replace") for data in (output, errors)]
        done = Done(code, *texts, time.monotonic() - start)
        self.log.command(command, done)
        return done

    def need_torch(self) -> None:
        """Raises Missing where PyTorch is not installed."""
        if self.torch is None:
            done = self.run([self.python, "-c", "import importlib.util as u; print(u.find_spec('torch') is not None)"], 20)
            self.torch = done.output.strip() != "False"
        if not self.torch:
            raise Missing("PyTorch is not installed: nothing is compared with it")

    def planish_run(self, words: Sequence[object], limit: float) -> Done:
        """Runs planish.

        Raises Failed where it does not exit with 0.
        """
        done = self.run([self.planish, *words], limit)
        if done.code != 0:
            raise Failed(f"planish {words[0]} {done.why()}")
        return done

    def compile(self, model: Path, folder: Path, limit: float, *options: str) -> Path:
        """Compiles a model for target cuda; a folder that is there is taken as it is."""
        if not (folder / "planish.json").is_file():
            target = [] if "--target" in options else ["--target", "cuda"]
            self.planish_run(["compile", model, "-o", folder, *target, *options], limit)
        return folder
