#!/usr/bin/env python3
"""Opens pages of `planish inspect --html` in Chromium, uses them as a reader would, and looks at what is shown.

    tools/check_inspect.py PAGE... [--screenshots FOLDER]

Each page is opened at 1280 and 390 pixels, light and dark. Layers and nodes are opened, an input of a node is followed to the node that
makes it, and nodes are searched for. Errors are: a message on the console; a request for anything but the page; a page wider than the
screen; text without enough contrast; a step that does not show what it should, or takes longer than a second. Needs Python 3.9 and
Chromium (Debian: apt install chromium; or set CHROMIUM).
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import List

from check_report import LOOK, SHOTS, Browser, answered, chromium, messages, opened, screenshot

# What a reader does; returns the problems. A node with an operand that another node makes is looked for first.
USE = r"""(async () => {
  const problems = [], all = selector => [...document.querySelectorAll(selector)];
  const shown = () => new Promise(done => requestAnimationFrame(() => setTimeout(done, 30)));
  const timed = async (what, step) => {
    const start = performance.now();
    step();
    await shown();
    const took = performance.now() - start;
    if (took > 1000) problems.push(`${what} took ${took.toFixed(0)} ms`);
  };
  const layers = all('.layer');
  if (!layers.length) return ['there is no layer'];
  if (all('.node').length && !location.hash) problems.push('nodes are there before anybody asks');
  const largest = layers.reduce((a, b) => parseInt(b.querySelector('.soft').textContent) > parseInt(a.querySelector('.soft').textContent) ? b : a);
  await timed('a layer', () => { largest.open = true; });
  const nodes = all('.node');
  if (!nodes.length) problems.push('a layer shows no node');
  if (nodes.length > 200) problems.push(`${nodes.length} nodes are shown at once`);
  for (const node of nodes) {
    node.open = true;
    await shown();
    if (!node.querySelector('dl')) { problems.push('a node shows nothing'); break; }
    const maker = node.querySelector('dd').querySelector('.jump');
    if (!maker) continue;
    const name = maker.textContent;
    await timed('a jump', () => maker.click());
    const found = document.querySelector('.found');
    if (!found || !found.open) { problems.push(`the node that makes ${name} is not shown`); break; }
    if (![...found.querySelectorAll('.value')].some(value => value.textContent.includes(name))) problems.push(`another node is shown for ${name}`);
    break;
  }
  const search = document.getElementById('search');
  const word = nodes[0].querySelector('.op').textContent;
  search.value = word;
  await timed('a search', () => search.dispatchEvent(new Event('input')));
  await new Promise(done => setTimeout(done, 300));
  if (!all('#hits li').length || all('#hits li').length > 100) problems.push(`${all('#hits li').length} nodes are found for ${word}`);
  search.value = 'there is no such node';
  search.dispatchEvent(new Event('input'));
  await new Promise(done => setTimeout(done, 300));
  if (document.getElementById('count').textContent !== '0 nodes') problems.push('what is not there is found');
  search.value = word;
  search.dispatchEvent(new Event('input'));
  await new Promise(done => setTimeout(done, 300));
  return problems;
})()"""


def look(browser: Browser, page: str, width: int, scheme: str, name: str, shots: Path) -> List[str]:
    """Opens the page in a tab of its own, uses it, takes a screenshot, and returns what is wrong."""
    target, session = opened(browser, page, width, scheme)
    problems = answered(browser, session, USE) + answered(browser, session, f"{LOOK}({width})")["problems"]
    problems += messages(browser.events, page)
    height = screenshot(browser, session, width, shots / f"{name}-{width}-{scheme}.png", 5000)
    browser.call("Target.closeTarget", targetId=target)
    print(f"{name} {width}-{scheme}: {height:.0f} px high, {len(problems)} problems")
    return [f"{name} {width}-{scheme}: {problem}" for problem in problems]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="+", help="what planish inspect --html wrote")
    parser.add_argument("--screenshots", type=Path, default=SHOTS, help="where screenshots go")
    arguments = parser.parse_args()
    program = chromium()
    if not program:
        raise SystemExit("Chromium is not there: apt install chromium, or name it in CHROMIUM")
    arguments.screenshots.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        for page in arguments.pages:
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    problems += look(browser, page.resolve().as_uri(), width, scheme, page.stem, arguments.screenshots)
        browser.close()
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"screenshots are in {arguments.screenshots}", file=sys.stderr)


if __name__ == "__main__":
    main()
