"""Transactional producers of kafka-python and confluent-kafka: consume, process, produce, with offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from broker.local import BlockingBrokers, brokers_in_thread
from tests.ecosystem.committed import CommittedTopic, text
from tests.support.nodes import eventually

WAIT_S = 60.0
RECORDS = 60
#: inputs of one transaction; every third transaction is aborted once, and made anew
BATCH = 10


@pytest.fixture
def brokers() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.create_topics([NewTopic(name, 1, 3) for name in ("in", "out")]).values():
            future.result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("in", str(number))
        assert producer.flush(WAIT_S) == 0
        yield running


def check(brokers: BlockingBrokers, group: str) -> None:
    copied = CommittedTopic(brokers.bootstrap, "out", 1)
    found = copied.wait_for(RECORDS, WAIT_S)
    copied.close()
    assert [value for _, value in found] == [str(number) for number in range(RECORDS)]
    reader = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": group})
    (committed,) = reader.committed([TopicPartition("in", 0)], WAIT_S)
    reader.close()
    assert committed.offset == RECORDS


def test_confluent_kafka_copies_in_transactions(brokers: BlockingBrokers) -> None:
    settings = {"bootstrap.servers": brokers.bootstrap}
    consumer = Consumer({**settings, "group.id": "copiers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["in"])
    producer = Producer({**settings, "transactional.id": "copier"})
    producer.init_transactions(WAIT_S)
    for first in range(0, RECORDS, BATCH):
        found: list[str] = []

        def read(found: list[str] = found) -> bool:
            messages = consumer.consume(BATCH - len(found), 0.5)
            found += [text(message.value()) or "" for message in messages if message.error() is None]
            return len(found) == BATCH

        eventually(read, WAIT_S, "a batch")
        for ends in ["abort", "commit"] if first % (3 * BATCH) == 0 else ["commit"]:
            producer.begin_transaction()
            for value in found:
                producer.produce("out", value)
            offsets = [TopicPartition("in", 0, first + BATCH)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
            producer.flush(WAIT_S)
            end = producer.abort_transaction if ends == "abort" else producer.commit_transaction
            end(WAIT_S)
    consumer.close()
    check(brokers, "copiers")


def test_kafka_python_copies_in_transactions(brokers: BlockingBrokers) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=brokers.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    place = PythonPartition("in", 0)
    consumer.assign([place])
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap, transactional_id="copier")
    producer.init_transactions()
    read = (message.value for message in consumer)
    for first in range(0, RECORDS, BATCH):
        found = [next(read) for _ in range(BATCH)]
        for ends in ["abort", "commit"] if first % (3 * BATCH) == 0 else ["commit"]:
            producer.begin_transaction()
            for value in found:
                producer.send("out", value)
            offsets = {place: OffsetAndMetadata(first + BATCH, "", -1)}
            producer.send_offsets_to_transaction(offsets, "copiers")
            end = producer.abort_transaction if ends == "abort" else producer.commit_transaction
            end()
    producer.close()
    consumer.close()
    check(brokers, "copiers")
