"""What a lone record costs beside idle partitions: acks=all, three replicas, one producer that waits.

Quorate beside Kafka 3.9.1, one after the other, three brokers each. The partitions grow within one cluster;
before each measurement all replicas are in sync. The first records, for which the client looks up what it
does not know yet, do not count. Then what a broker's answer about as many partitions costs, alone. Times are
never asserted.
Source: ARCHITECTURE.md, "Life of a record"; KIP-227.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench import metadata_rows
from tests.bench.cases import Row
from tests.bench.group_systems import BROKERS, GroupSystem, measured
from tests.bench.report import rounds_table, table
from tests.support.nodes import eventually

TOPIC_PARTITIONS: Final = 500
UNCOUNTED: Final = 10
DEADLINE_S: Final = 600.0


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    #: idle partitions, rising
    idle: tuple[int, ...] = (500, 3000, 6000)
    records: int = 200
    rounds: int = 1
    #: answers of each kind
    answers: int = 15

    def rows(self) -> dict[int, Row]:
        """{idle partitions: row}"""
        return {
            idle: Row(f"a lone record, acks=all, beside {idle:,} idle partitions: p50", "ms")
            for idle in self.idle
        }


FULL: Final = Sizes()
TINY: Final = Sizes((3, 6), 20, answers=1)


def create_in_sync(admin: AdminClient, topic: str, count: int) -> None:
    """Create a topic with so many partitions, and wait until their replicas are in sync."""
    admin.create_topics([NewTopic(topic, count, BROKERS)])[topic].result(DEADLINE_S)

    def is_in_sync() -> bool:
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        return len(partitions) == count and all(len(each.isrs) == BROKERS for each in partitions)

    eventually(is_in_sync, DEADLINE_S, f"{topic} is in sync")


class Measurement:
    """One round of one system."""

    def __init__(self, system: GroupSystem) -> None:
        """Measure a running system."""
        servers = ",".join(system.addresses)
        self._admin = AdminClient({"bootstrap.servers": servers})
        self._producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})

    def run(self, sizes: Sizes) -> dict[int, float]:
        """Return {idle partitions: p50 in milliseconds}."""
        create_in_sync(self._admin, "lone", 1)
        found: dict[int, float] = {}
        created = 0
        for idle in sizes.idle:
            while created < idle:
                count = min(TOPIC_PARTITIONS, idle - created)
                create_in_sync(self._admin, f"idle-{created}", count)
                created += count
            times_ms = [self._one_ms() for _ in range(UNCOUNTED + sizes.records)]
            found[idle] = statistics.median(times_ms[UNCOUNTED:])
        return found

    def _one_ms(self) -> float:
        started = time.monotonic()
        self._producer.produce("lone", b"x" * 100)
        assert self._producer.flush(DEADLINE_S) == 0
        return (time.monotonic() - started) * 1000


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    rows = sizes.rows()
    samples, names = measured(
        folder,
        ("quorate", *peers),
        sizes.rounds,
        lambda system: [(rows[idle].name, ms) for idle, ms in Measurement(system).run(sizes).items()],
    )
    answered = max(sizes.idle)
    for name, values in metadata_rows.measure(answered, sizes.answers).items():
        samples[name, names[0]] = values
    all_rows = [*rows.values(), *metadata_rows.rows_of(answered)]
    counts = f"Medians of {sizes.rounds} rounds; of {sizes.answers} answers of each kind."
    lines = ["", counts, "", *table(all_rows, names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(all_rows, names, samples)]
