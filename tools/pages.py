#!/usr/bin/env python3
"""Writes the manual pages and the completion scripts of planish as packages install them.

    tools/pages.py PLANISH FOLDER

PLANISH is the binary, FOLDER becomes what `share` has of it: man/man1/planish-compile.1 and so on, and the completions of bash, zsh and fish in
the folders where these shells look. Other files of FOLDER stay. Needs Python 3.9, nothing else.
"""

import subprocess
import sys
from pathlib import Path

COMPLETIONS = {
    "bash": "bash-completion/completions/planish",
    "zsh": "zsh/site-functions/_planish",
    "fish": "fish/vendor_completions.d/planish.fish",
}


def write(planish: str, folder: Path) -> int:
    """Writes all pages and scripts; returns how many."""

    def printed(*words: str) -> str:
        return subprocess.run([planish, *words], check=True, stdout=subprocess.PIPE, text=True).stdout

    commands = [line.split() for line in printed("man", "--list").splitlines()]
    texts = {f"man/man1/{'-'.join(words)}.1": printed("man", *words[1:]) for words in commands}
    texts |= {path: printed("completions", shell) for shell, path in COMPLETIONS.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return len(texts)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(f"{write(sys.argv[1], Path(sys.argv[2]))} files")
