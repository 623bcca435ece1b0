"""The tables of kernels, generation and limits, from the document of a check alone."""

from typing import Dict

from . import findings, sweeps
from .tables import cells_of, markdown, number


def times(document: Dict) -> str:
    """The time of each kernel by events, beside the prediction."""
    data = document["parts"].get("times", {}).get("data", {})
    sections = []
    for case in data.get("cases", []):
        table = [["operator", "kernels", "launches", "FLOPs", "bytes", "ms", "predicted ms", "times", "GB/s", "TFLOP/s"]]
        for row in case["rows"]:
            predicted, ms = row.get("predicted_us", 0) / 1e3, row["ms"]
            rate = lambda amount, unit: f"{amount / ms / unit:.1f}" if ms and amount else "-"
            ratio = f"{ms / predicted:.2f}" if predicted else "-"
            counts = [str(row["launches"]), amount_text(row.get("flops", 0)), amount_text(row.get("bytes", 0))]
            rates = [rate(row.get("bytes", 0), 1e6), rate(row.get("flops", 0), 1e9)]
            table.append([row["operator"], ", ".join(row["kernels"]), *counts, number(ms), number(predicted), ratio, *rates])
        said = (
            f"{number(case['ms'])} ms in all kernels, {number(case['predicted_ms'])} ms predicted for {data['gpu']}; a run takes "
            f"{number(case['run_ms'])} ms with {case['launches']} launches."
        )
        sections += [f"#### {findings.title(case)}", said, markdown(table)]
    if not sections:
        return ""
    return "\n\n".join(["### Kernels", "Each launch lies between two events; the mean over the middle half of the runs.", *sections])


def amount_text(amount: float) -> str:
    """A number with a unit, powers of 1000."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= factor:
            return f"{amount / factor:.1f}{unit}"
    return f"{amount:.0f}"


def generate(document: Dict) -> str:
    cells = cells_of(document, "generate")
    if not cells:
        return ""
    table = [["model", "runtime", "prompt + new", "first token ms", "ms a token", "tokens/s", "a step on the GPU ms", "a step without a graph ms", "host's share"]]
    for cell in cells:
        token = cell.get("tpot_ms")
        figures = [number(cell[key]) if cell.get(key) else "-" for key in ("ttft_ms", "tpot_ms")]
        share = f"{100 * cell['host_share']:.0f} %" if cell.get("host_share") is not None else "-"
        step = number(cell["step_ms"]) if cell.get("step_ms") else "-"
        alone = number(cell["step_without_graph_ms"]) if cell.get("step_without_graph_ms") else "-"
        rate = f"{1e3 * cell['batch'] / token:.1f}" if token else "-"
        name = f"{cell['model']} {cell['precision']}"
        table.append([name, cell["who"], f"{cell['prompt']} + {cell['new']}", *figures, rate, step, alone, share])
    said = "The host's share is the part of the time of a token in which the GPU computes nothing of the step."
    return "\n\n".join(["### Generation", said, markdown(table)])


def limits(document: Dict) -> str:
    found = sweeps.choices(cells_of(document, "limits"))
    if not found:
        return ""
    forms = list(dict.fromkeys(form for choice in found for form in choice["forms"]))
    table = [["", "batch x tokens", *(f"{form} ms" for form in forms), "best"]]
    for choice in found:
        times_of = [number(choice["forms"][form]) if form in choice["forms"] else "-" for form in forms]
        best = f"**{choice['best']}**" if choice["own"] > sweeps.BETTER * choice["ms"] else choice["best"]
        shape = f"{choice['batch']} x {choice['seq']}" if choice["seq"] else ""
        table.append([choice["what"], shape, *times_of, best])
    said = "`own` is the planner's choice; the others are forced by PLANISH_CUDA_LIMITS."
    return "\n\n".join(["### Choices of kernels", said, markdown(table)])
