"""Runs streams on both systems, several at a time, and gathers what differs.

Ordinary streams run beside each other (`lanes`); every `DENSE_EVERY`-th runs alone, and its zxids are
compared to the last unit.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.differential.compare import Difference, differences
from tests.conformance.differential.coverage import GOAL, Coverage
from tests.conformance.differential.generator import generate
from tests.conformance.differential.known import KNOWN, explain
from tests.conformance.differential.link import LostError, Side
from tests.conformance.differential.player import Player, Transcript
from tests.conformance.differential.steps import Stream

DENSE_EVERY: Final = 8
LANES: Final = 24
#: so that no two runs of this process share a root, whatever systems they have in common
_RUN_NUMBERS: Final = itertools.count(1)


@dataclass
class Verdict:
    """What came of one stream."""

    stream: Stream
    dense: bool
    #: the first difference that no known one explains
    difference: Difference | None
    #: {name of a known difference: how often}
    known: Counter[str]
    theirs: Transcript
    ours: Transcript


@dataclass
class Report:
    """What came of many streams."""

    coverage: Coverage = field(default_factory=Coverage)
    known: Counter[str] = field(default_factory=Counter)
    failures: list[Verdict] = field(default_factory=list)
    streams: int = 0
    begun_s: float = field(default_factory=time.monotonic)

    def add(self, verdict: Verdict) -> None:
        """Count a stream."""
        self.streams += 1
        self.coverage.count(verdict.stream, verdict.theirs)
        self.known.update(verdict.known)
        if verdict.difference is not None:
            self.failures.append(verdict)

    def summary(self, goal: int = GOAL) -> str:
        """Write what was run.

        Args:
            goal: how often every cell of the coverage is to be reached.
        """
        took_s = time.monotonic() - self.begun_s
        lines = [self.coverage.table(), self.coverage.demands(goal), "known differences:"]
        lines += [f"  {name}: {self.known[name]}" for name in KNOWN]
        rate = self.streams / took_s if took_s else 0.0
        lines.append(f"{self.streams} streams, {rate:.1f} per second, {len(self.failures)} differ")
        return "\n".join(lines)


def is_dense(seed: int) -> bool:
    """Whether the stream of a seed runs alone."""
    return seed % DENSE_EVERY == 0


class Arena:
    """Two systems on which streams are compared."""

    def __init__(self, theirs: Side, ours: Side) -> None:
        self.theirs = theirs
        self.ours = ours
        #: seeds of the streams that are being played
        self.under_way: set[int] = set()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Arena]:
        """Hold the checker's own sessions open."""
        await self.theirs.open()
        await self.ours.open()
        yield self
        await self.theirs.close()
        await self.ours.close()

    async def run(self, stream: Stream, *, dense: bool) -> Verdict:
        """Play a stream on both and compare."""
        root = f"/s{stream.seed}-{next(_RUN_NUMBERS)}/r"
        self.under_way.add(stream.seed)
        try:
            theirs, ours = await asyncio.gather(
                Player(self.theirs, stream, root).play(), Player(self.ours, stream, root).play()
            )
        except (LostError, OSError) as error:
            # the other streams fail with it; the first to notice says what was under way
            under_way = ", ".join(map(str, sorted(self.under_way)))
            raise LostError(f"a system stopped answering while streams {under_way} ran: {error!r}") from error
        self.under_way.discard(stream.seed)
        known: Counter[str] = Counter()
        found: Difference | None = None
        for difference in differences(theirs, ours, dense=dense):
            name = explain(stream, difference)
            if name is None:
                found = difference
                break
            known[name] += 1
        return Verdict(stream, dense, found, known, theirs, ours)


async def run_seeds(
    arena: Arena,
    seeds: Iterable[int],
    on_verdict: Callable[[Verdict], bool],
    *,
    lanes: int = LANES,
    report: Report | None = None,
) -> Report:
    """Run the streams of seeds.

    Args:
        arena: the two systems.
        seeds: which.
        on_verdict: told of each stream; False ends the run.
        lanes: how many run at a time.
        report: counts on in this one, which is then whole also if a system gives up.
    """
    report = report or Report()
    pending = iter(seeds)
    alone: list[int] = []
    stopped = False

    def judge(verdict: Verdict) -> None:
        nonlocal stopped
        report.add(verdict)
        stopped = stopped or not on_verdict(verdict)

    async def lane() -> None:
        for seed in pending:
            if is_dense(seed):
                alone.append(seed)
                if len(alone) >= lanes:
                    return
                continue
            judge(await arena.run(generate(seed, dense=False), dense=False))
            if stopped:
                return

    exhausted = False
    while not (stopped or exhausted):
        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())
        exhausted = len(alone) < lanes
        for seed in alone:
            if not stopped:
                judge(await arena.run(generate(seed, dense=True), dense=True))
        alone.clear()
    return report
