"""A broker is killed among 10,000 partitions: until every live broker names other leaders to its clients.

Quorate beside Kafka 3.9.1, one after the other, three real brokers each, two replicas of every partition. The
time counts from the end of the killed broker's session, which a watch of the benchmark hears of. A broker is
good once a listing of all topics names a live leader for every partition; listings begin when one topic is
good, so that they are no part of the work. Times are never asserted.
Source: ARCHITECTURE.md, "Life of a broker failure".
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from tests.bench.cases import Row
from tests.bench.group_systems import GroupSystem, QuorateBrokers, measured
from tests.bench.machine import cpu_seconds
from tests.bench.report import rounds_table, table
from tests.support.nodes import eventually

#: Partitions of one topic.
TOPIC_PARTITIONS: Final = 500
DEADLINE_S: Final = 600.0
_TURNS: Final = "quorate_broker_turn_seconds"
LONG_TURN_S: Final = 0.1


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    partitions: int = 10_000
    rounds: int = 3

    @property
    def good(self) -> Row:
        """Until all live brokers have new leaders."""
        name = f"a broker is killed, {self.partitions:,} partitions: from its session's end to good metadata"
        return Row(name, "s", "0.5 s")

    def rows(self) -> list[Row]:
        """Every row, in the order of the table."""
        return [self.good, CPU, TURNS]


FULL: Final = Sizes()
TINY: Final = Sizes(6, 1)
CPU: Final = Row("the same: CPU time of both live brokers", "s")
TURNS: Final = Row("the same: turns of their loops above 100 ms", "", "0", compared=False)


class Measurement:
    """One round of one system."""

    def __init__(self, system: GroupSystem, sizes: Sizes) -> None:
        """Measure a running system."""
        self._system = system
        self._sizes = sizes
        self._admins = {
            broker_id: AdminClient({"bootstrap.servers": address})
            for broker_id, address in zip(system.broker_ids, system.addresses, strict=True)
        }
        self._topics: dict[str, int] = {}

    def run(self) -> dict[str, float]:
        """Return {name of a row: value}."""
        zookeeper = KazooClient(self._system.metadata_hosts)
        zookeeper.start(DEADLINE_S)
        try:
            return self._run(zookeeper)
        finally:
            zookeeper.stop()
            zookeeper.close()

    def _run(self, zookeeper: KazooClient) -> dict[str, float]:
        ids = self._system.broker_ids
        controller_id = int(json.loads(zookeeper.get("/controller")[0])["brokerid"])
        victim = next(each for each in ids if each != controller_id)
        live = [each for each in ids if each != victim]
        self._create(ids)
        for each in live:
            eventually(lambda b=each: self._is_good(b, ids, in_sync=True), DEADLINE_S, "all is in sync")  # type: ignore[misc]
        expired = threading.Event()

        def note(_event: WatchedEvent) -> None:
            expired.set()

        assert zookeeper.exists(f"/brokers/ids/{victim}", watch=note)
        self._system.kill(self._system.addresses[ids.index(victim)])
        long_turns, cpu_s = self._long_turns(), cpu_seconds(self._system.pids)
        assert expired.wait(DEADLINE_S), "the session of the killed broker ends"
        started = time.monotonic()
        with ThreadPoolExecutor(len(live)) as threads:
            seconds = [threads.submit(self._until_good, each, live, started) for each in live]
            good_s = max(each.result() for each in seconds)
        found = {self._sizes.good.name: good_s, CPU.name: cpu_seconds(self._system.pids) - cpu_s}
        if long_turns is not None:
            found[TURNS.name] = (self._long_turns() or 0.0) - long_turns
        return found

    def _create(self, ids: Sequence[int]) -> None:
        """Make topics whose leaders and followers are spread evenly."""
        admin, left = self._admins[ids[0]], self._sizes.partitions
        while left:
            count, topic = min(TOPIC_PARTITIONS, left), f"topic-{len(self._topics)}"
            pairs = [[ids[each % len(ids)], ids[(each + 1) % len(ids)]] for each in range(count)]
            wanted = NewTopic(topic, count, replica_assignment=pairs)
            admin.create_topics([wanted], request_timeout=DEADLINE_S)[topic].result(DEADLINE_S)
            self._topics[topic] = count
            left -= count

    def _until_good(self, broker_id: int, live: Sequence[int], started: float) -> float:
        one = next(iter(self._topics))
        eventually(lambda: self._is_good(broker_id, live, topic=one), DEADLINE_S, f"{one} is good")
        eventually(lambda: self._is_good(broker_id, live), DEADLINE_S, "all topics are good")
        return time.monotonic() - started

    def _is_good(
        self, broker_id: int, live: Sequence[int], *, topic: str | None = None, in_sync: bool = False
    ) -> bool:
        """Whether a broker names a live leader for every partition, of one topic or of all."""
        admin = self._admins[broker_id]
        listed = (
            admin.list_topics(timeout=60) if topic is None else admin.list_topics(topic, timeout=60)
        ).topics
        for name in self._topics if topic is None else (topic,):
            partitions = listed[name].partitions.values() if name in listed else ()
            if len(partitions) != self._topics[name]:
                return False
            for each in partitions:
                if each.leader not in live or (in_sync and len(each.isrs) < len(each.replicas)):
                    return False
        return True

    def _long_turns(self) -> float | None:
        """How many turns above LONG_TURN_S the live brokers have had; None for Kafka, which has no loop."""
        if not isinstance(self._system, QuorateBrokers):
            return None
        up_to = self._system.metric(f"{_TURNS}_bucket", f'le="{LONG_TURN_S}"')
        return self._system.metric(f"{_TURNS}_bucket", 'le="+Inf"') - up_to


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    samples, names = measured(
        folder, ("quorate", *peers), sizes.rounds, lambda system: Measurement(system, sizes).run().items()
    )
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(sizes.rows(), names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(sizes.rows(), names, samples)]
