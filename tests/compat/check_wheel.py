#!/usr/bin/env python3
"""Installs the wheel into fresh environments and uses it as a newcomer does, without Rust on the path.

    check_wheel.py WHEEL CHECKPOINT TEXTS [--most-megabytes 15]

In an environment with the extra `ort`: `planish runtimes` names the environment's ONNX Runtime; CHECKPOINT is compiled and verified; its
vectors of TEXTS are computed; `python -m planish` and `planish.compile` do the same; the manual page and the completions are installed. In an
environment without ONNX Runtime, and in one with ONNX Runtime 1.23, which is older than the binding takes, `embed` says what to install.
Prints the size of the wheel and the seconds of each step.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOO_OLD = "onnxruntime==1.23.2"


class Environment:
    """A fresh environment with the wheel; its commands see no other PATH than the system's, and no library of planish's variables."""

    def __init__(self, folder, wheel, *packages):
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.seconds = time.monotonic()
        pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, wheel, *packages], check=True)
        self.seconds = time.monotonic() - self.seconds

    def run(self, *words, code=0):
        variables = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        words = [self.folder / "bin" / words[0], *words[1:]]
        # From a folder with no .deps above it.
        done = subprocess.run(words, env={**variables, "PATH": "/usr/bin:/bin"}, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == code, f"{words} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}"
        return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--most-megabytes", type=float, default=15)
    a = parser.parse_args()
    wheel, checkpoint, texts = a.wheel.resolve(), a.checkpoint.resolve(), a.texts.resolve()
    megabytes = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {megabytes:.1f} MB")
    assert megabytes < a.most_megabytes, f"the wheel has more than {a.most_megabytes} MB"

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        begun = time.monotonic()
        used = Environment(folder / "used", f"{wheel}[ort]")
        print(f"pip install planish[ort]: {used.seconds:.1f} s")
        runtimes = json.loads(used.run("planish", "runtimes", "--json").stdout)
        ort = next(runtime for runtime in runtimes if runtime["name"] == "ort")
        assert ort["available"] and str(used.folder) in ort["location"], ort
        assert "the Python environment of planish" in ort["location"], ort
        print(used.run("planish", "compile", checkpoint, "-o", folder / "minilm", "--verify").stdout.strip())
        vectors = used.run("planish", "embed", folder / "minilm", "--data", texts, "-o", "-").stdout.splitlines()
        assert len(vectors) == len(texts.read_text().splitlines()), len(vectors)
        print(f"from the wheel to the vectors of {len(vectors)} texts: {time.monotonic() - begun:.1f} s")

        version = used.run("planish", "--version").stdout
        assert used.run("python", "-m", "planish", "--version").stdout == version
        program = (
            "import json, sys, planish\n"
            "made = planish.compile(sys.argv[1], output=sys.argv[2], fp16=True, quiet=True)\n"
            "assert made['artifact'].endswith('half'), made\n"
            "report = planish.verify(sys.argv[2])\n"
            "assert report, report\n"
            "try:\n"
            "    planish.compile('nowhere/at/all')\n"
            "except planish.Error as error:\n"
            "    assert error.code == 1 and 'nowhere/at/all' in str(error), (error.code, str(error))\n"
            "else:\n"
            "    raise SystemExit('a model that is not there was compiled')\n"
        )
        used.run("python", "-c", program, checkpoint, folder / "half")
        for page in ("man/man1/planish.1", "man/man1/planish-compile.1", "bash-completion/completions/planish", "zsh/site-functions/_planish"):
            assert (used.folder / "share" / page).stat().st_size > 1000, page

        bare = Environment(folder / "bare", wheel)
        error = bare.run("planish", "embed", folder / "minilm", "--data", texts, code=4).stderr
        assert 'pip install "planish[ort]"' in error, error
        old = Environment(folder / "old", wheel, TOO_OLD)
        error = old.run("planish", "embed", folder / "minilm", "--data", texts, code=4).stderr
        assert "it is version 1.23.2; 1.24 or newer is needed" in error and 'pip install "planish[ort]"' in error, error
    print("the wheel works in fresh environments")


if __name__ == "__main__":
    main()
