"""What a benchmark of the pipeline is given, and what it returns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Timed:
    """Something that was measured: how many of what, and how long each round took."""

    name: str
    count: int
    unit: str
    seconds: Sequence[float]

    def line(self) -> str:
        """Return its row of the table."""
        rate = self.count / statistics.median(self.seconds)
        spread = f"{min(self.seconds):.2f}–{max(self.seconds):.2f} s"
        return f"| {self.name} | {self.count:,} {self.unit} | {rate:,.0f}/s | {spread} |"


@dataclass(frozen=True)
class Bench:
    """What a case gets."""

    spark: SparkSession
    folder: Path
    rows: int
    rounds: int

    def timed(self, name: str, count: int, unit: str, work: Callable[[], object]) -> Timed:
        """Run something once to warm up, and then so many rounds."""
        work()
        return Timed(name, count, unit, [seconds(work) for _ in range(self.rounds)])


def seconds(work: Callable[[], object]) -> float:
    """How long one round takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started
