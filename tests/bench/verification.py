"""What it costs that a leader asks the coordinator before the first record of a transaction.

Requests by hand to a leader that is not the coordinator, with transaction_partition_verification_enable on
and off: how long Produce takes for the first and for the second record of each transaction, acks=all, one
replica. A node of the quorum and two brokers for each setting; they take turns. Knows no peers; nothing is
asserted.
Source: ARCHITECTURE.md, "Life of a transaction"; KIP-890.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from controller.wire.apis import ApiKey
from quorum.metadata import paths
from tests.bench.cases import Row
from tests.bench.report import table
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, record_batch
from tests.support.nodes import eventually

TOPIC: Final = "verified"
ID: Final = "bench"
TRANSACTIONAL: Final = 0x10
DEADLINE_S: Final = 60.0
#: Transactions for which brokers look up what they do not know yet.
UNCOUNTED: Final = 5
SETTINGS: Final = {"with verification": True, "without": False}
RECORDS: Final = ("first", "second")
QUANTILES: Final = (50, 99)


class Sizes(NamedTuple):
    """How much is done."""

    transactions: int = 500

    def rows(self) -> list[Row]:
        """Every row."""
        return [row(*each) for each in _KINDS]


def row(setting: str, record: str, quantile: int) -> Row:
    """How long Produce takes."""
    return Row(f"{setting}: the {record} record of a transaction, p{quantile}", "ms")


_KINDS: Final = [(each, record, at) for each in SETTINGS for record in RECORDS for at in QUANTILES]
FULL: Final = Sizes()
TINY: Final = Sizes(5)


class Subject:
    """Brokers, and a producer by hand."""

    def __init__(self, cluster: BrokerCluster) -> None:
        """Take an id, and make a topic that the other broker leads."""

        def coordinator() -> int:
            return int((cluster.read(paths.COORDINATOR) or {}).get("brokerid", 0))

        self._cluster = cluster
        coordinating = eventually(coordinator, DEADLINE_S, "there is a coordinator")
        leader = next(each for each in cluster.brokers if each != coordinating)
        new = NewTopic(TOPIC, 1, replica_assignment=[[leader]])
        admin = AdminClient(quiet(cluster.bootstrap))
        admin.create_topics([new])[TOPIC].result(DEADLINE_S)
        cluster.wait_in_sync(TOPIC)
        self._coordinator = BrokerLink(cluster.address(coordinating))
        self._leader = BrokerLink(cluster.address(leader))
        self._sequence = 0
        #: {record of a transaction: ms of each}
        self.found_ms: dict[str, list[float]] = {each: [] for each in RECORDS}

        def init() -> Any:
            values = {"transactional_id": ID, "transaction_timeout": 60_000}
            answer = self._coordinator.ask(ApiKey.INIT_PRODUCER_ID, 4, values)
            return answer if answer.error_code == 0 else None

        who = eventually(init, DEADLINE_S, "the coordinator gives an id")
        self._producer = int(who.producer_id), int(who.producer_epoch)

    def transact(self) -> None:
        """Write a transaction of two records, and wait until it is complete."""
        producer_id, epoch = self._producer
        values: dict[str, Any] = {
            "v3_and_below_transactional_id": ID,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": (0,)}],
        }
        answer = self._coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)
        (added,) = answer.results_by_topic_v3_and_below
        assert added.results_by_partition[0].partition_error_code == 0
        for record in RECORDS:
            producer = (producer_id, epoch, self._sequence)
            batch = record_batch([b"x" * 100], attributes=TRANSACTIONAL, producer=producer)
            data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
            values = {"transactional_id": ID, "acks": -1, "timeout": 20_000, "topic_data": data}
            begun_s = time.perf_counter()
            found = self._leader.ask(ApiKey.PRODUCE, 9, values)
            self.found_ms[record].append((time.perf_counter() - begun_s) * 1000)
            assert found.responses[0].partition_responses[0].error_code == 0
            self._sequence += 1
        values = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch}
        answer = self._coordinator.ask(ApiKey.END_TXN, 3, {**values, "committed": True})
        assert answer.error_code == 0


def run(folder: Path, sizes: Sizes = FULL) -> list[str]:
    """Measure everything; returns the lines of the report."""
    with ExitStack() as open_ones:
        subjects: dict[str, Subject] = {}
        for number, (setting, verifies) in enumerate(SETTINGS.items()):
            place = folder / str(number)
            place.mkdir()
            section = {"transactions": {"transaction_partition_verification_enable": verifies}}
            cluster = open_ones.enter_context(BrokerCluster(brokers=2, settings=section, folder=place))
            cluster.wait_ready()
            subjects[setting] = Subject(cluster)
        for _ in range(UNCOUNTED + sizes.transactions):
            for subject in subjects.values():
                subject.transact()
    samples: dict[tuple[str, str], list[float]] = {}
    for setting, record, quantile in _KINDS:
        found_ms = subjects[setting].found_ms[record][UNCOUNTED:]
        value = statistics.quantiles(found_ms, n=100, method="inclusive")[quantile - 1]
        samples[row(setting, record, quantile).name, "Quorate"] = [value]
    return ["", *table(sizes.rows(), ["Quorate"], samples)]
