"""The texts of the bench: paragraphs of two domains, and the lines that contestants are calibrated on.

Everything comes from the machine: the licenses that Debian installs, and the docstrings of Python's standard library.
The same files give the same texts. Standard library only.
"""

import ast
import hashlib
import json
import re
import sysconfig
from pathlib import Path
from typing import Dict, Iterable, List

LICENSES = Path("/usr/share/common-licenses")
# The license that the calibration lines come from. No other text of the bench comes from it.
CALIBRATION_LICENSE = "Apache-2.0"
WORDS = 20  # that a paragraph has at least
COUNTS = {"licenses": 230, "docstrings": 250, "calibration": 100, "calibration-64": 100}


def paragraphs(text: str) -> List[str]:
    """The paragraphs of at least WORDS words, each on one line."""
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [block for block in blocks if len(block.split()) >= WORDS]


def lines(text: str) -> List[str]:
    """The lines of at least 4 words."""
    return [" ".join(line.split()) for line in text.splitlines() if len(line.split()) >= 4]


def docstrings(source: str) -> List[str]:
    """The paragraphs of the docstrings of a module; doctests are not texts."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    found = (paragraph for node in nodes for paragraph in paragraphs(ast.get_docstring(node) or ""))
    return [paragraph for paragraph in found if ">>>" not in paragraph]


def choose(texts: Iterable[str], count: int) -> List[str]:
    """So many of the texts, each once, by the order of their digests."""
    distinct = sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())
    if len(distinct) < count:
        raise ValueError(f"{count} texts are wanted, and there are {len(distinct)}")
    return distinct[:count]


def joined(texts: List[str], words: int, count: int) -> List[str]:
    """Texts of at least so many words each, made of neighbours; the first texts follow the last ones."""
    made, at = [], 0
    while len(made) < count:
        text: List[str] = []
        while len(text) < words:
            text += texts[at % len(texts)].split()
            at += 1
        made.append(" ".join(text))
    return made


def collect() -> Dict[str, List[str]]:
    """The texts by the names of their sets."""
    licenses = {path.name: path.read_text(errors="replace") for path in sorted(LICENSES.iterdir()) if not path.is_symlink()}
    if CALIBRATION_LICENSE not in licenses:
        raise FileNotFoundError(f"{LICENSES / CALIBRATION_LICENSE} is missing: the bench takes its texts from Debian's licenses")
    calibration = lines(licenses.pop(CALIBRATION_LICENSE))
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return {
        "licenses": choose((p for text in licenses.values() for p in paragraphs(text)), COUNTS["licenses"]),
        "docstrings": choose((p for path in modules for p in docstrings(path.read_text())), COUNTS["docstrings"]),
        "calibration": calibration[: COUNTS["calibration"]],
        # A word is a token or more, so that a tokenizer cuts each text at 64 tokens.
        "calibration-64": joined(calibration, 64, COUNTS["calibration-64"]),
    }


def write(folder: Path) -> Dict[str, Dict[str, object]]:
    """Writes NAME.jsonl for each set, and returns the size and the digest of each."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, texts in collect().items():
        data = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
        (folder / f"{name}.jsonl").write_bytes(data)
        written[name] = {"texts": len(texts), "sha256": hashlib.sha256(data).hexdigest()}
    return written


def read(path: Path) -> List[str]:
    """The texts of a .jsonl file."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]
