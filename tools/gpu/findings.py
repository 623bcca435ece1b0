"""What a check says is to be mended, from its document alone."""

from typing import Dict, List, NamedTuple

from . import goals, sweeps, times


class Finding(NamedTuple):
    """Something to mend: the part that found it, and what it is."""

    part: str
    text: str


def problems(document: Dict) -> List[Finding]:
    """What went wrong."""
    return [Finding(name, problem) for name, part in document["parts"].items() for problem in part["problems"]]


def slow_kernels(document: Dict) -> List[Finding]:
    """Kernels that take much longer than predicted."""
    found = []
    for case in document["parts"].get("times", {}).get("data", {}).get("cases", []):
        for row in times.slow(case):
            ratio = row["ms"] * 1e3 / row["predicted_us"]
            share = 100 * row["ms"] / case["ms"]
            kernels = ", ".join(row["kernels"])
            text = f"{row['operator']} ({kernels}) takes {ratio:.1f} times the prediction, {share:.0f} % of {title(case)}"
            found.append(Finding("times", text))
    return found


def wrong_choices(document: Dict) -> List[Finding]:
    """Kernels that another choice beats."""
    found = []
    for choice in sweeps.choices(document["parts"].get("limits", {}).get("data", {}).get("cells", [])):
        if choice["own"] > sweeps.BETTER * choice["ms"]:
            ratio = choice["own"] / choice["ms"]
            length = f", {choice['batch']} x {choice['seq']} tokens" if choice["seq"] else ""
            text = f"{choice['what']}{length}: `{choice['best']}` is {ratio:.2f} times as fast as the planner's choice"
            found.append(Finding("limits", text))
    return found


def goals_missed(document: Dict) -> List[Finding]:
    """Goals that the figures fall short of."""
    judged = ((title, *goal(document)) for title, goal in goals.GOALS)
    return [
        Finding("goals", f"{title.format(baseline=document['runtimes']['baseline'])}: {said}".replace("**", ""))
        for title, said, reached in judged
        if reached is False
    ]


def all_of(document: Dict) -> List[Finding]:
    """Everything to mend, what is wrong before what is slow."""
    found = problems(document)
    if not document.get("trial"):
        found += goals_missed(document) + slow_kernels(document) + wrong_choices(document)
    return found


def title(case: Dict) -> str:
    """What was run, in words."""
    past = f" after {case['past']}" if case.get("past") else ""
    return f"{case['model']} {case['precision']} {case['batch']} x {case['seq']}{past}"
