"""The page of a check: `gpu.html`, which stands by itself."""

import html
import re
from pathlib import Path
from typing import Dict, List

from . import findings, report

STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c0392b; --good: #1e8449; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: left; vertical-align: top; }
th { font-weight: 600; } code { font-size: .92em; }
.bad { color: var(--bad); } .good { color: var(--good); } .trial { border: 2px solid var(--bad); padding: .5rem 1rem; }
ol li { margin: .3rem 0; overflow-wrap: anywhere; } .part { color: #888; }
"""


def inline(text: str) -> str:
    """A line of Markdown: code and strong words."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*(.+?)\*\*", r'<strong class="bad">\1</strong>', text)


def cells(line: str) -> List[str]:
    """The cells of a row of a table."""
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def table(lines: List[str]) -> str:
    head, rows = cells(lines[0]), [cells(line) for line in lines[2:]]
    row = lambda tag, of: "<tr>" + "".join(f"<{tag}>{inline(cell)}</{tag}>" for cell in of) + "</tr>"
    return "<table><thead>" + row("th", head) + "</thead><tbody>" + "".join(row("td", of) for of in rows) + "</tbody></table>"


def converted(markdown: str) -> str:
    """The tables, headings and paragraphs that `report` writes."""
    blocks = []
    for block in markdown.split("\n\n"):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0].startswith("|"):
            blocks.append(table(lines))
        elif lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#"))
            blocks.append(f"<h{level}>{inline(lines[0].lstrip('# '))}</h{level}>")
        else:
            blocks.append(f"<p>{inline(' '.join(lines))}</p>")
    return "\n".join(blocks)


def text(document: Dict) -> str:
    """The whole page."""
    found = findings.all_of(document)
    if found:
        items = "".join(f'<li><span class="part">{html.escape(one.part)}:</span> {inline(one.text)}</li>' for one in found)
        mend = f"<p>{len(found)} findings, what is wrong before what is slow.</p><ol>{items}</ol>"
    else:
        mend = '<p class="good">Nothing: every part that ran passed.</p>'
    left = [name for name, part in document["parts"].items() if part["verdict"] in ("not run", "incomplete")]
    if left:
        mend += f"<p>Not run, or not to the end: {html.escape(', '.join(left))}. The notes below say why.</p>"
    trial = '<p class="trial">A trial without a GPU: the times say nothing about one.</p>' if document.get("trial") else ""
    gpu = document["parts"].get("environment", {}).get("data", {}).get("gpu") or {}
    heading = html.escape(gpu.get("name") or "no GPU")
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>planish on {heading}</title><style>{STYLE}</style>\n<h1>planish on {heading}</h1>\n{trial}"
        f"<h2>What to mend</h2>\n{mend}\n<h2>What was checked and measured</h2>\n{converted(report.text(document))}\n</html>\n"
    )


def write(folder: Path, document: Dict) -> None:
    """Writes the page."""
    (folder / "gpu.html").write_text(text(document), encoding="utf-8")
