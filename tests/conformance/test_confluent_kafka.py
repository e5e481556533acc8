"""confluent-kafka (librdkafka), unchanged, against three brokers: records of every codec, its admin client.

KAFKA_RECORDS=100000 sends so many with each codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import (
    CODECS,
    PARTITIONS,
    RECORDS,
    Sample,
    expected,
    quiet,
    reading,
    sample,
    stored_codecs,
)
from tests.support.nodes import eventually

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers() as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> AdminClient:
    return AdminClient(quiet(cluster.bootstrap))


def create(admin: AdminClient, topic: str, **settings: Any) -> None:
    wanted = NewTopic(topic, PARTITIONS, 3, **settings)
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)


def as_sample(message: Any) -> Sample:
    headers = tuple(message.headers() or ())
    number = int(message.value().split(b":")[0])
    return Sample(number, message.key(), message.value(), headers, message.timestamp()[1])


def read_partition(cluster: BrokerCluster, topic: str, partition: int, count: int) -> list[Sample]:
    consumer = Consumer(reading(cluster.bootstrap))
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Sample] = []

    def poll() -> bool:
        for message in consumer.consume(10_000, timeout=0.2):
            assert message.error() is None, message.error()
            found.append(as_sample(message))
        return len(found) >= count

    eventually(poll, DEADLINE_S, f"{count} records of {topic}-{partition} are read")
    consumer.close()
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_as_they_were_sent(
    cluster: BrokerCluster, admin: AdminClient, codec: str
) -> None:
    topic = f"confluent-{codec}"
    create(admin, topic)
    producer = Producer(
        {
            **quiet(cluster.bootstrap),
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 20,
            "queue.buffering.max.messages": RECORDS + 1,
        }
    )
    failed: list[KafkaError] = []
    for record in map(sample, range(RECORDS)):
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    for partition in range(PARTITIONS):
        found = read_partition(cluster, topic, partition, len(expected(partition)))
        assert found == expected(partition)
        data_dir = cluster.brokers[cluster.leader_of(topic, partition)].data_dir
        assert stored_codecs(data_dir, topic, partition) == {CODECS[codec]}


def test_a_lone_record_without_key_value_or_headers_comes_back(
    cluster: BrokerCluster, admin: AdminClient
) -> None:
    create(admin, "lone")
    producer = Producer({**quiet(cluster.bootstrap), "acks": 1})
    producer.produce("lone", None, None, 0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(reading(cluster.bootstrap))
    consumer.assign([TopicPartition("lone", 0, 0)])
    (message,) = eventually(lambda: consumer.consume(1, timeout=0.2), DEADLINE_S, "the record is read")
    assert (message.error(), message.key(), message.value(), message.headers()) == (None, None, None, None)
    consumer.close()


def test_offsets_are_found_by_time_and_at_both_ends(cluster: BrokerCluster, admin: AdminClient) -> None:
    create(admin, "times")
    producer = Producer({**quiet(cluster.bootstrap), "compression.type": "zstd"})
    for record in map(sample, range(300)):
        producer.produce("times", record.value, record.key, 0, timestamp=record.timestamp_ms)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(reading(cluster.bootstrap))
    assert consumer.get_watermark_offsets(TopicPartition("times", 0), timeout=20) == (0, 300)
    asked = TopicPartition("times", 0, sample(123).timestamp_ms)
    assert consumer.offsets_for_times([asked], timeout=20)[0].offset == 123
    consumer.close()


def test_admin_creates_describes_alters_and_deletes_a_topic(
    cluster: BrokerCluster, admin: AdminClient
) -> None:
    create(admin, "changing", config={"retention.ms": "3600000"})
    topic = admin.list_topics("changing", timeout=20).topics["changing"]
    assert sorted(topic.partitions) == [0, 1, 2]
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in topic.partitions.values())

    resource = ConfigResource(ConfigResource.Type.TOPIC, "changing")
    settings = admin.describe_configs([resource])[resource].result(20)
    assert settings["retention.ms"].value == "3600000"
    assert settings["min.insync.replicas"].value == "1"

    changed = ConfigResource(
        ConfigResource.Type.TOPIC,
        "changing",
        incremental_configs=[
            ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([changed])[changed].result(20)

    def altered() -> bool:
        now = admin.describe_configs([resource])[resource].result(20)
        return (now["min.insync.replicas"].value, now["retention.ms"].value) == ("2", "604800000")

    eventually(altered, DEADLINE_S, "the settings are changed")

    admin.create_partitions([NewPartitions("changing", 5)])["changing"].result(20)
    eventually(
        lambda: len(admin.list_topics("changing", timeout=20).topics["changing"].partitions) == 5,
        DEADLINE_S,
        "the topic has five partitions",
    )
    cluster.wait_in_sync("changing")

    admin.delete_topics(["changing"], operation_timeout=20)["changing"].result(30)
    eventually(lambda: "changing" not in admin.list_topics(timeout=20).topics, DEADLINE_S, "it is gone")
    eventually(
        lambda: not [path for each in cluster.brokers.values() for path in each.data_dir.glob("changing-*")],
        DEADLINE_S,
        "its files are gone",
    )


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("bad name", (1, 1), KafkaError.TOPIC_EXCEPTION),
        ("too-many-replicas", (1, 4), KafkaError.INVALID_REPLICATION_FACTOR),
        ("no-partitions", (0, 1), KafkaError.INVALID_PARTITIONS),
    ],
)
def test_admin_gets_kafkas_error_for_a_wrong_topic(
    admin: AdminClient, name: str, arguments: tuple[int, int], code: int
) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, *arguments)], operation_timeout=20)[name].result(30)
    assert refused.value.args[0].code() == code


def test_admin_gets_kafkas_error_for_topics_that_exist_or_do_not(
    admin: AdminClient, cluster: BrokerCluster
) -> None:
    create(admin, "once")
    with pytest.raises(KafkaException) as twice:
        create(admin, "once")
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as missing:
        admin.delete_topics(["never"])["never"].result(30)
    assert missing.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_admin_describes_the_cluster(cluster: BrokerCluster, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(20)
    assert sorted(node.id for node in described.nodes) == [1, 2, 3]
    assert described.controller.id == cluster.controller_id()
