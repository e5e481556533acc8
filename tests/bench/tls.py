"""What TLS costs at brokers: records that are produced and fetched, and memory, beside Kafka 3.9.1.

Each broker has a plain port and a TLS port, which needs a certificate. One producer and one consumer of
librdkafka fill and read a partition of one replica through one port after the other; CPU time is the
broker's. Then connections stand there that say nothing. Knows nothing of Quorate; times are never asserted.
Source: docs/reference/security.md, "What it costs, and what bounds it".
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.cases import Row
from tests.bench.group_systems import AUTHORITY, GroupSystem, measured
from tests.bench.machine import cpu_seconds, memory_bytes
from tests.bench.report import rounds_table, table
from tests.bench.watchers import allow_descriptors

DEADLINE_S: Final = 300.0
TOPIC: Final = "secured"
VALUE: Final = bytes(range(250)) * 4
MB: Final = 1e6
KIB: Final = 1024
WAYS: Final = ("plain", "TLS")
KINDS: Final = ("produce", "fetch")
SPARE_DESCRIPTORS: Final = 200


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    records: int = 200_000
    connections: int = 1000
    rounds: int = 3

    def rows(self) -> list[Row]:
        """Every row, in the order of the table."""
        rows = [Row(f"{kind}, {way}: MB", "/s") for kind in KINDS for way in WAYS]
        rows += [
            Row(f"{kind}, {way}: CPU time of the broker for 1 GB", "s") for kind in KINDS for way in WAYS
        ]
        return [*rows, *(Row(f"memory of a connection, {way}", "KiB") for way in WAYS)]


FULL: Final = Sizes()
TINY: Final = Sizes(2000, 10, 1)


class SecureSystem(GroupSystem, Protocol):
    """Brokers with a TLS port each."""

    @property
    def secure_addresses(self) -> list[str]: ...


class Measurement:
    """One round of one system."""

    def __init__(self, system: SecureSystem, folder: Path, sizes: Sizes) -> None:
        """Measure the first broker of a running system, whose authority is in a folder."""
        self._sizes = sizes
        self._pid = system.pids[0]
        self._broker_id = system.broker_ids[0]
        self._addresses = dict(zip(WAYS, (system.addresses[0], system.secure_addresses[0]), strict=True))
        authority = folder / AUTHORITY
        self._authority = authority / "ca.pem"
        # Any certificate of the authority will do.
        self._own = authority / "brokers.pem", authority / "brokers.key"

    def run(self) -> Iterator[tuple[str, float]]:
        """Yield (name of a row, value)."""
        admin = AdminClient({"bootstrap.servers": self._addresses["plain"]})
        for number in ("warm", *WAYS):
            new = NewTopic(f"{TOPIC}-{number}", 1, replica_assignment=[[self._broker_id]])
            admin.create_topics([new])[new.topic].result(DEADLINE_S)
        for way in WAYS:
            self._produce(way, "warm")
            self._fetch(way, "warm")
        for way in WAYS:
            for kind, work in (("produce", self._produce), ("fetch", self._fetch)):
                used_s, began_s = cpu_seconds([self._pid]), time.monotonic()
                work(way, way)
                took_s, size = time.monotonic() - began_s, self._sizes.records * len(VALUE)
                yield f"{kind}, {way}: MB", size / MB / took_s
                used_s = cpu_seconds([self._pid]) - used_s
                yield f"{kind}, {way}: CPU time of the broker for 1 GB", used_s / size * 1e9
        for way in WAYS:
            yield f"memory of a connection, {way}", self._memory(way) / KIB

    def _client(self, way: str) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap.servers": self._addresses[way]}
        if way == "TLS":
            certificate, key = map(str, self._own)
            found |= {"security.protocol": "ssl", "ssl.ca.location": str(self._authority)}
            found |= {"ssl.certificate.location": certificate, "ssl.key.location": key}
        return found

    def _produce(self, way: str, topic: str) -> None:
        producer = Producer({**self._client(way), "acks": "all", "linger.ms": 5, "batch.size": 262_144})
        for _ in range(self._sizes.records):
            while True:
                try:
                    producer.produce(f"{TOPIC}-{topic}", VALUE, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(DEADLINE_S) == 0

    def _fetch(self, way: str, topic: str) -> None:
        consumer = Consumer({**self._client(way), "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(f"{TOPIC}-{topic}", 0, 0)])
        read, deadline_s = 0, time.monotonic() + DEADLINE_S
        while read < self._sizes.records:
            assert time.monotonic() < deadline_s, f"only {read} records came"
            read += len(consumer.consume(10_000, 1.0))
        consumer.close()

    def _memory(self, way: str) -> float:
        """Bytes that one connection holds that is open and says nothing."""
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(*self._own)
        host, _, port = self._addresses[way].rpartition(":")
        before = memory_bytes(self._pid)[1]
        with ExitStack() as open_ones:
            for _ in range(self._sizes.connections):
                link = open_ones.enter_context(socket.create_connection((host, int(port)), DEADLINE_S))
                if way == "TLS":
                    open_ones.enter_context(context.wrap_socket(link, server_hostname=host))
            return (memory_bytes(self._pid)[1] - before) / self._sizes.connections


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    allow_descriptors(2 * sizes.connections + SPARE_DESCRIPTORS)
    turns = iter([(kind, turn) for turn in range(sizes.rounds) for kind in ("quorate-tls", *peers)])

    def measure(system: GroupSystem) -> list[tuple[str, float]]:
        kind, turn = next(turns)
        place = folder / f"{kind}-{turn}"
        return list(Measurement(cast("SecureSystem", system), place, sizes).run())

    samples, names = measured(folder, ("quorate-tls", *peers), sizes.rounds, measure)
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(sizes.rows(), names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(sizes.rows(), names, samples)]
