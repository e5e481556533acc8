"""What sessions, Kafka connections and partitions cost that are idle.

CPU time for each second, and memory, of one server before and with them. Sessions send no pings while they
are measured: those are requests. Knows no peers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient

from tests.bench.cases import Row
from tests.bench.group_systems import QuorateBrokers
from tests.bench.lone import TOPIC_PARTITIONS, create_in_sync
from tests.bench.machine import cpu_seconds, memory_bytes
from tests.bench.report import table
from tests.bench.servers import running
from tests.bench.watchers import allow_descriptors
from tests.support.nodes import eventually
from tests.support.wire_load import Connection

#: longer than they are opened and measured
SESSION_TIMEOUT_MS: Final = 40_000
SPARE_DESCRIPTORS: Final = 200
SPARE_S: Final = 10.0
MB: Final = 1e6


class Sizes(NamedTuple):
    """How much is done."""

    sessions: int = 5000
    connections: int = 5000
    #: of three replicas each
    partitions: int = 3000
    seconds: float = 10.0

    def things(self) -> list[str]:
        """What is idle, in the order in which it is measured."""
        return [
            f"{self.sessions:,} sessions on a node",
            f"{self.connections:,} connections to a broker",
            f"{self.partitions:,} partitions on each broker",
        ]

    def rows(self) -> list[Row]:
        """CPU time and memory of each, before and with them."""
        kinds = (("CPU time a second", "ms"), ("memory", "MB"))
        return [
            Row(f"{what}, {when} {thing}", unit)
            for thing in self.things()
            for what, unit in kinds
            for when in ("without", "with")
        ]


FULL: Final = Sizes()
TINY: Final = Sizes(20, 20, 6, 0.5)


class Idle:
    """What was measured."""

    def __init__(self, sizes: Sizes) -> None:
        """Begin with nothing."""
        self._seconds = sizes.seconds
        self.samples: dict[tuple[str, str], list[float]] = {}

    def compare(self, pid: int, thing: str, begin: Callable[[], object]) -> None:
        """Measure a server without something and with it."""
        self._measure(pid, f"without {thing}")
        begin()
        self._measure(pid, f"with {thing}")

    def _measure(self, pid: int, what: str) -> None:
        used_s, began_s = cpu_seconds([pid]), time.monotonic()
        ends_s = began_s + self._seconds
        eventually(lambda: time.monotonic() >= ends_s, self._seconds + SPARE_S, "the time is over")
        used_ms = (cpu_seconds([pid]) - used_s) * 1000
        found = {
            "CPU time a second": used_ms / (time.monotonic() - began_s),
            "memory": memory_bytes(pid)[1] / MB,
        }
        for kind, value in found.items():
            self.samples[f"{kind}, {what}", "Quorate"] = [value]


def connect(address: str) -> socket.socket:
    """Open a connection that says nothing."""
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def create(addresses: Sequence[str], count: int) -> None:
    """Create topics with so many partitions in all, and wait until their replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": ",".join(addresses)})
    for created in range(0, count, TOPIC_PARTITIONS):
        create_in_sync(admin, f"idle-{created}", min(TOPIC_PARTITIONS, count - created))


def run(folder: Path, sizes: Sizes = FULL) -> list[str]:
    """Measure everything; returns the lines of the report."""
    allow_descriptors(max(sizes.sessions, sizes.connections) + SPARE_DESCRIPTORS)
    found = Idle(sizes)
    sessions, connections, partitions = sizes.things()
    (folder / "nodes").mkdir()
    (folder / "brokers").mkdir()
    with running(["quorate"], folder / "nodes") as (servers,), ExitStack() as open_ones:

        def open_sessions() -> None:
            for _ in range(sizes.sessions):
                open_ones.enter_context(Connection(servers.hosts[0], session_timeout_ms=SESSION_TIMEOUT_MS))

        found.compare(servers.pids[0], sessions, open_sessions)
    brokers = QuorateBrokers(folder / "brokers")
    try:
        with ExitStack() as open_ones:

            def open_connections() -> None:
                for _ in range(sizes.connections):
                    open_ones.enter_context(connect(brokers.addresses[0]))

            found.compare(brokers.pids[0], connections, open_connections)
        found.compare(brokers.pids[0], partitions, lambda: create(brokers.addresses, sizes.partitions))
    finally:
        brokers.close()
    return ["", *table(sizes.rows(), ["Quorate"], found.samples)]
