"""Settings of topics through unchanged clients: times, lists, AlterConfigs, names.

Clients: confluent-kafka (librdkafka) and kafka-python.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaProducer
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.broker_records import quiet, reading
from tests.support.nodes import eventually

WAIT_S: Final = 60.0
BROKERS: Final = 3
DAY_MS: Final = 86_400_000
TOOLS: Final = Path(__file__).parent / "java" / "KafkaTools.java"
THROTTLED: Final = "leader.replication.throttled.replicas"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(BROKERS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: BlockingBrokers) -> AdminClient:
    return AdminClient(quiet(cluster.bootstrap))


def create(admin: AdminClient, topic: str, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    admin.create_topics([NewTopic(topic, 1, BROKERS, config=named)])[topic].result(WAIT_S)


def sent(cluster: BlockingBrokers, topic: str, *times_ms: int) -> list[Any]:
    """Produce a batch with records of these times; returns what became of each, a message or an error."""
    reports: list[Any] = []
    producer = Producer(quiet(cluster.bootstrap) | {"acks": "all", "linger.ms": 50})
    for each in times_ms:
        producer.produce(
            topic,
            b"value",
            timestamp=each,
            on_delivery=lambda error, message: reports.append(message if error is None else error),
        )
    assert producer.flush(WAIT_S) == 0
    return reports


def overrides(admin: AdminClient, topic: str) -> dict[str, str]:
    """What a topic sets itself, as a broker describes it."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    rows = admin.describe_configs([resource])[resource].result(WAIT_S)
    return {name: row.value for name, row in rows.items() if row.source == 1}


def change(admin: AdminClient, topic: str, *entries: tuple[str, str, AlterConfigOpType]) -> None:
    rows = [ConfigEntry(name, value, incremental_operation=kind) for name, value, kind in entries]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=rows)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def test_records_have_the_time_of_their_append_everywhere(
    cluster: BlockingBrokers, admin: AdminClient
) -> None:
    # librdkafka keeps to the controller that it knows.
    known = admin.list_topics(timeout=WAIT_S)
    order = sorted(known.brokers, key=lambda each: each == known.controller_id)
    leader, config = order[0], {"message.timestamp.type": "LogAppendTime"}
    wanted = NewTopic("appended", 1, replica_assignment=[order], config=config)
    admin.create_topics([wanted])["appended"].result(WAIT_S)
    before_ms = int(time.time() * 1000)
    reports = sent(cluster, "appended", 1, before_ms + 365 * DAY_MS, 2)
    kinds, times = zip(*(each.timestamp() for each in reports), strict=True)
    append_ms = times[0]
    assert (set(kinds), set(times)) == ({TIMESTAMP_LOG_APPEND_TIME}, {append_ms})
    assert before_ms <= append_ms <= int(time.time() * 1000)
    python = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","))
    done = python.send("appended", b"value", timestamp_ms=3).get(WAIT_S)
    assert done.timestamp >= append_ms
    python.close()
    consumer = Consumer(reading(cluster.bootstrap))
    # Followers serve what they copied, once the leaders are gone.
    cluster.stop(leader)
    asked = [TopicPartition("appended", 0, append_ms + 1), TopicPartition("appended", 0, append_ms)]
    found = [consumer.offsets_for_times([each], WAIT_S)[0].offset for each in asked]
    assert found == [3 if done.timestamp > append_ms else -1, 0]
    consumer.assign([TopicPartition("appended", 0, 0)])
    read: list[Any] = []

    def poll() -> bool:
        read.extend(consumer.consume(10, 0.2))
        return len(read) == 4

    eventually(poll, WAIT_S, "all is read")
    assert [each.timestamp() for each in read] == [
        *[(TIMESTAMP_LOG_APPEND_TIME, append_ms)] * 3,
        (TIMESTAMP_LOG_APPEND_TIME, done.timestamp),
    ]
    consumer.close()
    cluster.start(leader)


def test_records_that_are_too_old_or_too_new_are_refused(
    cluster: BlockingBrokers, admin: AdminClient
) -> None:
    limits = {"message_timestamp_before_max_ms": str(DAY_MS), "message_timestamp_after_max_ms": str(DAY_MS)}
    create(admin, "limited", **limits)
    now_ms = int(time.time() * 1000)
    for times in ((now_ms - 2 * DAY_MS, now_ms), (now_ms, now_ms + 2 * DAY_MS)):
        codes = [error.code() for error in sent(cluster, "limited", *times)]
        assert codes == [KafkaError.INVALID_TIMESTAMP] * 2
    times = (now_ms - DAY_MS // 2, now_ms + DAY_MS // 2)
    assert [each.timestamp() for each in sent(cluster, "limited", *times)] == [
        (TIMESTAMP_CREATE_TIME, each) for each in times
    ]
    change(admin, "limited", ("message.timestamp.type", "LogAppendTime", AlterConfigOpType.SET))
    eventually(
        lambda: all(
            each.state.parts is not None and each.state.parts.configs.settings_of("limited").has_append_time
            for each in cluster._running._running.values()
        ),
        *(WAIT_S, "every broker knows the change"),
    )
    (report,) = sent(cluster, "limited", 1)
    assert report.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME


def test_items_of_a_list_come_and_go(admin: AdminClient) -> None:
    create(admin, "listed")
    change(admin, "listed", (THROTTLED, "0:1", AlterConfigOpType.APPEND))
    change(admin, "listed", (THROTTLED, "0:2,0:1", AlterConfigOpType.APPEND))
    assert overrides(admin, "listed") == {THROTTLED: "0:1,0:2"}
    change(admin, "listed", (THROTTLED, "0:1", AlterConfigOpType.SUBTRACT))
    assert overrides(admin, "listed") == {THROTTLED: "0:2"}
    with pytest.raises(KafkaException) as caught:
        change(admin, "listed", ("retention.ms", "5", AlterConfigOpType.APPEND))
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "Config value append is not allowed for config key: " in str(caught.value)


def test_alter_configs_replaces_all_settings(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "replaced", retention_ms="5", segment_bytes="2000000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, "replaced", set_config={"retention.ms": "6"})
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        admin.alter_configs([resource])[resource].result(WAIT_S)
    assert overrides(admin, "replaced") == {"retention.ms": "6"}
    python = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    wanted = PythonResource(ConfigResourceType.TOPIC, "replaced", configs={"flush.ms": "7"})
    # It names what is set already, too.
    python.alter_configs([wanted], incremental=False)
    python.close()
    # The other client may ask another broker.
    kept = {"retention.ms": "6", "flush.ms": "7"}
    eventually(lambda: overrides(admin, "replaced") == kept, WAIT_S)


def test_names_that_differ_in_points_and_underscores_alone_collide(
    cluster: BlockingBrokers, admin: AdminClient
) -> None:
    create(admin, "met.rics")
    with pytest.raises(
        KafkaException, match=r"Topic 'met_rics' collides with existing topic: met\.rics"
    ) as no:
        create(admin, "met_rics")
    assert no.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
    futures = admin.create_topics([NewTopic("two.a", 1, 1), NewTopic("two_a", 1, 1)])
    futures["two.a"].result(WAIT_S)
    with pytest.raises(KafkaException, match="collides with existing topic"):
        futures["two_a"].result(WAIT_S)
    # Nor is one created because somebody produces to it.
    (report,) = sent(cluster, "met_rics", 1)
    assert report.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC)
    assert "met_rics" not in admin.list_topics(timeout=WAIT_S).topics
