"""What tables share."""

from typing import Dict, List, Optional


def markdown(rows: List[List[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}" if value >= 0.1 else f"{value:.4f}"


# The parts that measure others for the tables of other parts.
PEERS = ("torch", "onnxruntime")


def cells_of(document: Dict, part: str) -> List[Dict]:
    """What a part measured, and what others measured for its table."""
    own = document["parts"].get(part, {}).get("data", {}).get("cells", [])
    peers = (cell for peer in PEERS for cell in document["parts"].get(peer, {}).get("data", {}).get("cells", []))
    return own + [cell for cell in peers if cell.get("of") == part]


def fused_of(document: Dict) -> str:
    return document["runtimes"]["fused"]


def baseline_of(document: Dict) -> str:
    return document["runtimes"]["baseline"]


def conditions(document: Dict) -> str:
    """The machine and the versions, in sentences."""
    data = document["parts"].get("environment", {}).get("data", {})
    said = []
    if document.get("trial"):
        said.append("**A trial of the script, not on a GPU or on small models: the figures say nothing about a GPU.**")
    gpu = data.get("gpu")
    if gpu:
        said.append(
            f"{gpu['name']} ({gpu['memory_total']}, compute capability {gpu['compute_cap']}, at most {gpu['clocks_max_sm']}, "
            f"{gpu['power_limit']}); driver {gpu['driver_version']}, CUDA {data.get('cuda_of_driver') or 'unknown'}."
        )
    else:
        said.append("GPU: none was found.")
    machine = data.get("machine", {})
    said.append(f"{machine.get('processor') or 'A processor'}, {machine.get('cores')} cores; {machine.get('system')}.")
    torch, versions = data.get("torch"), [data.get("planish") or "planish"]
    versions.append(f"PyTorch {torch['version']}" if torch else "no PyTorch")
    ort = document["parts"].get("onnxruntime", {}).get("data", {}).get("onnxruntime")
    versions += [f"ONNX Runtime {ort}"] if ort else []
    libraries = [place for place in (library_name(path) for path in data.get("libraries", {}).values()) if place]
    said.append(f"{', '.join(versions + libraries)}; {document['started'][:10]}.")
    return " ".join(said)


def library_name(path: Optional[str]) -> Optional[str]:
    return path.rsplit("/", 1)[-1] if path else None
