"""Real brokers compact while a producer and a consumer run and one of them is killed."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its types lack one

from broker.datadir.directory import LogDirectory
from broker.log.batches import checked_batches
from broker.log.opened import opened
from broker.log.partition_log import PartitionLog
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import quiet, reading
from tests.support.nodes import eventually

TOPIC = "compacted"
PARTITION = PartitionKey(TOPIC, 0)
KEYS = 40
RECORDS = 6000
DEADLINE_S = 60.0
SETTINGS = {
    "broker": {"replica_lag_time_max_ms": 2000},
    "limits": {"segment_bytes_min": 4096},
    "cleaner": {"log_cleaner_backoff_ms": 200},
}
#: Kafka's names of the topic's settings
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.1",
    "min.insync.replicas": "2",
}
Values = dict[bytes, bytes | None]


class Reader(threading.Thread):
    """Reads the partition to its end: what it has seen last of each key is the newest."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer({**reading(bootstrap), "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self._ended = threading.Event()
        self.values: Values = {}
        self.next_offset = 0
        self.problems: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
                    self.problems.append(str(error))
                continue
            key, offset = message.key(), message.offset()
            assert key is not None
            assert offset is not None
            if offset < self.next_offset:
                self.problems.append(f"offset {offset} behind {self.next_offset}")
            self.next_offset = offset + 1
            self.values[key] = message.value()
        self._consumer.close()

    def end(self) -> None:
        self._ended.set()
        self.join(30)


def values_of(log: PartitionLog) -> tuple[Values, int]:
    """The last value of each key in a log without holes, and how many records it has."""
    values: Values = {}
    count, offset = 0, log.log_start_offset
    while offset < log.log_end_offset:
        records = log.segments.read(offset, 1 << 20, below=1 << 40, at_least_one=True).records
        position = 0
        for header in checked_batches(memoryview(records)):
            assert header.base_offset == offset
            batch = records[position : position + header.size]
            for each in opened(header, batch) if header.records_count else ():
                assert each.key is not None
                # The value follows the key: only whether it is there, and what it ends with, counts.
                values[each.key] = each.whole[-21:-1] if each.has_value else None
                count += 1
            position, offset = position + header.size, header.last_offset + 1
    return values, count


@pytest.mark.timeout(600)
def test_each_replica_has_the_last_value_of_each_key() -> None:
    chosen = random.Random(41)
    with running_brokers(settings=SETTINGS, session_timeout_ms=2000) as cluster:
        new = NewTopic(TOPIC, 1, 3, config=CONFIG)
        admin = AdminClient(quiet(cluster.bootstrap))
        admin.create_topics([new], operation_timeout=30)[TOPIC].result(60)
        producer = Producer(
            {**quiet(cluster.bootstrap), "enable.idempotence": True, "acks": "all", "linger.ms": 5}
        )
        reader = Reader(cluster.bootstrap)
        reader.start()
        model: Values = {}
        failed: list[str] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(str(error))

        def write(count: int) -> None:
            for number in range(count):
                key = b"key-%d" % chosen.randrange(KEYS)
                value = None if chosen.random() < 0.1 else b"%020d" % chosen.randrange(10**18)
                model[key] = value
                producer.produce(TOPIC, value, key, partition=0, on_delivery=delivered)
                if number % 50 == 0:
                    producer.flush(60)
            assert producer.flush(120) == 0

        write(RECORDS // 3)
        victim = cluster.leader_of(TOPIC, 0)
        eventually(
            lambda: cluster.metric(victim, "quorate_broker_cleaner_bytes_written_total") > 0, DEADLINE_S
        )
        cluster.kill(victim)
        write(RECORDS // 3)
        cluster.start_broker(victim)
        cluster.wait_ready(victim)
        cluster.wait_in_sync(TOPIC)
        write(RECORDS // 3)
        assert failed == []
        for broker_id in cluster.brokers:
            eventually(partial(is_compacted, cluster, broker_id), DEADLINE_S)
            assert cluster.metric(broker_id, "quorate_broker_cleaner_uncleanable_partitions") == 0
        eventually(lambda: reader.next_offset >= RECORDS, DEADLINE_S)
        reader.end()
        assert reader.problems == []
        assert {key: value for key, value in reader.values.items() if value is not None} == {
            key: value for key, value in model.items() if value is not None
        }
        cluster.stop(*cluster.brokers)
        for broker_id, broker in cluster.brokers.items():
            values, count = replica(broker_id, broker.data_dir)
            assert {key: value for key, value in values.items() if value is not None} == {
                key: value for key, value in model.items() if value is not None
            }
            assert count < RECORDS // 2


def is_compacted(cluster: BrokerCluster, broker_id: int) -> bool:
    written = cluster.metric(broker_id, "quorate_broker_cleaner_bytes_written_total")
    return written > 0 and cluster.metric(broker_id, "quorate_broker_cleaner_max_dirty_ratio") <= 0.1


def replica(broker_id: int, data_dir: Path) -> tuple[Values, int]:
    properties = dict(
        line.split("=", 1) for line in (data_dir / "meta.properties").read_text().splitlines() if "=" in line
    )
    directory = LogDirectory.open(
        data_dir,
        broker_id=broker_id,
        cluster_id=properties["cluster.id"],
        settings_of=lambda _topic: TopicSettings(cleanup_policy="compact"),
    )
    try:
        return values_of(directory.logs[PARTITION])
    finally:
        directory.abandon()
