"""What the controller's two channels cost, and how fast a broker is drained of its leaderships.

Quorate with direct requests and with queues, beside Kafka 3.9.1, one after the other, three brokers each. A
leader is changed by the order of its replicas and a request for the preferred one, and has changed when every
broker names the new one. A broker is drained by SIGTERM; it is drained when another broker names it nowhere
as a leader. Transactions are counted by zxid, requests by the quorum's own counter of packets. Kafka is left
out of the changes: it does not take another order of replicas from the znode. Times are never asserted.
Source: docs/internals/requirements.md, [0.disc2], [1.4]; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import json
import socket
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.bench.cases import Row
from tests.bench.group_systems import GroupSystem, QuorateBrokers, measured
from tests.bench.report import rounds_table, table
from tests.support.nodes import eventually

OWN: Final = ("quorate", "queue")
#: Partitions of one topic.
TOPIC_PARTITIONS: Final = 100
MOVED: Final = "moved"
DEADLINE_S: Final = 600.0
#: The controllers' counter of what they have sent.
REQUESTS: Final = "quorate_controller_requests_total"
ELECTION: Final = "/admin/preferred_replica_election"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    changes: int = 300
    partitions: int = 10_000
    rounds: int = 3


FULL: Final = Sizes()
TINY: Final = Sizes(changes=3, partitions=8, rounds=1)

#: Writes of the benchmark itself for one change: the order, the request.
_OWN_WRITES: Final = 2


@dataclass(frozen=True)
class Rows:
    """The lines of the table, in words that name their sizes."""

    sizes: Sizes

    change_p50 = Row("a leader changes, until every broker says so: p50", "ms", compared=False)
    change_p99 = Row("the same: p99", "ms", compared=False)
    change_writes = Row("transactions of the quorum for one change", "", compared=False)
    change_packets = Row("requests to the quorum for one change, pings included", "", compared=False)
    change_requests = Row("control requests or entries for one change", "", compared=False)

    @property
    def drained(self) -> Row:
        """Others lead."""
        return Row(f"a broker that stops gives {self.sizes.partitions:,} leaderships away", "s")

    @property
    def ended(self) -> Row:
        """Its process has ended."""
        return Row("the same, until its process has ended", "s")

    @property
    def leaderless(self) -> Row:
        """Partitions that clients saw without a leader."""
        return Row("partitions without a leader, at most, meanwhile", "", "0", compared=False)

    @property
    def drain_writes(self) -> Row:
        """What the quorum wrote for it."""
        return Row("transactions of the quorum meanwhile", "", compared=False)

    def of_changes(self) -> list[Row]:
        """Those that only Quorate has."""
        return [
            *(self.change_p50, self.change_p99),
            *(self.change_writes, self.change_packets, self.change_requests),
        ]

    def all(self) -> list[Row]:
        """Every row, in the order of the table."""
        return [*self.of_changes(), self.drained, self.ended, self.leaderless, self.drain_writes]


class Measurement:
    """One round of one system."""

    def __init__(self, system: GroupSystem, sizes: Sizes) -> None:
        """Measure a running system."""
        self._system = system
        self._sizes = sizes
        self._rows = Rows(sizes)
        self._found: list[tuple[Row, float]] = []
        self._admins = {
            broker_id: AdminClient({"bootstrap.servers": address})
            for broker_id, address in zip(system.broker_ids, system.addresses, strict=True)
        }

    def run(self) -> list[tuple[Row, float]]:
        """Measure every row that the system has."""
        counted = Counted(self._system.metadata_hosts)
        try:
            if isinstance(self._system, QuorateBrokers):
                self._change(counted, self._system)
            self._drain(counted)
        finally:
            counted.close()
        return self._found

    def _create(self, topic: str, assignment: list[list[int]]) -> None:
        admin = next(iter(self._admins.values()))
        wanted = NewTopic(topic, len(assignment), replica_assignment=assignment)
        admin.create_topics([wanted])[topic].result(DEADLINE_S)

    def _change(self, counted: Counted, system: QuorateBrokers) -> None:
        zookeeper = counted.client
        one, two, _ = system.broker_ids
        self._create(MOVED, [[one, two]])
        eventually(lambda: self._all_name(one), DEADLINE_S, "the topic is led")
        times_ms: list[float] = []
        packets, requests = counted.packets(), system.metric(REQUESTS)
        writes = counted.transactions()
        for number in range(self._sizes.changes):
            order = [two, one] if number % 2 == 0 else [one, two]
            value, _ = zookeeper.get(f"/brokers/topics/{MOVED}")
            record = {**json.loads(value), "partitions": {"0": order}}
            zookeeper.set(f"/brokers/topics/{MOVED}", json.dumps(record).encode())
            wanted = {"version": 1, "partitions": [{"topic": MOVED, "partition": 0}]}
            started = time.monotonic()
            zookeeper.create(ELECTION, json.dumps(wanted).encode())
            eventually(lambda leader=order[0]: self._all_name(leader), DEADLINE_S, "the leader changed")  # type: ignore[misc]
            times_ms.append((time.monotonic() - started) * 1000)
            eventually(lambda: zookeeper.exists(ELECTION) is None, DEADLINE_S, "the request was taken")
        count = self._sizes.changes
        times_ms.sort()
        self._found += [
            (self._rows.change_p50, statistics.median(times_ms)),
            (self._rows.change_p99, times_ms[count * 99 // 100]),
            (self._rows.change_writes, (counted.transactions() - writes) / count - _OWN_WRITES),
            (self._rows.change_packets, (counted.packets() - packets) / count),
            (self._rows.change_requests, (system.metric(REQUESTS) - requests) / count),
        ]

    def _all_name(self, leader: int) -> bool:
        return all(
            (topic := admin.list_topics(MOVED, timeout=10).topics[MOVED]).error is None
            and topic.partitions[0].leader == leader
            for admin in self._admins.values()
        )

    def _drain(self, counted: Counted) -> None:
        value, _ = counted.client.get("/controller")
        controller_id = int(json.loads(value)["brokerid"])
        drained, other = (each for each in self._system.broker_ids if each != controller_id)
        heirs = (controller_id, other)
        left = self._sizes.partitions
        for number in range(-(-left // TOPIC_PARTITIONS)):
            count = min(TOPIC_PARTITIONS, left)
            left -= count
            self._create(f"drained-{number}", [[drained, heirs[each % 2]] for each in range(count)])
        admin = self._admins[controller_id]
        eventually(lambda: self._led(admin, drained) == (self._sizes.partitions, 0, True), DEADLINE_S, "led")
        address = self._system.addresses[self._system.broker_ids.index(drained)]
        writes = counted.transactions()
        ended: list[float] = []
        started = time.monotonic()

        def end() -> None:
            self._system.end(address)
            ended.append(time.monotonic() - started)

        ending = threading.Thread(target=end)
        ending.start()
        worst = 0
        while True:
            led, leaderless, _ = self._led(admin, drained)
            worst = max(worst, leaderless)
            if not led:
                break
        self._found.append((self._rows.drained, time.monotonic() - started))
        ending.join()
        self._found += [
            (self._rows.ended, ended[0]),
            (self._rows.leaderless, float(worst)),
            (self._rows.drain_writes, float(counted.transactions() - writes)),
        ]

    def _led(self, admin: AdminClient, broker_id: int) -> tuple[int, int, bool]:
        """(partitions that a broker leads, partitions without a leader, whether all are in sync)."""
        topics = admin.list_topics(timeout=60).topics
        found = [
            each
            for name, topic in topics.items()
            if name.startswith("drained-")
            for each in topic.partitions.values()
        ]
        return (
            sum(each.leader == broker_id for each in found),
            sum(each.leader == -1 for each in found),
            all(len(each.isrs) == len(each.replicas) for each in found),
        )


class Counted:
    """A client of a system's metadata that counts what the servers do."""

    def __init__(self, hosts: str) -> None:
        """Connect."""
        self._hosts = hosts
        self._own_transactions = 0
        self.client = KazooClient(hosts)
        self.client.start(DEADLINE_S)

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()

    def transactions(self) -> int:
        """How many transactions there have been, without those of this function."""
        before = self._own_transactions
        self._own_transactions += 2
        self.client.create("/counted", ephemeral=True)
        stat = self.client.exists("/counted")
        self.client.delete("/counted")
        assert stat is not None
        return int(stat.czxid) - before

    def packets(self) -> int:
        """How many packets the servers have received."""
        return sum(_packets(*host.split(":")) for host in self._hosts.split(","))


def _packets(host: str, port: str) -> int:
    with socket.create_connection((host, int(port)), 10.0) as link:
        link.sendall(b"mntr")
        rows = b"".join(iter(lambda: link.recv(65536), b"")).decode().splitlines()
    return next(int(row.split("\t")[1]) for row in rows if row.startswith("zk_packets_received\t"))


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate with both channels, and the peers; returns the lines of the report."""
    rows = Rows(sizes)
    samples, names = measured(
        folder,
        (*OWN, *peers),
        sizes.rounds,
        lambda system: [(row.name, value) for row, value in Measurement(system, sizes).run()],
    )
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(rows.all(), names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(rows.all(), names, samples)]
