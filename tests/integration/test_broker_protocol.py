"""Unchanged Kafka clients against the real sockets and handlers, over partitions in memory."""

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.server.shedding import ListenerLimits
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
    # Without commits: closing would wait for a coordinator.
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("events", 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    low, high = consumer.get_watermark_offsets(TopicPartition("events", 0), timeout=PATIENCE_S)
    consumer.close()
    assert found == values()
    assert (low, high) == (0, RECORDS)


def test_admin_of_kafka_python_creates_describes_alters_and_deletes(broker: MemoryBroker) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic("made", 2, 1, topic_configs={"retention.ms": "60000"})])
    assert set(admin.list_topics()) == {"events", "made"}
    described = admin.describe_topics(["made"])
    assert [each["name"] for each in described] == ["made"]
    resource = ConfigResource(ConfigResourceType.TOPIC, "made")
    found = admin.describe_configs([resource])["topic"]["made"]["retention.ms"]
    assert (found["value"], found["config_source"]) == ("60000", "DYNAMIC_TOPIC_CONFIG")
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "made", configs={"retention.ms": "70000"})])
    assert broker.parts.configs.overrides("made") == {"retention.ms": "70000"}
    admin.create_partitions({"made": NewPartitions(3)})
    assert len(broker.parts.view.topics["made"].partitions) == 3
    admin.delete_topics(["made"])
    assert set(admin.list_topics()) == {"events"}
    assert admin.describe_cluster()["cluster_id"] == "cluster-of-a-test"
    admin.close()


def test_admin_of_librdkafka_creates_describes_alters_and_deletes(broker: MemoryBroker) -> None:
    api: Any = importlib.import_module("confluent_kafka.admin")

    def done(futures: Any) -> Any:
        return [future.result(PATIENCE_S) for future in futures.values()]

    admin = api.AdminClient({"bootstrap.servers": broker.bootstrap})
    done(admin.create_topics([api.NewTopic("made", 2, 1, config={"retention.ms": "60000"})]))
    assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"events", "made"}
    resource = api.ConfigResource(api.ResourceType.TOPIC, "made")
    described = done(admin.describe_configs([resource]))[0]
    assert described["retention.ms"].value == "60000"
    assert described["min.insync.replicas"].value == "2"
    change = api.ConfigEntry("retention.ms", "70000", incremental_operation=api.AlterConfigOpType.SET)
    altered = api.ConfigResource(api.ResourceType.TOPIC, "made", incremental_configs=[change])
    done(admin.incremental_alter_configs([altered]))
    assert broker.parts.configs.overrides("made") == {"retention.ms": "70000"}
    done(admin.create_partitions([api.NewPartitions("made", 3)]))
    assert len(broker.parts.view.topics["made"].partitions) == 3
    done(admin.delete_topics(["made"]))
    assert set(admin.list_topics(timeout=PATIENCE_S).topics) == {"events"}
    brokers = done(admin.describe_configs([api.ConfigResource(api.ResourceType.BROKER, "1")]))[0]
    assert brokers["zookeeper.connect"].value == "127.0.0.1:2181"
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert (cluster.cluster_id, cluster.controller.id) == ("cluster-of-a-test", 1)


def test_access_lists_are_refused_by_name(broker: MemoryBroker) -> None:
    from confluent_kafka import KafkaException

    api: Any = importlib.import_module("confluent_kafka.admin")
    admin = api.AdminClient({"bootstrap.servers": broker.bootstrap})
    allow = (api.AclOperation.READ, api.AclPermissionType.ALLOW)
    row = (api.ResourceType.TOPIC, "t", api.ResourcePatternType.LITERAL, "User:u", "*", *allow)
    binding = api.AclBinding(*row)
    pattern = api.AclBindingFilter(*row)
    # confluent-kafka shows no error of describe_acls; kafka-python's is looked at below.
    asked = [
        *admin.create_acls([binding]).values(),
        *admin.delete_acls([pattern]).values(),
    ]
    for future in asked:
        with pytest.raises(KafkaException) as caught:
            future.result(PATIENCE_S)
        assert caught.value.args[0].name() == "SECURITY_DISABLED"
    from kafka import KafkaAdminClient
    from kafka.admin import (
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ACLResourcePatternType,
        ResourcePatternFilter,
    )
    from kafka.admin import ResourceType as Resource
    from kafka.errors import SecurityDisabledError

    other = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    wanted = ResourcePatternFilter(Resource.ANY, None, ACLResourcePatternType.ANY)
    with pytest.raises(SecurityDisabledError):
        other.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, wanted))
    other.close()
