"""Tables and the picture of a bench of quantization. Standard library only."""

import json
import statistics
from pathlib import Path
from typing import Dict, List

from . import picture

DOMAINS = ["licenses", "docstrings"]


def speed(figures: Dict, name: str) -> float:
    """The geometric mean of the ratios over the shapes."""
    return statistics.geometric_mean(cell["ratio"] for cell in figures["latency"][name].values())


def accuracy_and_speed(figures: Dict) -> str:
    """A row for each contestant, the fastest first."""
    shapes = list(next(iter(figures["latency"].values())))
    domains = DOMAINS if figures["accuracy"] else []
    rows = [["", *(f"{domain}: cosine mean / least / neighbours %" for domain in domains), *(f"{s}: ms, ratio" for s in shapes)]]
    for name in sorted(figures["latency"], key=lambda name: -speed(figures, name)):
        row = [name]
        for domain in domains:
            of = figures["accuracy"][name][domain]
            row.append(f"{of['mean']:.5f} / {of['least']:.4f} / {of['neighbours']:.1f}")
        cells = (figures["latency"][name][shape] for shape in shapes)
        rows.append([*row, *(f"{cell['ms']:.1f}, {cell['ratio']:.2f}" for cell in cells)])
    return markdown(rows)


def calibration(figures: Dict) -> str:
    rows = [["", "s", "CPU s", "peak MB"]]
    for name, cost in figures["calibration"].items():
        rows.append([name, f"{cost['seconds']:.1f}", f"{cost['cpu_seconds']:.1f}", f"{cost['peak_mb']:.0f}"])
    return markdown(rows)


def markdown(rows: List[List[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def conditions(figures: Dict) -> str:
    """The machine, the versions and the data, in sentences."""
    cpu = figures["processor"]
    names = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "nncf": "NNCF"}
    versions = ", ".join(f"{title} {figures['versions'][package]}" for package, title in names.items())
    chosen = {p for name, p in figures["precision"].items() if name == "NNCF on OpenVINO"}
    return (
        f"Model {figures['model']}. Processor {cpu['name']}, {cpu['cores']} cores ({', '.join(cpu['instructions'])}); "
        f"{figures['threads']} threads; {versions}; {figures['rounds']} rounds. OpenVINO's own choice for what is not "
        f"quantized: {', '.join(sorted(chosen))}. Load averages before it: "
        f"{', '.join(f'{load:.1f}' for load in figures['load'])}; {figures['priority']}."
    )


def data(figures: Dict) -> str:
    sets = (f"{name} ({of['texts']} texts, SHA-256 {of['sha256'][:12]})" for name, of in figures["texts"].items())
    return f"Texts: {', '.join(sets)}; Python {figures['python']}."


def tables(figures: Dict) -> str:
    parts = [conditions(figures), accuracy_and_speed(figures)]
    if figures["accuracy"]:
        parts.insert(1, data(figures))
    if figures["calibration"]:
        parts.append("Calibration on 100 samples of 64 tokens, one process each, loading and writing included:")
        parts.append(calibration(figures))
    return "\n\n".join(parts)


def marks(model: str) -> List[str]:
    return [f"<!-- {model}: begin -->", f"<!-- {model}: end -->"]


def replaced(page: str, model: str, text: str) -> str:
    """The page with other text between the marks of a model."""
    begin, end = marks(model)
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page has no `{begin}` followed by `{end}`")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def kept(page: Path, model: str) -> Dict:
    """The figures that an earlier run left beside the page."""
    return json.loads(page.with_name(f"{page.stem}-{model}.json").read_text())


def write(page: Path, figures: Dict) -> None:
    """Writes the tables into the page, and beside it NAME-MODEL.json and, with accuracy, NAME-MODEL.svg."""
    page.write_text(replaced(page.read_text(), figures["model"], tables(figures)))
    beside = page.with_name(f"{page.stem}-{figures['model']}")
    beside.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
    if figures["accuracy"]:
        points = [
            (name, speed(figures, name), statistics.mean(1 - figures["accuracy"][name][domain]["mean"] for domain in DOMAINS))
            for name in figures["latency"]
        ]
        beside.with_suffix(".svg").write_text(picture.svg(points))
