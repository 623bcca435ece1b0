"""The tables of a check, from its document alone."""

from pathlib import Path
from typing import Dict, List, Optional, Tuple

from . import flops, goals, measured
from .tables import baseline_of, cells_of, conditions, fused_of, markdown, number

MARKS = ("<!-- cuda: begin -->", "<!-- cuda: end -->")
NOT_RUN = "**The CUDA runtime has not run on a GPU yet.** There are no figures of it."
# What tells one machine from another.
SAME = ("gpu", "torch", "planish", "cuda_of_driver")


def merged(documents: List[Dict]) -> Dict:
    """One document of several: a later one replaces the parts of an earlier one.

    Raises ValueError where they are not of one machine and one binary.
    """
    first = documents[0]
    for other in documents[1:]:
        for key in SAME:
            known, found = (doc["parts"].get("environment", {}).get("data", {}).get(key) for doc in (first, other))
            if known != found:
                raise ValueError(f"the checks are not of the same machine and program: {key} is {known} and {found}")
    result = {**first, "parts": {}, "trial": any(doc.get("trial") for doc in documents)}
    for document in documents:
        for name, part in document["parts"].items():
            # Each call looks at the environment, and any of them may have found a problem.
            earlier = result["parts"].get(name, {}) if name == "environment" else {}
            problems = list(dict.fromkeys([*earlier.get("problems", []), *part["problems"]]))
            result["parts"][name] = {**part, "problems": problems}
    return result


def part_of(document: Dict, name: str) -> Optional[Dict]:
    return document["parts"].get(name)


def text(document: Dict) -> str:
    """All tables."""
    sections = [conditions(document), verdicts(document), goals.table(document), peaks(document), bench(document)]
    sections += [decode(document), measured.generate(document), padding(document), measured.times(document)]
    sections += [head(document), attention(document), rows(document), measured.limits(document)]
    return "\n\n".join(section for section in sections if section)


def kernels_text(part: Dict) -> str:
    return "; ".join(f"{name}: {of['summary']}" for name, of in part["data"].get("runtimes", {}).items())


def goldens_text(part: Dict) -> str:
    cases = part["data"].get("cases", [])
    right = sum(case["verdict"] == "ok" for case in cases)
    models = len({case["model"] for case in cases})
    runtimes = ", ".join(dict.fromkeys(case["runtime"] for case in cases))
    late = sum(case["verdict"] == "not run" for case in cases)
    tail = f"; {late} were not run" if late else ""
    return f"{right} of {len(cases)} verifications passed ({models} models in float32, float16 and bfloat16, on {runtimes}){tail}"


def sanitizer_text(part: Dict) -> str:
    runs = part["data"].get("runs")
    if runs is None:
        return ""
    by_tool = {}
    for run in runs:
        right, all_of = by_tool.get(run["tool"], (0, 0))
        by_tool[run["tool"]] = (right + (run["verdict"] == "ok"), all_of + 1)
    return ", ".join(f"{tool}: {right} of {all_of} runs without errors" for tool, (right, all_of) in by_tool.items())


def replay_text(part: Dict) -> str:
    cases = part["data"].get("cases", [])
    right = sum(bool(case.get("replayed", case.get("generation"))) for case in cases)
    return f"{right} of {len(cases)} comparisons of replayed runs passed" if cases else ""


def targets_text(part: Dict) -> str:
    cases = part["data"].get("cases", [])
    right = sum(case["verdict"] == "ok" for case in cases)
    return f"{right} of {len(cases)} artifacts were compiled, verified and measured" if cases else ""


TEXTS = {"kernels": kernels_text, "goldens": goldens_text, "replay": replay_text, "sanitizer": sanitizer_text}
TEXTS.update({"ort-cuda": targets_text, "trt": targets_text})
# How many problems and notes of a part a table shows, and how much of each; the rest is in the document.
SHOWN, LONGEST = 6, 200


def verdicts(document: Dict) -> str:
    """A row for each part that ran, with what went wrong."""
    table = [["part", "verdict", "s", ""]]
    for name, part in document["parts"].items():
        said = [TEXTS[name](part)] if name in TEXTS else []
        said += [f"**{problem[:LONGEST]}**" for problem in part["problems"][:SHOWN]]
        if len(part["problems"]) > SHOWN:
            said.append(f"**and {len(part['problems']) - SHOWN} more problems**")
        said += [note[:LONGEST] for note in part["notes"][:SHOWN]]
        if len(part["notes"]) > SHOWN:
            said.append(f"and {len(part['notes']) - SHOWN} more notes")
        verdict = "**failed**" if part["problems"] else part["verdict"]
        table.append([name, verdict, f"{part['seconds']:.0f}", "; ".join(one for one in said if one)])
    return markdown(table)


def peaks(document: Dict) -> str:
    part = part_of(document, "peaks")
    if not part or not part["data"]:
        return ""
    data, lines = part["data"], []
    for precision in ("fp16", "bf16"):
        if precision in data:
            size = data[precision]["size"]
            lines.append(f"{number(data[precision]['tflop_s'])} TFLOP/s ({precision}, product of {size} x {size} x {size} by PyTorch)")
    if "copy" in data:
        lines.append(f"{number(data['copy']['gb_s'])} GB/s (copy on the device, bytes read and written)")
    return "Measured peaks of this card: " + ", ".join(lines) + "."


def bench(document: Dict) -> str:
    # Steps of a decoder have a table of their own.
    cells = [cell for cell in cells_of(document, "bench") if cell.get("run") in (None, "prompt")]
    if not cells:
        return ""
    fused, baseline = fused_of(document), baseline_of(document)
    compiled = sorted({cell["who"] for cell in cells if cell["who"].startswith("torch.compile")})
    others = [who for who in ("torch eager", "torch SDPA", "ort-cuda") if any(cell["who"] == who for cell in cells)]
    header = ["model", "batch x tokens", f"{fused} ms", "MFU %", f"{baseline} ms", *(f"{who} ms" for who in others)]
    table = [header + (["torch.compile ms"] if compiled else [])]
    keys = sorted({goals.key(cell) for cell in cells}, key=lambda k: (k[0], k[1], k[2], k[3]))
    for key in keys:
        of = {cell["who"]: cell for cell in cells if goals.key(cell) == key}
        own = of.get(fused)
        ours = own.get("ms") if own else None
        utilization = goals.utilization(document, key, ours)
        row = [f"{key[0]} {key[1]}", f"{key[2]} x {key[3]}", shown(own), f"{100 * utilization:.1f}" if utilization else "-"]
        row.append(beside(of.get(baseline), ours) if fused != baseline else "-")
        row += [beside(of.get(who), ours) for who in others]
        if compiled:
            row.append(beside(goals.best_compiled(of.values()), ours, named=True))
        table.append(row)
    graph = [cell for cell in cells if cell.get("cuda_graph") is not None and cell["who"] == baseline]
    one_by_one = bool(graph) and not any(cell["cuda_graph"] for cell in graph)
    clocks = {cell.get("clock") for cell in cells if cell["who"] in (fused, baseline) and "ms" in cell}
    by = "the host's clock" if clocks == {"host"} else "CUDA events"
    said = f"Medians, by {by}, without copies to and from the host. In parentheses: the time relative to `{fused}`; above 1 `{fused}` is faster. "
    if one_by_one:
        said += f"`{baseline}` and `{fused}` both replay one CUDA graph for each run. "
    said += "PyTorch's modules compute without a mask, and planish with one. For GPT-2 both give the logits of all tokens and the cache. "
    return "\n\n".join(["### Encoder and prompt", said + flops.FORMULA, markdown(table)])


def shown(cell: Optional[Dict]) -> str:
    if not cell:
        return "-"
    if "ms" in cell:
        return number(cell["ms"])
    return "**failed**" if cell.get("failure") else "not run"


def beside(cell: Optional[Dict], ours: Optional[float], named: bool = False) -> str:
    """A time, and how many times that of planish it is."""
    if not cell or "ms" not in cell:
        return shown(cell)
    ratio = f" ({cell['ms'] / ours:.2f})" if ours else ""
    return f"{number(cell['ms'])}{ratio}" + (f" {cell['who'].replace('torch.compile ', '')}" if named else "")


def decode(document: Dict) -> str:
    part = part_of(document, "decode")
    cells = cells_of(document, "decode")
    if not part or not cells or "config" not in part["data"]:
        return ""
    data = part["data"]
    whos = list(dict.fromkeys(cell["who"] for cell in cells))
    fused = fused_of(document)
    table = [["tokens in the cache", "GB read", *(f"{who} ms" for who in whos), f"GB/s of {fused}", "% of the copy bandwidth"]]
    for past in sorted({cell["past"] for cell in cells}):
        of = {cell["who"]: cell for cell in cells if cell["past"] == past}
        read = sum(goals.step_read(data, past).values())
        ours = of.get(fused, {}).get("ms")
        share = goals.bandwidth_share(document, past, ours)
        row = [str(past), f"{read / 1e9:.3f}", shown(of.get(fused)) if fused in of else "-"]
        row = row[:2] + [shown(of[who]) if who == fused else beside(of.get(who), ours) for who in whos]
        row += [f"{read / ours / 1e6:.0f}" if ours else "-", f"{100 * share:.0f}" if share else "-"]
        table.append(row)
    said = (
        "One step of a Llama of 1.1 billion weights in bfloat16, one row. The bytes are those of all weights but the table of "
        "the embedding, and of the keys and values in the cache. Both write into a cache that has room for the new token."
    )
    return "\n\n".join(["### A step of a decoder", said, markdown(table)])


def padding(document: Dict) -> str:
    part, cells = part_of(document, "padding"), cells_of(document, "padding")
    if not part or not cells:
        return ""
    whos = list(dict.fromkeys(cell["who"] for cell in cells))
    table = [["batch x tokens", "padding", *(f"{who} ms" for who in whos), f"{fused_of(document)}, relative to full rows"]]
    full = {(cell["batch"], cell["seq"], cell["who"]): cell for cell in cells if not cell.get("padding")}
    for batch, seq, left in dict.fromkeys((cell["batch"], cell["seq"], cell.get("padding", 0)) for cell in cells):
        of = {cell["who"]: cell for cell in cells if (cell["batch"], cell["seq"], cell.get("padding", 0)) == (batch, seq, left)}
        times = [found.get(fused_of(document), {}).get("ms") for found in (of, {who: full.get((batch, seq, who), {}) for who in whos})]
        ratio = f"{times[0] / times[1]:.2f}" if all(times) else "-"
        table.append([f"{batch} x {seq}", f"{100 * left / (batch * seq):.0f} %", *(shown(of.get(who)) for who in whos), ratio])
    said = (
        f"{part['data']['model']} in {part['data']['precision']} on rows of one length, and on rows of which all but the first end in padding. "
        f"`{fused_of(document)}` computes no padding, `{baseline_of(document)}` computes all positions."
    )
    return "\n\n".join(["### Rows of different lengths", said, markdown(table)])


def head(document: Dict) -> str:
    part, cells = part_of(document, "head"), cells_of(document, "head")
    if not part or not cells:
        return ""
    data = part["data"]
    table = [["precision", "what", *(f"{name} ms" for name in ("without padding", "padded", "padded, logits not sliced"))]]
    for precision in dict.fromkeys(cell["precision"] for cell in cells):
        for who in dict.fromkeys(cell["who"] for cell in cells):
            of = {cell.get("form", cell.get("rows")): cell for cell in cells if (cell["who"], cell["precision"]) == (who, precision)}
            if who == "torch":
                columns = [shown(of.get(rows)) for rows in data["rows"]] + [""]
            else:
                columns = [shown(of.get(form)) for form in ("off", "sliced", "padded")]
            table.append([precision, who if who != "torch" else "torch, the product alone", *columns])
    said = (
        f"GPT-2 with one layer on {data['batch']} x {data['seq']} tokens, and PyTorch's product of "
        f"[{data['batch'] * data['seq']}, {data['hidden']}] with a table of {data['rows'][0]} or {data['rows'][1]} rows."
    )
    return "\n\n".join(["### Padding of the vocabulary", said, markdown(table)])


def attention(document: Dict) -> str:
    part, cells = part_of(document, "attention"), cells_of(document, "attention")
    if not part or not cells:
        return ""
    data = part["data"]
    whos = list(dict.fromkeys(cell["who"] for cell in sorted(cells, key=lambda c: c["who"].startswith("torch"))))
    table = [["tokens", *(f"{who}: ms, MiB" for who in whos)]]
    for length in sorted({cell["length"] for cell in cells}):
        of = {cell["who"]: cell for cell in cells if cell["length"] == length}
        table.append([str(length), *(f"{shown(of.get(who))}{mebibytes(of.get(who))}" for who in whos)])
    said = (
        f"Attention alone, {data['precision']}, one row, {data['heads']} heads of {data['size']}, no mask. Memory is that of inputs, "
        "output and temporary values: of planish as the driver counts it, less that of 16 tokens; of PyTorch as its allocator does."
    )
    return "\n\n".join(["### Attention by length", said, markdown(table)])


def mebibytes(cell: Optional[Dict]) -> str:
    return f", {cell['peak_bytes'] / 2**20:.0f}" if cell and cell.get("peak_bytes") is not None else ""


def rows(document: Dict) -> str:
    part = part_of(document, "attention")
    cells = part["data"].get("rows", []) if part else []
    if not cells:
        return ""
    data = part["data"]
    whos = list(dict.fromkeys(cell["who"] for cell in sorted(cells, key=lambda c: c["who"].startswith("torch"))))
    table = [["", *(f"{who} ms" for who in whos)]]
    titles = {"layer-norm": "sum and LayerNorm", "softmax": "softmax"}
    for what, title in titles.items():
        of = {cell["who"]: cell for cell in cells if cell["what"] == what}
        table.append([title, *(shown(of.get(who)) for who in whos)])
    shape = f"{data['shape'][0] * data['shape'][1]} rows of {data['width']}"
    return "\n\n".join(["### Kernels along rows", f"{shape}, {data['precision']}.", markdown(table)])


def replaced(page: str, body: str, marks: Tuple[str, str] = MARKS) -> str:
    """The page with other text between the marks."""
    begin, end = marks
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page has no `{begin}` followed by `{end}`")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def is_measured(document: Dict) -> bool:
    """Whether there was a GPU that the runtime found."""
    data = document["parts"].get("environment", {}).get("data", {})
    found = {runtime["name"]: runtime["available"] for runtime in data.get("runtimes", [])}
    return bool(data.get("gpu")) and found.get(fused_of(document), False)


def write(page: Path, document: Dict) -> None:
    """Writes the tables into the page.

    Raises ValueError where the figures are none of a GPU.
    """
    if document.get("trial"):
        raise ValueError("this check was a trial without a GPU or on small models: its figures do not go into a page")
    body = text(document) if is_measured(document) else NOT_RUN
    page.write_text(replaced(page.read_text(), body))
