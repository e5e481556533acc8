"""Topics that come by znode, and topics that are deleted and created again while a broker is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.embedded_brokers import zookeeper
from tests.support.nodes import eventually

__all__ = ["zookeeper"]

WAIT_S = 30.0


@pytest.fixture(scope="module", params=["direct", pytest.param("queue", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[BlockingBrokers]:
    with brokers_in_thread(2, settings={"broker": {"channel": request.param}}) as running:
        yield running


def read(zookeeper: KazooClient, path: str) -> dict[str, Any]:
    value, _ = zookeeper.get(path)
    found: dict[str, Any] = json.loads(value)
    return found


def state_of(zookeeper: KazooClient, topic: str) -> dict[str, Any]:
    return read(zookeeper, f"/brokers/topics/{topic}/partitions/0/state")


def in_sync(zookeeper: KazooClient, topic: str, members: set[int]) -> None:
    def look() -> bool:
        path = f"/brokers/topics/{topic}/partitions/0/state"
        return zookeeper.exists(path) is not None and set(state_of(zookeeper, topic)["isr"]) == members

    eventually(look, WAIT_S, f"{topic}: ISR {members}")


def produce(cluster: BlockingBrokers, topic: str, values: list[bytes]) -> None:
    """Produce with acks=all, and have every record acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * len(values)


def consume(cluster: BlockingBrokers, topic: str) -> list[bytes]:
    """Read a partition from its first offset to its end."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    try:
        while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
    finally:
        consumer.close()
    assert message is not None
    return found


@pytest.mark.parametrize(
    "value",
    [
        {"version": 1, "partitions": {"0": [1, 2]}},
        {"version": 2, "partitions": {"0": [2, 1]}, "adding_replicas": {}, "removing_replicas": {}},
    ],
    ids=["version 1", "version 2"],
)
def test_a_topic_without_an_id_gets_one_and_replicates(
    cluster: BlockingBrokers, zookeeper: KazooClient, value: dict[str, Any]
) -> None:
    topic = f"by-hand-{value['version']}"
    zookeeper.create(f"/brokers/topics/{topic}", json.dumps(value).encode())
    in_sync(zookeeper, topic, {1, 2})
    produce(cluster, topic, [b"one", b"two"])
    assert consume(cluster, topic) == [b"one", b"two"]
    record = read(zookeeper, f"/brokers/topics/{topic}")
    assert record["version"] == 3
    assert record["topic_id"]
    assert record["partitions"] == value["partitions"]


def test_a_tool_that_knows_no_ids_does_not_take_a_topics_id(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    zookeeper.create("/brokers/topics/rewritten", b'{"version":1,"partitions":{"0":[1,2]}}')
    in_sync(zookeeper, "rewritten", {1, 2})
    produce(cluster, "rewritten", [b"kept"])
    before = read(zookeeper, "/brokers/topics/rewritten")
    zookeeper.set("/brokers/topics/rewritten", b'{"version":1,"partitions":{"0":[1,2],"1":[2,1]}}')
    eventually(lambda: "topic_id" in read(zookeeper, "/brokers/topics/rewritten"), WAIT_S)
    assert read(zookeeper, "/brokers/topics/rewritten")["topic_id"] == before["topic_id"]
    assert consume(cluster, "rewritten") == [b"kept"]


@pytest.mark.parametrize("away", ["first", "second"])
def test_a_broker_that_was_away_serves_only_the_records_of_the_newest_topic(
    cluster: BlockingBrokers, zookeeper: KazooClient, away: str
) -> None:
    topic, gone, kept = f"again-{away}", *((1, 2) if away == "first" else (2, 1))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(WAIT_S)
    in_sync(zookeeper, topic, {1, 2})
    produce(cluster, topic, [b"of the first topic"] * 20)
    cluster.stop(gone)
    # One that was connected to the broker that stops may go on dialling it.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assignment = [[kept, gone]]
    for content in (b"second", b"third"):
        admin.delete_topics([topic])[topic].result(WAIT_S)
        eventually(lambda: zookeeper.exists(f"/brokers/topics/{topic}") is None, WAIT_S)
        value = {"version": 1, "partitions": {"0": assignment[0]}}
        zookeeper.create(f"/brokers/topics/{topic}", json.dumps(value).encode())
        in_sync(zookeeper, topic, {kept})
        produce(cluster, topic, [content] * 3)
    cluster.start(gone)
    in_sync(zookeeper, topic, {1, 2})
    assert consume(cluster, topic) == [b"third"] * 3
    # Also after the broker that was away leads.
    cluster.stop(kept)
    eventually(lambda: state_of(zookeeper, topic)["leader"] == gone, WAIT_S)
    assert consume(cluster, topic) == [b"third"] * 3
    cluster.start(kept)
    in_sync(zookeeper, topic, {1, 2})
