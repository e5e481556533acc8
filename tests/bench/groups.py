"""Consumer groups: what their coordinator costs, how long a rebalance takes, and the pause when it dies.

Quorate beside Kafka 3.9.1, one after the other, three brokers each. CPU time is that of all three brokers,
for Kafka spreads groups over them. A pause is counted from the SIGKILL to a group's next commit, less the
session timeout of a broker, which both systems have to wait for. Times are printed and never asserted.
Source: ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.bench import group_core
from tests.bench.cases import Row
from tests.bench.group_load import (
    COMMIT_S,
    HEARTBEAT_S,
    PARTITIONS,
    REJOIN,
    TOPIC,
    Fleet,
    Tally,
    subscription,
)
from tests.bench.group_systems import SESSION_TIMEOUT_MS, GroupSystem, measured
from tests.bench.machine import cpu_seconds
from tests.bench.report import rounds_table, table
from tests.support.group_members import create_topic

OWN: Final = "quorate"
#: A failover is given so long, beyond the session timeout.
FAILOVER_DEADLINE_S: Final = 120.0


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    few: int = 400
    many: int = 4_000
    core: int = 40_000
    members_each: int = 4
    rebalancing: int = 100
    seconds: float = 20.0
    rounds: int = 3

    @property
    def groups(self) -> int:
        """Groups that `many` members are."""
        return self.many // self.members_each


FULL: Final = Sizes()
TINY: Final = Sizes(few=4, many=8, core=400, rebalancing=5, seconds=0.5, rounds=1)


@dataclass(frozen=True)
class Rows:
    """The lines of the table, in words that name their sizes."""

    sizes: Sizes

    def cpu(self, members: int) -> Row:
        """Heartbeats alone."""
        return Row(f"CPU a minute, {members:,} members, a heartbeat each {HEARTBEAT_S:.0f} s", "s")

    @property
    def commits_cpu(self) -> Row:
        """Heartbeats and commits."""
        groups = f"{self.sizes.groups:,} groups of {self.sizes.members_each}"
        return Row(f"CPU a minute, {groups}, a commit each {COMMIT_S:.0f} s too", "s")

    @property
    def commit_p50(self) -> Row:
        """How long these commits take."""
        return Row("a commit among these: p50", "ms")

    @property
    def commit_p99(self) -> Row:
        """How long they take at worst."""
        return Row("a commit among these: p99", "ms")

    @property
    def rebalance(self) -> Row:
        """All members of a group join again at once."""
        return Row(f"{self.sizes.rebalancing} members join again: until all are assigned", "ms")

    @property
    def first(self) -> Row:
        """The pause of the first group."""
        return Row("coordinator killed: first commit, beyond the session", "s", "< 1 s")

    @property
    def median(self) -> Row:
        """The pause of most groups."""
        return Row("coordinator killed: half of its groups have committed, beyond the session", "s", "< 1 s")

    @property
    def last(self) -> Row:
        """The pause of the last group."""
        return Row("coordinator killed: all of its groups have committed, beyond the session", "s")

    @property
    def rejoined(self) -> Row:
        """Answers that sent a member back to the join."""
        return Row("coordinator killed: members that had to join again", "", "0", compared=False)

    @property
    def core(self) -> Row:
        """The machines alone."""
        return Row(
            f"CPU a minute, {self.sizes.core:,} members, the core without sockets", "s", compared=False
        )

    @property
    def assignment(self) -> Row:
        """The assignor alone."""
        return Row("2,000 partitions of 10 members to 1,000, uniform", "ms", compared=False)

    def all(self) -> list[Row]:
        """Every line, in order."""
        sizes = self.sizes
        return [
            *(self.cpu(sizes.few), self.cpu(sizes.many), self.commits_cpu, self.commit_p50, self.commit_p99),
            *(self.rebalance, self.first, self.median, self.last, self.rejoined, self.core, self.assignment),
        ]


class Measurement:
    """One system, measured once."""

    def __init__(self, system: GroupSystem, sizes: Sizes) -> None:
        self._system = system
        self._sizes = sizes
        self._rows = Rows(sizes)
        self._found: list[tuple[Row, float]] = []

    def _note(self, row: Row, value: float) -> None:
        self._found.append((row, value))
        print(f"{self._system.name}: {row.name}: {value:.3f} {row.unit}", file=sys.stderr, flush=True)

    async def run(self) -> list[tuple[Row, float]]:
        """Measure everything."""
        sizes = self._sizes
        await asyncio.to_thread(self._prepare)
        await self._warm_up()
        await self._heartbeats(sizes.few)
        await self._heartbeats(sizes.many)
        await self._commits_and_failover()
        await asyncio.to_thread(self._system.revive)
        await self._rebalances()
        return self._found

    def _prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": ",".join(self._system.addresses), "log_level": 0})
        create_topic(admin, TOPIC, PARTITIONS)

    async def _warm_up(self) -> None:
        """Let a virtual machine compile what it will run."""
        fleet = Fleet(self._system.addresses)
        try:
            await fleet.join(self._sizes.groups, self._sizes.members_each, "warm")
            fleet.start_beating(COMMIT_S)
            await fleet.settle(self._sizes.seconds)
        finally:
            await fleet.close()

    async def _load(self, fleet: Fleet, row: Row) -> Tally:
        """Let a fleet work; note the CPU time of the brokers, as if it had been a minute."""
        await fleet.settle(min(2 * HEARTBEAT_S, self._sizes.seconds))
        before, started = cpu_seconds(self._system.pids), time.monotonic()
        tally = await fleet.settle(self._sizes.seconds)
        spent, elapsed = cpu_seconds(self._system.pids) - before, time.monotonic() - started
        self._note(row, spent * 60 / elapsed)
        return tally

    async def _heartbeats(self, members: int) -> None:
        fleet = Fleet(self._system.addresses)
        try:
            await fleet.join(members // self._sizes.members_each, self._sizes.members_each, f"beat-{members}")
            fleet.start_beating()
            await self._load(fleet, self._rows.cpu(members))
        finally:
            await fleet.close()

    async def _commits_and_failover(self) -> None:
        fleet = Fleet(self._system.addresses)
        try:
            await fleet.join(self._sizes.groups, self._sizes.members_each, "commit")
            fleet.start_beating(COMMIT_S)
            tally = await self._load(fleet, self._rows.commits_cpu)
            times = sorted(tally.commit_ms)
            if times:
                self._note(self._rows.commit_p50, times[len(times) // 2])
                self._note(self._rows.commit_p99, times[len(times) * 99 // 100])
            await self._failover(fleet)
        finally:
            await fleet.close()

    async def _failover(self, fleet: Fleet) -> None:
        """Kill the broker that coordinates most groups; all members go on sending heartbeats and commits."""
        (dead, _), *_ = Counter(group.address for group in fleet.groups).most_common(1)
        led = [group for group in fleet.groups if group.address == dead]
        await asyncio.to_thread(self._system.kill, dead)
        struck = time.monotonic()
        for group in led:
            group.first_commit_s = None
        fleet.tally = Tally()
        deadline = struck + FAILOVER_DEADLINE_S
        while any(group.first_commit_s is None for group in led) and time.monotonic() < deadline:
            await fleet.pause_until(time.monotonic() + HEARTBEAT_S)
        session_s = SESSION_TIMEOUT_MS / 1000
        pauses = sorted(
            (FAILOVER_DEADLINE_S if group.first_commit_s is None else group.first_commit_s - struck)
            - session_s
            for group in led
        )
        self._note(self._rows.first, pauses[0])
        self._note(self._rows.median, statistics.median(pauses))
        self._note(self._rows.last, pauses[-1])
        self._note(self._rows.rejoined, sum(fleet.tally.errors[code] for code in REJOIN))
        print(f"{self._system.name}: answers while it was gone: {dict(fleet.tally.errors)}", file=sys.stderr)

    async def _rebalances(self) -> None:
        fleet = Fleet(self._system.addresses)
        try:
            await fleet.join(1, self._sizes.rebalancing, "rebalance")
            for number in range(5):
                for member in fleet.members:
                    # What a member says has changed, so a rebalance begins with the first of them.
                    member.metadata = subscription(number.to_bytes(4))
                started = time.monotonic()
                await asyncio.gather(*(member.join() for member in fleet.members))
                self._note(self._rows.rebalance, (time.monotonic() - started) * 1000)
        finally:
            await fleet.close()


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    rows = Rows(sizes)
    samples, names = measured(
        folder,
        (OWN, *peers),
        sizes.rounds,
        lambda system: [(row.name, value) for row, value in asyncio.run(Measurement(system, sizes).run())],
    )
    own = names[0]
    samples[rows.core.name, own] = [group_core.minute_of_heartbeats(sizes.core) for _ in range(sizes.rounds)]
    samples[rows.assignment.name, own] = [
        group_core.assignment_seconds("uniform", 2_000, 1_000) * 1000 for _ in range(sizes.rounds)
    ]
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(rows.all(), names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(rows.all(), names, samples)]
