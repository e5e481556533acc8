"""Recovery figures: how long nobody was answered around a strike, and how long until all was ready again.

Reads a run's history and its faults, nothing else. A service is what operations of one kind ask: the quorum
(registers, through whichever node), or a partition (records). It was away from one success to the
next; the longest such gap that touches a strike is the strike's.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pipeline.checks.history import OK, Operation

#: What was already away before a strike does not count for it.
BEFORE_NS: Final = 500_000_000


class Figure(NamedTuple):
    """One nemesis over all its strikes; milliseconds."""

    nemesis: str
    service: str
    strikes: int
    away_median_ms: float
    away_p99_ms: float
    ready_median_ms: float


def services(operations: Iterable[Operation]) -> dict[str, dict[str, list[int]]]:
    """Return {service: {key: times of successes, rising}}."""
    found: dict[str, dict[str, list[int]]] = {"quorum": {}, "partitions": {}}
    for each in operations:
        if each.outcome != OK:
            continue
        if each.key.startswith("register-"):
            found["quorum"].setdefault("", []).append(each.completed_ns)
        elif each.operation == "produce":
            found["partitions"].setdefault(each.key, []).append(each.completed_ns)
    for keys in found.values():
        for times in keys.values():
            times.sort()
    return found


def longest_gap_ms(times: Sequence[int], since_ns: int, until_ns: int) -> float:
    """The longest time without a success that touches an interval."""
    gaps = [
        after - before
        for before, after in pairwise(times)
        if after > since_ns and before < until_ns and before > since_ns - BEFORE_NS
    ]
    return max(gaps, default=0) / 1e6


def figures(operations: Sequence[Operation], faults: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return a line for each nemesis and service that the run had; only strikes that bit count."""
    found: list[Figure] = []
    by_service = services(operations)
    for nemesis in sorted({fault["nemesis"] for fault in faults}):
        strikes = [fault for fault in faults if fault["nemesis"] == nemesis and fault["bite"]]
        for service, keys in by_service.items():
            if not keys or not strikes:
                continue
            away = [
                max(longest_gap_ms(times, each["started_ns"], each["ready_ns"]) for times in keys.values())
                for each in strikes
            ]
            ready = [(each["ready_ns"] - each["stopped_ns"]) / 1e6 for each in strikes]
            p99 = statistics.quantiles(away, n=100, method="inclusive")[-1] if len(away) > 1 else away[0]
            found.append(
                Figure(nemesis, service, len(away), statistics.median(away), p99, statistics.median(ready))
            )
    return found


def table(found: Sequence[Figure]) -> list[str]:
    """As lines of Markdown."""
    lines = [
        "| nemesis | service | strikes | away, median | away, p99 | ready again, median |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {each.nemesis} | {each.service} | {each.strikes} | {each.away_median_ms:,.0f} ms "
        f"| {each.away_p99_ms:,.0f} ms | {each.ready_median_ms:,.0f} ms |"
        for each in found
    ]
    return lines
