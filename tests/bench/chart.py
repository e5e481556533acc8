"""A bar chart of a benchmark as one SVG file: how many times faster than the peer each case is.

Takes finished numbers and returns text; measures nothing, reads and writes no file. A bar of 1.0 is the
peer's own speed, so cases with rates and cases with latencies stand on one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

LABEL_WIDTH = 350
SCALE_WIDTH = 420
ROW_HEIGHT = 22
MARGIN = 12


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
