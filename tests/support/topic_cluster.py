"""A cluster inside the test process whose topics the pipeline reads.

Retention looks ten times a second, so that a test can have records lost. Who reads, and how, is the test's.
Source: broker.local; confluent-kafka as the producer.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from broker.local import BlockingBrokers, brokers_in_thread
from broker.replication.outcomes import ReplicationOptions
from tests.support.nodes import eventually

DEADLINE_S = 60.0
SMALL_SEGMENTS = {"segment.bytes": "4096", "retention.bytes": "4096"}
_RETENTION_CHECK_MS = 100
#: of connections that a broker's end closes; tests want no such lines
_QUIET: Mapping[str, str | int] = {"log_level": 0}
#: Record batches fit into the smallest segments.
_BATCH_BYTES = 3000


@dataclass(frozen=True)
class Record:
    """What a producer sends."""

    partition: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


class TopicCluster:
    """Brokers, and what a test does to topics."""

    def __init__(self, brokers: BlockingBrokers) -> None:
        """Connect to running brokers."""
        self.brokers = brokers
        self.bootstrap = brokers.bootstrap
        self._client: dict[str, str | int | float | bool] = {"bootstrap.servers": self.bootstrap, **_QUIET}
        self._admin = AdminClient(self._client)

    def create(
        self, topic: str, partitions: int = 1, replicas: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, once there is a controller to ask."""
        new = NewTopic(topic, partitions, replicas, config=dict(settings or {}))

        def created() -> bool:
            try:
                self._admin.create_topics([new])[topic].result(DEADLINE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                return False
            return True

        eventually(created, DEADLINE_S, f"{topic} is created")

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until no broker names it."""
        self._admin.delete_topics([topic])[topic].result(DEADLINE_S)
        eventually(
            lambda: topic not in self._admin.list_topics(timeout=DEADLINE_S).topics,
            DEADLINE_S,
            f"{topic} is gone",
        )

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Produce records in order, with acks of all replicas."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({**self._client, "enable.idempotence": True, "batch.size": _BATCH_BYTES})
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms or int(time.time() * 1000),
                headers=list(record.headers),
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        assert not failed, failed[:3]

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Where a log starts and ends."""
        consumer = Consumer({**self._client, "group.id": "look"})
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=DEADLINE_S
            )
            return found
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """The committed offset of a group; negative without one."""
        consumer = Consumer({**self._client, "group.id": group})
        try:
            return int(consumer.committed([TopicPartition(topic, partition)], timeout=DEADLINE_S)[0].offset)
        finally:
            consumer.close()

    def leader(self, topic: str, partition: int = 0) -> int:
        """Which broker leads a partition."""
        found = self._admin.list_topics(timeout=DEADLINE_S).topics[topic]
        return int(found.partitions[partition].leader)

    @contextlib.contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """Have a consumer be a member of a group for a with block."""
        consumer = Consumer({**self._client, "group.id": group, "enable.auto.commit": False})
        try:
            consumer.subscribe([topic])

            def look() -> bool:
                consumer.poll(0.1)
                return bool(consumer.assignment())

            eventually(look, DEADLINE_S, f"{group} has a member")
            yield
        finally:
            consumer.close()

    def lose_oldest(self, topic: str, partition: int = 0) -> int:
        """Wait until retention has taken the oldest records of a topic with SMALL_SEGMENTS; its new start."""

        def look() -> int:
            return self.offsets(topic, partition)[0]

        return eventually(look, DEADLINE_S, f"{topic}-{partition} has lost records")


@contextlib.contextmanager
def topic_cluster(count: int = 1) -> Iterator[TopicCluster]:
    """Run brokers in a thread for a with block."""
    often = functools.partial(ReplicationOptions, retention_check_interval_ms=_RETENTION_CHECK_MS)
    small = {"limits": {"segment_bytes_min": 4096}}
    with (
        mock.patch("broker.lifecycle.parts.ReplicationOptions", often),
        brokers_in_thread(count, settings=small) as brokers,
    ):
        yield TopicCluster(brokers)
