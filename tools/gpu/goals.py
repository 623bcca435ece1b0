"""The goals of the CUDA runtime, and what a check says of them."""

from typing import Dict, Iterable, List, Optional, Tuple

from . import checkpoints, flops
from .tables import baseline_of, cells_of, fused_of, markdown, number

# A model, its precision, the rows and the tokens of a row.
Key = Tuple[str, str, int, int]
OVER_BASELINE = 2.0
UTILIZATION = 0.40
LATENCY_MS = 0.5
BANDWIDTH = 0.70
SIZES = {"f32": 4, "fp16": 2, "bf16": 2}


def key(cell: Dict) -> Key:
    return (cell["model"], cell["precision"], cell["batch"], cell["seq"])


def counted(document: Dict) -> Dict[Key, Dict[str, Dict]]:
    """The cells that were measured by key and by who; of decoders those of prompts."""
    found: Dict[Key, Dict[str, Dict]] = {}
    for cell in cells_of(document, "bench"):
        if "ms" in cell and cell.get("run") in (None, "prompt"):
            found.setdefault(key(cell), {})[cell["who"]] = cell
    return found


def config_of(document: Dict, name: str) -> Dict:
    return (checkpoints.SMALL if document.get("trial") else checkpoints.CONFIGS)[name]


def utilization(document: Dict, of: Key, ms: Optional[float]) -> Optional[float]:
    """The share of the measured peak that the matrix products of a run come to."""
    peak = document["parts"].get("peaks", {}).get("data", {}).get(of[1])
    if not peak or not ms:
        return None
    return flops.forward(config_of(document, of[0]), of[2], of[3]) / (ms / 1e3) / (peak["tflop_s"] * 1e12)


def best_compiled(cells: Iterable[Dict]) -> Optional[Dict]:
    """The fastest mode of torch.compile; one without a time where none has one."""
    compiled = [cell for cell in cells if cell["who"].startswith("torch.compile")]
    return min(compiled, key=lambda cell: cell.get("ms", float("inf")), default=None)


def step_read(data: Dict, past: int) -> Dict[str, int]:
    return flops.step_bytes(data["config"], past, SIZES[data["precision"]])


def bandwidth_share(document: Dict, past: int, ms: Optional[float]) -> Optional[float]:
    """The share of the measured copy bandwidth at which a step reads."""
    copy = document["parts"].get("peaks", {}).get("data", {}).get("copy")
    if not copy or not ms:
        return None
    data = document["parts"].get("decode", {}).get("data", {})
    if "config" not in data:
        return None
    read = sum(step_read(data, past).values())
    return read / (ms / 1e3) / (copy["gb_s"] * 1e9)


def judged(values: List[Tuple[float, str]], least: float, unit: str = "") -> Tuple[str, Optional[bool]]:
    """All values with what they are of, and whether the least of them reaches the goal."""
    if not values:
        return "not measured", None
    text = lambda value, of: f"{value:.2f}{unit}" + (f" ({of})" if of else "")
    said = ", ".join(text(*one) if one[0] >= least else f"**{text(*one)}**" for one in values)
    return said, all(value >= least for value, _ in values)


def over_baseline(document: Dict) -> Tuple[str, Optional[bool]]:
    fused, baseline = fused_of(document), baseline_of(document)
    if fused == baseline:
        return "not measured", None
    values = [
        (whos[baseline]["ms"] / whos[fused]["ms"], f"{name} {batch} x {seq}")
        for (name, precision, batch, seq), whos in sorted(counted(document).items())
        if precision == "fp16" and fused in whos and baseline in whos
    ]
    return judged(values, OVER_BASELINE, "x")


def over_compiled(document: Dict) -> Tuple[str, Optional[bool]]:
    fused, values = fused_of(document), []
    for (name, precision, batch, seq), whos in sorted(counted(document).items()):
        compiled = best_compiled(whos.values())
        if batch == 32 and fused in whos and compiled:
            values.append((compiled["ms"] / whos[fused]["ms"], f"{name} {precision} {batch} x {seq}"))
    return judged(values, 1.0, "x")


def peak_share(document: Dict) -> Tuple[str, Optional[bool]]:
    values = []
    for of, whos in sorted(counted(document).items()):
        share = utilization(document, of, whos.get(fused_of(document), {}).get("ms"))
        if of[0] == "bert-base" and of[2:] == (32, 128) and share:
            values.append((100 * share, of[1]))
    return judged(values, 100 * UTILIZATION, " %")


def latency(document: Dict) -> Tuple[str, Optional[bool]]:
    found = [
        (whos[fused_of(document)]["ms"], of[1])
        for of, whos in sorted(counted(document).items())
        if of[0] == "bert-base" and of[2:] == (1, 128) and fused_of(document) in whos
    ]
    if not found:
        return "not measured", None
    said = ", ".join(f"{number(ms)} ms ({of})" if ms <= LATENCY_MS else f"**{number(ms)} ms ({of})**" for ms, of in found)
    return said, all(ms <= LATENCY_MS for ms, _ in found)


def bandwidth(document: Dict) -> Tuple[str, Optional[bool]]:
    values = []
    for cell in cells_of(document, "decode"):
        share = bandwidth_share(document, cell["past"], cell.get("ms"))
        if cell["who"] == fused_of(document) and share:
            values.append((100 * share, f"after {cell['past']}"))
    return judged(values, 100 * BANDWIDTH, " %")


GOALS = [
    ("in float16 at least 2 times as fast as `{baseline}`", over_baseline),
    ("at batch 32 at least as fast as torch.compile", over_compiled),
    ("BERT-base, 32 x 128: at least 40 % of the measured peak (MFU)", peak_share),
    ("BERT-base, 1 x 128: at most 0.5 ms", latency),
    ("a step of Llama 1.1B reads at 70 % of the copy bandwidth or more", bandwidth),
]
VERDICTS = {True: "reached", False: "**falls short**", None: "not measured"}


def table(document: Dict) -> str:
    """The goals beside what was measured."""
    rows = [["goal", "measured", ""]]
    for title, goal in GOALS:
        said, reached = goal(document)
        rows.append([title.format(baseline=baseline_of(document)), "" if reached is None else said, VERDICTS[reached]])
    return markdown(rows)
