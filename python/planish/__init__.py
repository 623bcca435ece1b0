"""planish from Python: functions that run the program `planish` and return its JSON documents.

    import planish
    made = planish.compile("sentence-transformers/all-MiniLM-L6-v2", output="minilm", int8=True, calibrate="texts.txt")
    made["artifact"], made["manifest"]["verification"]

Arguments are the options of the command line, with `_` for `-`: `True` gives a switch, a list gives the option once for each value, and
`None` and `False` leave it out. `python -m planish compile --help` lists them. Notes and warnings go to standard error, when a command has
ended. `run` takes the other commands that have `--json`.
"""

import json
import subprocess
import sys
from typing import Any, List

from ._binary import binary

__all__ = ["Error", "binary", "compile", "evaluate", "inspect", "run", "verify"]


class Error(RuntimeError):
    """A command that failed: its message, `code`, its exit code (3: a comparison failed), and `document`, what it printed, or None."""

    def __init__(self, message: str, code: int, document: Any) -> None:
        super().__init__(message)
        self.code = code
        self.document = document


def _document(text: str) -> Any:
    """The JSON document in a text; a list of them where there are several; None where there is none."""
    decoder, found, text = json.JSONDecoder(), [], text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found[0] if len(found) == 1 else found or None


def _words(options: dict) -> List[str]:
    words = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if one is None or one is False:
                continue
            # With `=` a value may begin with a dash.
            words.append(option if one is True else f"{option}={one}")
    return words


def run(command: str, *arguments: Any, **options: Any) -> Any:
    """Runs `planish COMMAND ARGUMENTS --json OPTIONS` and returns the document that it prints; a list where it prints several.

    Raises Error where the command fails, with what it wrote on standard error.
    """
    words = [binary(), command, *map(str, arguments), "--json", *_words(options)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    document = _document(done.stdout)
    if done.returncode:
        raise Error(done.stderr.strip() or f"planish {command} ended with {done.returncode}", done.returncode, document)
    sys.stderr.write(done.stderr)
    return document


def compile(model: Any, output: Any = None, **options: Any) -> dict:  # noqa: A001, the command's name
    """Compiles a checkpoint or an ONNX graph. Returns {"artifact": its folder, "manifest": what its planish.json says}."""
    return run("compile", model, output=output, **options)


def verify(artifact: Any, **options: Any) -> dict:
    """Compares an artifact with its source. Raises Error with the code 3 and the report where they differ."""
    return run("verify", artifact, **options)


def evaluate(artifact: Any, **options: Any) -> dict:
    """Measures on data (`data="texts.jsonl"`) how close an artifact is to its source."""
    return run("evaluate", artifact, **options)


def inspect(path: Any, **options: Any) -> dict:
    """Inputs, outputs, weights and operators of an artifact, a checkpoint or a graph."""
    return run("inspect", path, **options)
