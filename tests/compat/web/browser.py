#!/usr/bin/env python3
"""Opens the page of this folder in headless Chromium, where onnxruntime-web runs the models, and takes screenshots.

    browser.py MODULES FOLDER SCREENSHOTS

MODULES is a folder with the package @huggingface/transformers in node_modules, and FOLDER is what prepare.py wrote. A server on 127.0.0.1 has
all that the page asks for. Exits 1 when a result is another than planish's, when the page asks for something elsewhere, or when it is wider
than a screen. Needs Chromium (Debian: apt install chromium; or set CHROMIUM).
"""

import base64
import functools
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent.parent.parent / "tools"))
from check_report import LOOK, Browser, chromium  # noqa: E402

WIDTHS = (1280, 390)
SECONDS = 600
FINISHED = f"Promise.race([finished, new Promise((_, stop) => setTimeout(() => stop(new Error('no result in {SECONDS} s')), {SECONDS * 1000}))])"


class Handler(SimpleHTTPRequestHandler):
    """Serves the page, the modules and the models."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}

    def __init__(self, *args: Any, modules: Path, folder: Path) -> None:
        self.modules, self.folder = modules, folder
        super().__init__(*args)

    def translate_path(self, path: str) -> str:
        roots = {"modules": self.modules / "node_modules", "models": self.folder / "models", "wanted.json": self.folder / "wanted.json"}
        first, *rest = path.split("?")[0].lstrip("/").split("/")
        if ".." in rest:
            return str(HERE / "missing")
        return str(roots.get(first, HERE / (first or "index.html")).joinpath(*rest))

    def log_message(self, *_: object) -> None:
        pass


def evaluate(browser: Browser, session: str, expression: str) -> Any:
    answer = browser.call("Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True)
    if "exceptionDetails" in answer:
        raise SystemExit(f"the page failed: {answer['exceptionDetails']['exception'].get('description')}")
    return answer["result"].get("value")


def screenshot(browser: Browser, session: str, width: int, path: Path) -> list[str]:
    """Takes a picture of the page on a screen of this width, and returns what is wrong about the page there."""
    phone = width < 600
    scale = 2 if phone else 1
    browser.call("Emulation.setDeviceMetricsOverride", session, width=width, height=844 if phone else 900, deviceScaleFactor=scale, mobile=phone)
    size = browser.call("Page.getLayoutMetrics", session)["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
    image = browser.call("Page.captureScreenshot", session, clip=clip, captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(image["data"]))
    return [f"{width} px: {problem}" for problem in evaluate(browser, session, f"{LOOK}({width})")["problems"]]


def check(program: str, address: str, shots: Path) -> list[str]:
    """Opens the page; returns what is wrong."""
    problems = []
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(program, profile)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable", session)
        browser.call("Page.navigate", session, url=address)
        browser.wait("Page.loadEventFired", session)
        results = evaluate(browser, session, FINISHED)
        for result in results:
            print(f"Chromium: {result['task']}, {result['variant']}: {result['said']}{'' if result['passed'] else ': FAILED'}")
        problems += [f"{result['task']}, {result['variant']}: {result['said']}" for result in results if not result["passed"]]
        for width in WIDTHS:
            problems += screenshot(browser, session, width, shots / f"{width}.png")
        for event in browser.events:
            method, params = event.get("method"), event.get("params", {})
            url = params.get("request", {}).get("url", "")
            if method == "Network.requestWillBeSent" and not url.startswith((address, "data:", "blob:")):
                problems.append(f"the page asks for {url}")
            elif method == "Runtime.exceptionThrown":
                problems.append(f"exception: {params['exceptionDetails'].get('text')}")
        browser.close()
    return problems if results else [*problems, "nothing was compared"]


def main() -> None:
    modules, folder, shots = map(Path, sys.argv[1:])
    program = chromium()
    if not program:
        raise SystemExit("Chromium is not there: apt install chromium, or name it in CHROMIUM")
    shots.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, modules=modules, folder=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    problems = check(program, f"http://127.0.0.1:{server.server_port}/", shots)
    server.shutdown()
    if problems:
        raise SystemExit("\n".join(problems))
    print(f"screenshots are in {shots}", file=sys.stderr)


if __name__ == "__main__":
    main()
