#!/usr/bin/env python3
"""Writes the help of each command into the manual.

    tools/cli_reference.py PLANISH [PAGE]

PLANISH is the binary, PAGE is docs/cli.md by default. A section of the page stands between the lines

    <!-- help compile: begin -->
    <!-- help compile: end -->

and is replaced by what `planish compile --help` prints. A command of a command has a section of both words, such as
`bench diff`. The section without a command, `<!-- help: begin -->`, has what
`planish --help` prints. A command without a section is an error, and so is a section without a command. The test
tests/end_to_end/manual.rs compares the page with the help. Needs Python 3.9, nothing else.
"""

import argparse
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Callable, List

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
WIDTH = 110  # columns of the manual; clap prints a paragraph as one line
SECTION = re.compile(r"<!-- help ?(?P<command>[^:\n]*): begin -->\n(?P<text>.*?)<!-- help ?(?P=command): end -->", re.DOTALL)
BESIDE = re.compile(r" +\S.*?  +(?=\S)")  # an option or a command before its description, on one line


def wrapped(line: str) -> List[str]:
    """A line of help in lines of the manual's width; what follows stands below the description."""
    line = line.rstrip()
    if len(line) <= WIDTH:
        return [line]
    beside = BESIDE.match(line)
    indent = beside.end() if beside else len(line) - len(line.lstrip())
    first, rest = line[:indent], line[indent:]
    lines = textwrap.wrap(rest, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return [(first if index == 0 else " " * indent) + text for index, text in enumerate(lines)]


def block(text: str) -> str:
    """The help of a command as a block of Markdown."""
    lines = [line for whole in text.strip().splitlines() for line in wrapped(whole)]
    return "```text\n" + "\n".join(lines) + "\n```\n"


def commands(text: str) -> List[str]:
    """The commands that the help of planish, or of a command, lists, in order."""
    listed = text.partition("\nCommands:\n")[2].split("\n\n", 1)[0]
    # With a long help, descriptions are below the names and further in.
    names = [line.split()[0] for line in listed.splitlines() if re.match(r" {2}\S", line)]
    return [name for name in names if name != "help"]


def rewritten(page: str, help_of: Callable[[str], str]) -> str:
    """The page with each section as the command prints it; `help_of("")` is the help of planish itself."""
    sections = [match["command"] for match in SECTION.finditer(page)]
    wanted = [""]
    for command in commands(help_of("")):
        wanted += [command, *(f"{command} {name}" for name in commands(help_of(command)))]
    if sorted(sections) != sorted(wanted):
        missing = [name for name in wanted if name not in sections]
        unknown = [name for name in sections if sections.count(name) > 1 or name not in wanted]
        raise SystemExit(f"the page has no section for {missing}, and a wrong section for {unknown}")

    def section(match: "re.Match[str]") -> str:
        begin, end = match[0].split("\n", 1)[0], match[0].rsplit("\n", 1)[1]
        return f"{begin}\n{block(help_of(match['command']))}{end}"

    return SECTION.sub(section, page)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the help of each command into the manual.")
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("page", type=Path, nargs="?", default=PAGE, help="the manual")
    arguments = parser.parse_args()

    def help_of(command: str) -> str:
        words = ["planish", *command.split(), "--help"]  # clap prints the name that it was called by
        return subprocess.run(words, executable=arguments.planish, check=True, capture_output=True, text=True).stdout

    page = arguments.page.read_text()
    new = rewritten(page, help_of)
    if new == page:
        print(f"{arguments.page} is up to date")
        return
    arguments.page.write_text(new)
    print(f"{arguments.page} was updated", file=sys.stderr)


if __name__ == "__main__":
    main()
