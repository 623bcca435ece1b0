"""A picture of accuracy against speed, as SVG. Standard library only."""

import math
from html import escape
from typing import List, Tuple

WIDTH, HEIGHT = 900, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 300, 30, 60
LINE = 15  # the least distance of two labels
FLOOR = 1e-5  # errors below it, such as those of float32, are drawn at the upper edge

Point = Tuple[str, float, float]


def svg(points: List[Point]) -> str:
    """Contestants as (name, speed, error): the better, the further up and to the right. The error, 1 - cosine, is
    on a logarithmic scale."""
    fastest = max(speed for _, speed, _ in points)
    right = math.ceil(fastest * 4 + 0.5) / 4
    errors = [max(error, FLOOR) for _, _, error in points]
    bottom = math.ceil(math.log10(max(errors)))

    def x(speed: float) -> float:
        return LEFT + speed / right * (WIDTH - LEFT - RIGHT)

    def y(error: float) -> float:
        share = (math.log10(max(error, FLOOR)) - math.log10(FLOOR)) / (bottom - math.log10(FLOOR))
        return TOP + share * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    edge, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    for power in range(round(math.log10(FLOOR)), bottom + 1):
        at = y(10.0**power)
        label = f"{1 - 10.0**power:.{max(1, -power)}f}" if power < 0 else "0"
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{edge}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    for quarter in range(round(right * 4) + 1):
        at, line = x(quarter / 4), "#888" if quarter == 4 else "#ddd"
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{base}" stroke="{line}"/>')
        out.append(f'<text x="{at:.1f}" y="{base + 18}" text-anchor="middle">{quarter / 4:g}</text>')
    middle = (LEFT + edge) / 2
    caption = "speed relative to ONNX Runtime's dynamic quantization (geometric mean of the shapes)"
    out.append(f'<text x="{middle:.0f}" y="{base + 42}" text-anchor="middle">{escape(caption)}</text>')
    out.append(
        f'<text transform="translate(16 {(TOP + base) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        "mean cosine of the embeddings to float32</text>"
    )
    places = labels([y(error) for _, _, error in points])
    for (name, speed, error), at in zip(points, places):
        color = "#c0392b" if name.startswith("planish") else "#2c5f9e"
        px, py = x(speed), y(error)
        out.append(f'<line x1="{px:.1f}" y1="{py:.1f}" x2="{edge + 8}" y2="{at:.1f}" stroke="{color}" stroke-opacity="0.25"/>')
        out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4.5" fill="{color}"/>')
        out.append(f'<text x="{edge + 12}" y="{at + 4:.1f}" fill="{color}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def labels(wanted: List[float]) -> List[float]:
    """Heights near those wanted, in the same order, at least LINE apart."""
    order = sorted(range(len(wanted)), key=lambda k: wanted[k])
    placed = list(wanted)
    for before, k in zip(order, order[1:]):
        placed[k] = max(placed[k], placed[before] + LINE)
    # Those that were pushed out of the picture push the others back up.
    lowest = HEIGHT - BOTTOM
    for k in reversed(order):
        placed[k] = min(placed[k], lowest)
        lowest = placed[k] - LINE
    return placed
