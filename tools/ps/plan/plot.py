"""Hit rate over RAM, as characters for a terminal and as an SVG file; no library draws it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tools.ps.plan.curve import Curve
from tools.ps.plan.sizing import show_bytes

__all__ = ["bars", "svg"]

WIDTH, HEIGHT, MARGIN = 720, 400, 60
_COLOURS = ("#1b6ca8", "#c0392b", "#27863f", "#8e44ad", "#b9770e", "#117a65", "#7f8c8d", "#2c3e50")


def bars(curve: Curve, columns: int = 40) -> list[str]:
    """A line for each budget: `#` up to what LRU answers, `-` from there to the best possible."""
    lines = []
    for point in curve.points:
        least, most = sorted((round(point.lru * columns), round(point.optimum * columns)))
        bar = "#" * least + "-" * (most - least)
        lines.append(f"{show_bytes(point.hot_bytes):>10} |{bar:<{columns}}| {point.lru:.3f} .. {point.optimum:.3f}")
    return lines


def svg(curves: Sequence[Curve]) -> str:
    """An SVG document: for each table the best hit rate (solid) and LRU's (dashed) over the bytes of hot rows, on a
    logarithmic axis."""
    sizes = [point.hot_bytes for curve in curves for point in curve.points]
    low, high = math.log(min(sizes)), math.log(max(sizes) + 1)

    def x_of(value: float) -> float:
        return MARGIN + (math.log(value) - low) / max(high - low, 1e-9) * (WIDTH - 2 * MARGIN)

    def y_of(rate: float) -> float:
        return HEIGHT - MARGIN - rate * (HEIGHT - 2 * MARGIN)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT + 20 * len(curves)}" '
             'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for tenth in range(0, 11, 2):
        y = y_of(tenth / 10)
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for power in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1):
        x = x_of(10.0**power)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">'
                     f'{show_bytes(10.0**power)}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - MARGIN + 38}" text-anchor="middle">RAM for hot rows; solid: best '
                 'possible hit rate, dashed: LRU</text>')
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        for dash, rates in (("", [p.optimum for p in curve.points]), ("5 4", [p.lru for p in curve.points])):
            path = " ".join(f"{x_of(p.hot_bytes):.1f},{y_of(rate):.1f}"
                            for p, rate in zip(curve.points, rates, strict=True))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
                         f'stroke-dasharray="{dash}"/>')
        parts.append(f'<text x="{MARGIN}" y="{HEIGHT + 20 * number}" fill="{colour}">'
                     f'{escape(curve.sizing.name)}: {escape(curve.law)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
