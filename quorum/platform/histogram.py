"""A histogram of durations: how many there were up to each bound, and their sum.

Decides the bounds, from a tenth of a millisecond to ten seconds, which hold a disk's fsync and a request that
waited for an election. To count one takes less than a microsecond; nothing is kept of it but the count. Soft
state.

Source: Prometheus, "Histograms and summaries".
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: upper bounds in milliseconds, inclusive; what is longer counts as well
BOUNDS_MS: Final = (
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1000.0,
    2500.0,
    10_000.0,
)


class Histogram:
    """Durations of one kind."""

    __slots__ = ("_counts", "sum_ms")

    def __init__(self) -> None:
        #: per bound those above the bound before; the last one is those above all
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        #: sum of all, in milliseconds
        self.sum_ms = 0.0

    def add(self, duration_ms: float, count: int = 1) -> None:
        """Count durations that are equal."""
        self._counts[bisect_left(BOUNDS_MS, duration_ms)] += count
        self.sum_ms += duration_ms * count

    @property
    def sum_s(self) -> float:
        """Sum of all, in seconds."""
        return self.sum_ms / 1000

    def buckets(self) -> list[tuple[str, float]]:
        """Return (upper bound in seconds, how many are up to it), the last bound infinite."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip(
            [*(f"{each / 1000:g}" for each in BOUNDS_MS), "+Inf"], self._counts, strict=True
        ):
            total += count
            found.append((bound, float(total)))
        return found
