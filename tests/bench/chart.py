"""Charts of a benchmark as SVG files: how many times faster than the peer each case is, and how costs grow.

Takes finished numbers and returns text; measures nothing, reads and writes no file. A bar of 1.0 is the
peer's own speed, so cases with rates and cases with latencies stand on one scale. Growth has two logarithmic
scales: a cost that grows as its size does is a straight line, one decade up for each decade to the right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import cycle
from typing import NamedTuple

LABEL_WIDTH = 350
SCALE_WIDTH = 420
ROW_HEIGHT = 22
MARGIN = 12
#: pixels of a factor of ten
DECADE = 180
#: pixels between two names at least
NAME_HEIGHT = 16
COLOURS = ("#2a7", "#c63", "#36c", "#888")


class Bar(NamedTuple):
    """One case: its name and how many times faster than the peer it is."""

    label: str
    times_faster: float


def draw(title: str, bars: Sequence[Bar]) -> str:
    """Return the SVG of the bars, one below the other, with a line at the peer's speed."""
    top = MARGIN + 2 * ROW_HEIGHT
    height = top + ROW_HEIGHT * len(bars) + MARGIN
    width = LABEL_WIDTH + SCALE_WIDTH + 80
    longest = max([1.0, *(bar.times_faster for bar in bars)])
    parity = LABEL_WIDTH + SCALE_WIDTH / longest
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 12}" font-size="14">{escape(title)}</text>',
    ]
    for row, bar in enumerate(bars):
        y = top + row * ROW_HEIGHT
        length = SCALE_WIDTH * bar.times_faster / longest
        colour = "#2a7" if bar.times_faster >= 1 else "#c63"
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{y + 3}" width="{length:.1f}" height="16" fill="{colour}"/>',
            f'<text x="{LABEL_WIDTH + length + 6:.1f}" y="{y + 14}">{bar.times_faster:.2f}×</text>',
        ]
    parts += [
        f'<line x1="{parity:.1f}" x2="{parity:.1f}" y1="{top - 4}" y2="{height - MARGIN}" stroke="#888"/>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class Curve(NamedTuple):
    """How one cost grows: its name and (size, cost) by size, all above 0."""

    label: str
    points: Sequence[tuple[float, float]]


def draw_growth(title: str, curves: Sequence[Curve]) -> str:
    """Return the SVG of the curves, with lines at the powers of ten."""
    sizes = [math.log10(size) for curve in curves for size, _ in curve.points]
    costs = [math.log10(cost) for curve in curves for _, cost in curve.points]
    first, last = math.floor(min(sizes)), math.ceil(max(sizes))
    lowest, highest = math.floor(min(costs)), math.ceil(max(costs))
    left, top = MARGIN + 60, MARGIN + 2 * ROW_HEIGHT
    right, bottom = left + DECADE * (last - first), top + DECADE * (highest - lowest)
    size = f'width="{right + 170}" height="{bottom + ROW_HEIGHT + MARGIN}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 12}" font-size="14">{escape(title)}</text>',
    ]
    for power in range(first, last + 1):
        right_of = left + DECADE * (power - first)
        parts.append(f'<line x1="{right_of}" x2="{right_of}" y1="{top}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{right_of}" y="{bottom + 16}" text-anchor="middle">{10.0**power:,.0f}</text>')
    for power in range(lowest, highest + 1):
        above = bottom - DECADE * (power - lowest)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{above}" y2="{above}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{above + 4}" text-anchor="end">{10.0**power:g}</text>')
    free = 0.0
    ordered = sorted(curves, key=lambda each: -each.points[-1][1])
    for curve, colour in zip(ordered, cycle(COLOURS), strict=False):
        places = [
            (left + DECADE * (math.log10(each) - first), bottom - DECADE * (math.log10(cost) - lowest))
            for each, cost in curve.points
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        last_x, last_y = places[-1][0], max(places[-1][1], free)
        free = last_y + NAME_HEIGHT
        shown = f"{escape(curve.label)}: {curve.points[-1][1]:.3g}"
        parts.append(f'<text x="{last_x + 8:.1f}" y="{last_y + 4:.1f}" fill="{colour}">{shown}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
