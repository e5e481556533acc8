"""Unchanged Kafka clients against the real sockets and handlers, over partitions in memory."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.server.listener import ListenerLimits
from tests.support.memory_broker import PATIENCE_S, MemoryBroker, config

RECORDS = 200
#: kafka-python reads its schemas so.
pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MemoryBroker]:
    with MemoryBroker(config(tmp_path), {"events": 1}, ListenerLimits()) as started:
        yield started


def values() -> list[bytes]:
    return [b"value %d" % number for number in range(RECORDS)]


@pytest.mark.parametrize("acks", ["all", 1])
def test_kafka_python_produces_and_reads_back(broker: MemoryBroker, acks: Any) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks=acks)
    futures = [producer.send("events", value, key=b"k", headers=[("h", b"1")]) for value in values()]
    assert [future.get(timeout=PATIENCE_S).offset for future in futures] == list(range(RECORDS))
    producer.close()
    partition = TopicPartition("events", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    assert consumer.end_offsets([partition]) == {partition: RECORDS}
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=1000).values():
            found += records
    consumer.close()
    assert [(each.key, each.value) for each in found] == [(b"k", value) for value in values()]
    assert found[0].headers == [("h", b"1")]


def test_librdkafka_produces_and_reads_back(broker: MemoryBroker) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    problems: list[Any] = []
    for value in values():
        producer.produce("events", value, on_delivery=lambda error, _message: problems.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert problems == [None] * RECORDS
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition("events", 0, OFFSET_BEGINNING)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    low, high = consumer.get_watermark_offsets(TopicPartition("events", 0), timeout=PATIENCE_S)
    consumer.close()
    assert found == values()
    assert (low, high) == (0, RECORDS)
