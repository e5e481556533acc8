"""How the controller's costs grow with the partitions: cold start, failover, a broker's death, memory.

The machine of the controller, the packing of its requests and their decoding by brokers, in one process and
without sockets: tests/bench/controller_world.py. Times are CPU times, because waiting for others is no cost
of the controller: a total is what the machine and the packing take, and then the broker that decodes
longest, since brokers decode on machines of their own. Times are never asserted; that every broker was sent
everything is.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from broker.commands.broker import GC_THRESHOLDS
from tests.bench import chart
from tests.bench.cases import Row
from tests.bench.controller_world import REPLICAS, ControllerWorld, Costs
from tests.bench.report import value_text

MILLION: Final = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """How much there is."""

    partitions: tuple[int, ...] = (10_000, 100_000)
    topic_partitions: int = 100
    brokers: int = 6
    rounds: int = 3


FULL: Final = Sizes()
TINY: Final = Sizes(partitions=(40, 80), topic_partitions=20, brokers=4, rounds=1)

COLD: Final = "a cold start, until every broker has the first states of all partitions"
FAILOVER: Final = "another controller, until every broker has everything"
DEATH: Final = "a broker dies, until the others have the last request about it"
#: {case: its name in the chart}
CASES: Final = {COLD: "cold start", FAILOVER: "failover", DEATH: "a broker dies"}
MEMORY: Final = Row("memory of the controller for a partition", "bytes", compared=False)


def rows_of(case: str) -> list[Row]:
    """The lines of one case: its total first, then what it consists of."""
    return [
        Row(case, "s", compared=False),
        Row(f"{CASES[case]}: the machine", "s", compared=False),
        Row(f"{CASES[case]}: packing, for all brokers", "s", compared=False),
        Row(f"{CASES[case]}: decoding, by the broker that takes longest", "s", compared=False),
        Row(f"{CASES[case]}: control requests, to all brokers", "", compared=False),
        Row(f"{CASES[case]}: their size", "MB", compared=False),
    ]


ROWS: Final = [*(row for case in CASES for row in rows_of(case)), MEMORY]

#: {(name of the row, partitions): one value per round}
Samples = dict[tuple[str, int], list[float]]


def measure(partitions: int, sizes: Sizes) -> dict[str, float]:
    """Measure every row of every case once; returns {name of the row: value}."""
    found: dict[str, float] = {}

    def take(case: str, world: ControllerWorld) -> None:
        world.check()
        values = _values(world.take_costs())
        found.update(zip((row.name for row in rows_of(case)), values, strict=True))
        gc.collect()

    with _collecting_as_a_broker():
        world = ControllerWorld(sizes.brokers, partitions, sizes.topic_partitions)
        gc.freeze()
        world.elect()
        take(COLD, world)
        world.retire()
        world.elect()
        take(FAILOVER, world)
        world.die(sizes.brokers)
        take(DEATH, world)
    return found


def memory_bytes(partitions: int, sizes: Sizes) -> int:
    """What a controller holds that has just read everything and sent it to everybody."""
    world = ControllerWorld(sizes.brokers, partitions, sizes.topic_partitions)
    world.elect()
    world.retire()
    gc.collect()
    tracemalloc.start()
    try:
        world.elect()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _values(costs: Costs) -> list[float]:
    return [
        costs.total_s,
        costs.machine_s,
        costs.packing_s,
        costs.slowest_decoding_s,
        costs.requests,
        costs.request_bytes / 1e6,
    ]


@contextlib.contextmanager
def _collecting_as_a_broker() -> Iterator[None]:
    """Let the collector of garbage run as often as in the process of a broker."""
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        gc.collect()


def run(sizes: Sizes = FULL) -> tuple[list[str], str]:
    """Measure all sizes; returns the lines of the report, and the chart of growth."""
    samples: Samples = {}
    for turn in range(sizes.rounds):
        for partitions in sizes.partitions:
            print(f"round {turn + 1}: {partitions:,} partitions", file=sys.stderr, flush=True)
            for name, value in measure(partitions, sizes).items():
                samples.setdefault((name, partitions), []).append(value)
    for partitions in sizes.partitions:
        print(f"memory: {partitions:,} partitions", file=sys.stderr, flush=True)
        samples[MEMORY.name, partitions] = [memory_bytes(partitions, sizes) / partitions]
    cluster = f"{sizes.brokers} brokers, topics of {sizes.topic_partitions} partitions, {REPLICAS} replicas"
    lines = [
        "",
        f"{cluster}. CPU times; medians over the rounds ({sizes.rounds}); memory once.",
        "",
        *_table(sizes.partitions, samples),
    ]
    curves = [
        chart.Curve(name, [(each, statistics.median(samples[case, each])) for each in sizes.partitions])
        for case, name in CASES.items()
    ]
    return lines, chart.draw_growth("CPU seconds by partitions (both scales logarithmic)", curves)


def _table(partitions: Sequence[int], samples: Samples) -> list[str]:
    lines = [
        "| case | " + " | ".join(f"{each:,} partitions" for each in partitions) + " |",
        "|" + " --- |" * (1 + len(partitions)),
    ]
    for row in ROWS:
        values = [statistics.median(samples[row.name, each]) for each in partitions]
        is_whole = row.unit in ("", "bytes")
        cells = [f"{each:,.0f} {row.unit}" if is_whole else value_text(each, row.unit) for each in values]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return lines
