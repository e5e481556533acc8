"""Medians, ratios and the table of a comparison, from what was measured; measures and prints nothing.

A ratio is Quorate's median over the median of the better peer, in the direction of the case: of rates more is
better, of times and sizes less. Rows that only one kind of system has get no ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tests.bench.cases import Row
from tests.bench.chart import Bar

#: {(name of the row, name of the system): one value per round}
Samples = Mapping[tuple[str, str], Sequence[float]]
ABSENT = "–"


def medians(samples: Samples) -> dict[tuple[str, str], float]:
    """The median over the rounds of each row and system."""
    return {place: statistics.median(values) for place, values in samples.items() if values}


def better_peer(row: Row, of: Mapping[tuple[str, str], float], systems: Sequence[str]) -> float | None:
    """The better median among the systems after the first; None if none has a value."""
    found = [of[row.name, name] for name in systems[1:] if (row.name, name) in of]
    if not found:
        return None
    return max(found) if row.more_is_better else min(found)


def ratio(row: Row, of: Mapping[tuple[str, str], float], systems: Sequence[str]) -> float | None:
    """The first system's median over the better peer's; None where there is nothing to compare."""
    own, peer = of.get((row.name, systems[0])), better_peer(row, of, systems)
    if not row.compared or own is None or peer is None or peer <= 0.0:
        return None
    return own / peer


def value_text(value: float | None, unit: str) -> str:
    """A value with its unit, with about three digits that count."""
    if value is None:
        return ABSENT
    if unit == "/s":
        return f"{value:,.0f}/s"
    if unit == "MB":
        return f"{value:,.0f} MB"
    digits = 3 if abs(value) < 10 else 1
    return f"{value:.{digits}f} {unit}"


def table(rows: Sequence[Row], systems: Sequence[str], samples: Samples) -> list[str]:
    """The Markdown table: medians per system, the ratio to the better peer if there is one, the goal."""
    of = medians(samples)
    peer = "the better peer" if len(systems) > 2 else systems[-1]
    has_peer = len(systems) > 1
    lines = _header(["case", *systems, *([f"{systems[0]} / {peer}"] if has_peer else ()), "goal"])
    for row in rows:
        times = ratio(row, of, systems)
        cells = [value_text(of.get((row.name, name)), row.unit) for name in systems]
        if has_peer:
            cells.append(ABSENT if times is None else f"{times:.2f}×")
        lines.append(_line([row.name, *cells, row.goal or ABSENT]))
    return lines


def rounds_table(rows: Sequence[Row], systems: Sequence[str], samples: Samples) -> list[str]:
    """Every measured value, so that a reader sees how far the rounds lie apart."""
    lines = _header(["case", *systems])
    for row in rows:
        cells = [
            ", ".join(value_text(value, row.unit) for value in samples.get((row.name, name), ())) or ABSENT
            for name in systems
        ]
        lines.append(_line([row.name, *cells]))
    return lines


def bars(rows: Sequence[Row], systems: Sequence[str], samples: Samples) -> list[Bar]:
    """How many times better than the better peer each compared row is."""
    of = medians(samples)
    found = []
    for row in rows:
        times = ratio(row, of, systems)
        if times is not None and times > 0.0:
            found.append(Bar(row.name, times if row.more_is_better else 1 / times))
    return found


def _header(names: Sequence[str]) -> list[str]:
    return [_line(names), "|" + " --- |" * len(names)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
