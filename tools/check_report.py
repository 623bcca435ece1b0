#!/usr/bin/env python3
"""Opens the report of a benchmark in Chromium and looks at what a reader would see.

    tools/check_report.py PAGE [SCREENSHOTS]

PAGE is what `planish bench --html` wrote; SCREENSHOTS is target/report-screenshots by default. The page is opened at 1280
and 390 pixels, light and dark, without scripts, and printed. Errors are: a message on the console; a request for anything
but the page; a page wider than the screen; a plot without marks, with an empty box, with text beyond its edge or on other
text; text without enough contrast. Needs Python 3.9 and Chromium (Debian: apt install chromium; or set CHROMIUM).
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = Path(__file__).resolve().parent.parent / "target" / "report-screenshots"

# A function of the width of the screen that returns the problems of the page as it is shown, and the number of plots that were
# looked at.
LOOK = r"""(screen => {
  const problems = [], seen = element => element.getClientRects().length > 0;
  const root = document.documentElement;
  // Not innerWidth: a phone widens that to what the page takes.
  if (root.scrollWidth > screen) problems.push(`the page is ${root.scrollWidth} px wide, the screen ${screen}`);
  const plots = [...document.querySelectorAll('svg.plot')].filter(seen);
  for (const plot of plots) {
    const name = plot.querySelector('title').textContent, frame = plot.getBoundingClientRect();
    if (frame.width < 200 || frame.height < 60) problems.push(`${name}: ${frame.width} x ${frame.height} px`);
    const marks = [...plot.querySelectorAll('.mark')];
    if (!marks.length) problems.push(`${name}: no marks`);
    for (const mark of marks) {
      const box = mark.getBoundingClientRect();
      if (!(box.width > 0 && box.height > 0)) problems.push(`${name}: an empty mark`);
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        problems.push(`${name}: the mark "${mark.querySelector('title').textContent}" is beyond the edge`);
    }
    const texts = [...plot.querySelectorAll('text')].map(text => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        problems.push(`${name}: the text "${text.textContent}" is beyond the edge`);
    }
    // Marks may lie on each other, since points do; names and ticks may not.
    const alone = texts.filter(([text]) => !text.classList.contains('in'));
    alone.forEach(([a, one], index) => alone.slice(index + 1).forEach(([b, other]) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 4) problems.push(`${name}: "${a.textContent}" is on "${b.textContent}"`);
    }));
  }
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const rgb = text => text.match(/[\d.]+/g).map(Number);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const paper = rgb(getComputedStyle(document.body).backgroundColor), low = new Set();
  for (const element of document.body.querySelectorAll('*')) {
    if (!seen(element) || ![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    if (['title', 'desc'].includes(element.localName)) continue;
    const style = getComputedStyle(element), drawn = element.localName === 'text';
    const ink = rgb(drawn ? style.fill : style.color);
    const under = drawn && element.classList.contains('in') ? rgb(style.color) : paper;
    const ratio = contrast(ink, under);
    if (ratio < 4.5) low.add(`${element.localName}.${element.getAttribute('class')}: contrast ${ratio.toFixed(2)}`);
  }
  problems.push(...low);
  return {problems, plots: plots.length};
})"""


class Browser:
    """Chromium, by its debugging protocol over two pipes: messages are JSON, each ended by a zero byte."""

    def __init__(self, program: str, profile: str) -> None:
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]

        def place() -> None:  # the protocol is on the descriptors 3 and 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(words, preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.last, self.events = b"", 0, []  # type: bytes, int, List[Dict[str, Any]]

    def receive(self) -> Dict[str, Any]:
        while b"\0" not in self.buffer:
            piece = os.read(self.answers, 1 << 20)
            if not piece:
                raise SystemExit("Chromium ended before its answer")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method: str, session: Optional[str] = None, **params: Any) -> Dict[str, Any]:
        self.last += 1
        message = {"id": self.last, "method": method, "params": params, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, method: str, session: str) -> None:
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self.receive())

    def close(self) -> None:
        self.call("Browser.close")
        self.process.wait(30)


def messages(events: List[Dict[str, Any]], page: str) -> List[str]:
    """What the events of a page have that there should not be."""
    found = []
    for event in events:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            found.append(f"exception: {params['exceptionDetails'].get('text')}")
        elif method == "Runtime.consoleAPICalled":
            found.append(f"console: {params['args']}")
        elif method == "Log.entryAdded":
            found.append(f"log: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent" and params["request"]["url"].split("#")[0] != page:
            found.append(f"request: {params['request']['url']}")
    return found


def opened(browser: Browser, page: str, width: int, scheme: str, scripts: bool = True) -> Tuple[str, str]:
    """Opens the page in a tab of its own, of a phone where it is narrow; returns the tab and its session."""
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
        browser.call(f"{domain}.enable", session)
    phone = width < 600
    browser.call("Emulation.setDeviceMetricsOverride", session, width=width, height=844 if phone else 900,
                 deviceScaleFactor=2 if phone else 1, mobile=phone)
    browser.call("Emulation.setEmulatedMedia", session, features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.call("Emulation.setScriptExecutionDisabled", session, value=not scripts)
    browser.events.clear()
    browser.call("Page.navigate", session, url=page)
    browser.wait("Page.loadEventFired", session)
    return target, session


def answered(browser: Browser, session: str, script: str) -> Any:
    """What a script of the test returns in the page."""
    answer = browser.call("Runtime.evaluate", session, expression=script, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in answer:
        raise SystemExit(f"the test's script failed: {answer['exceptionDetails']['exception']['description']}")
    return answer["result"]["value"]


def screenshot(browser: Browser, session: str, width: int, path: Path, most: float = float("inf")) -> float:
    """Takes a screenshot of the page, so many pixels of its height at most; returns the height."""
    size = browser.call("Page.getLayoutMetrics", session)["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": width, "height": min(size["height"], most), "scale": 1}
    image = browser.call("Page.captureScreenshot", session, clip=clip, captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(image["data"]))
    return size["height"]


def look(browser: Browser, page: str, width: int, scheme: str, scripts: bool, shots: Path) -> List[str]:
    """Opens the page, takes a screenshot, and returns what is wrong."""
    target, session = opened(browser, page, width, scheme, scripts)
    name = f"{width}-{scheme}" + ("" if scripts else "-without-scripts")
    height = screenshot(browser, session, width, shots / f"{name}.png")
    problems = messages(browser.events, page)
    if scripts:
        # The page has no scripts: this one is the test's.
        seen = answered(browser, session, f"{LOOK}({width})")
        problems += seen["problems"]
        if seen["plots"] == 0:
            problems.append("no plot is shown")
        print(f"{name}: {seen['plots']} plots, {height:.0f} px high, {len(problems)} problems")
    if width > 600 and scheme == "light" and scripts:
        printed = browser.call("Page.printToPDF", session, printBackground=True, preferCSSPageSize=True)
        (shots / "print.pdf").write_bytes(base64.b64decode(printed["data"]))
    browser.call("Target.closeTarget", targetId=target)
    return [f"{name}: {problem}" for problem in problems]


def chromium() -> Optional[str]:
    """The program, if it is there."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def check(program: str, path: Path, shots: Path) -> List[str]:
    """Opens a page in all ways, and returns what is wrong."""
    page = path.resolve().as_uri()
    shots.mkdir(parents=True, exist_ok=True)
    problems = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                problems += look(browser, page, width, scheme, True, shots)
            problems += look(browser, page, width, "light", False, shots)
        browser.close()
    for width in (1280, 390):
        with_scripts, without = (shots / f"{width}-light{end}.png" for end in ("", "-without-scripts"))
        if with_scripts.read_bytes() != without.read_bytes():
            problems.append(f"{width}: the page looks different without scripts")
    if not (shots / "print.pdf").read_bytes().startswith(b"%PDF"):
        problems.append("the page was not printed")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description="Opens the report of a benchmark in Chromium.")
    parser.add_argument("page", type=Path, help="what planish bench --html wrote")
    parser.add_argument("screenshots", type=Path, nargs="?", default=SHOTS, help="where screenshots go")
    arguments = parser.parse_args()
    program = chromium()
    if not program:
        raise SystemExit("Chromium is not there: apt install chromium, or name it in CHROMIUM")
    problems = check(program, arguments.page, arguments.screenshots)
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"screenshots are in {arguments.screenshots}", file=sys.stderr)


if __name__ == "__main__":
    main()
