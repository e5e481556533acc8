"""kafka-python 3, unchanged, against three brokers: records of every codec, and its admin client.

KAFKA_RECORDS=100000 sends so many with each codec.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import CODECS, PARTITIONS, RECORDS, Sample, expected, sample, stored_codecs
from tests.support.nodes import eventually

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers() as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: BrokerCluster) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield client
    client.close()


def create(admin: Any, topic: str, **options: Any) -> None:
    wanted = {topic: {"num_partitions": PARTITIONS, "replication_factor": 3, **options}}
    admin.create_topics(wanted, timeout_ms=20_000, wait_for_metadata=True)


def read_partition(cluster: BrokerCluster, topic: str, partition: int, count: int) -> list[Sample]:
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","), auto_offset_reset="earliest", check_crcs=True
    )
    consumer.assign([TopicPartition(topic, partition)])
    found: list[Sample] = []

    def poll() -> bool:
        for rows in consumer.poll(timeout_ms=500, max_records=10_000).values():
            for row in rows:
                number = int(row.value.split(b":")[0])
                found.append(
                    Sample(number, row.key, row.value, tuple(map(tuple, row.headers)), row.timestamp)
                )
        return len(found) >= count

    eventually(poll, DEADLINE_S, f"{count} records of {topic}-{partition} are read")
    consumer.close()
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_as_they_were_sent(
    cluster: BrokerCluster, admin: Any, codec: str
) -> None:
    topic = f"python-{codec}"
    create(admin, topic)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap.split(","),
        compression_type=None if codec == "none" else codec,
        acks="all",
        enable_idempotence=True,
        linger_ms=20,
    )
    sent = [
        producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in map(sample, range(RECORDS))
    ]
    producer.flush(DEADLINE_S)
    for future in sent:
        future.get(DEADLINE_S)
    producer.close()
    for partition in range(PARTITIONS):
        assert read_partition(cluster, topic, partition, len(expected(partition))) == expected(partition)
        data_dir = cluster.brokers[cluster.leader_of(topic, partition)].data_dir
        assert stored_codecs(data_dir, topic, partition) == {CODECS[codec]}


def test_offsets_are_found_by_time_and_at_both_ends(cluster: BrokerCluster, admin: Any) -> None:
    create(admin, "python-times")
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), compression_type="lz4")
    for record in map(sample, range(300)):
        producer.send("python-times", record.value, partition=0, timestamp_ms=record.timestamp_ms)
    producer.flush(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    partition = TopicPartition("python-times", 0)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 300}
    found = consumer.offsets_for_times({partition: sample(123).timestamp_ms})[partition]
    assert (found.offset, found.timestamp) == (123, sample(123).timestamp_ms)
    consumer.close()


def test_admin_creates_describes_alters_and_deletes_a_topic(cluster: BrokerCluster, admin: Any) -> None:
    create(admin, "python-changing", configs={"retention.ms": "3600000"})
    (topic,) = admin.describe_topics(["python-changing"])
    assert len(topic["partitions"]) == PARTITIONS

    def settings() -> dict[str, Any]:
        asked = ConfigResource(ConfigResourceType.TOPIC, "python-changing")
        (by_name,) = admin.describe_configs([asked], config_filter="all").values()
        return {name: row["value"] for name, row in by_name["python-changing"].items()}

    assert settings()["retention.ms"] == "3600000"
    admin.alter_configs(
        [
            ConfigResource(
                ConfigResourceType.TOPIC,
                "python-changing",
                configs={
                    "min.insync.replicas": (AlterConfigOp.SET, "2"),
                    "retention.ms": (AlterConfigOp.DELETE, None),
                },
            )
        ]
    )
    eventually(
        lambda: (settings()["min.insync.replicas"], settings()["retention.ms"]) == ("2", "604800000"),
        DEADLINE_S,
        "the settings are changed",
    )
    admin.create_partitions({"python-changing": 5}, timeout_ms=20_000)
    eventually(
        lambda: len(admin.describe_topics(["python-changing"])[0]["partitions"]) == 5,
        DEADLINE_S,
        "the topic has five partitions",
    )
    admin.delete_topics(["python-changing"], timeout_ms=20_000)
    eventually(lambda: "python-changing" not in admin.list_topics(), DEADLINE_S, "it is gone")


def test_admin_gets_kafkas_errors(admin: Any) -> None:
    create(admin, "python-once")
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, "python-once")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["python-never"])
