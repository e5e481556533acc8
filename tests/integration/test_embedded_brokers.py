"""Brokers inside a process: the fixture of other projects, and a broker that stops and returns."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from broker.local import BlockingBrokers, brokers, brokers_in_thread
from broker.replication.outcomes import ReplicationOptions
from quorum.client import Client
from quorum.errors import ConfigError, UsageError
from quorum.metadata import paths
from tests.support.nodes import clean_environment, eventually
from tests.support.topic_cluster import topic_cluster

WAIT_S = 30.0

THEIRS = """
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kazoo.client import KazooClient

def test_what_is_produced_is_consumed(quorate_brokers):
    producer = KafkaProducer(bootstrap_servers=quorate_brokers.bootstrap)
    assert producer.send("orders", b"one").get(timeout=10).offset == 0
    consumer = KafkaConsumer(bootstrap_servers=quorate_brokers.bootstrap, consumer_timeout_ms=20000)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"one"
    producer.close()
    consumer.close()

def test_each_test_has_an_empty_cluster(quorate_brokers):
    client = KazooClient(quorate_brokers.hosts)
    client.start(5)
    assert client.get_children("/brokers/topics") == []
    assert len(client.get_children("/brokers/ids")) == len(quorate_brokers.admin_urls) == COUNT
    client.stop()
    client.close()
"""


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_fixture_serves_the_tests_of_another_project(tmp_path: Path, count: int) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS.replace("COUNT", str(count)))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nquorate_broker_count = {count}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "quorum.pytest_plugin", "-p", "no:cacheprovider"]
    environment = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3) as running:
        yield running


def _create(cluster: BlockingBrokers, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(topic, 3, 3, config=config)])[topic].result(WAIT_S)
    return admin


def _isrs(admin: AdminClient, topic: str) -> list[set[int]]:
    try:
        found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    except KafkaException:
        return []
    return [set(partition.isrs) for partition in found.values()]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_survive_a_broker_that_goes_and_comes_back(cluster: BlockingBrokers, end: str) -> None:
    topic = f"survives-{end}"
    admin = _create(cluster, topic)
    acknowledged: list[tuple[int, bytes]] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        acknowledged.append((message.partition(), message.value()))  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(3000):
        producer.produce(topic, b"%d" % number, partition=number % 3, on_delivery=delivered)
        producer.poll(0)
        if number == 1000:
            producer.poll(0.2)
            getattr(cluster, end)(2)
    assert producer.flush(WAIT_S) == 0
    assert len(acknowledged) == 3000
    eventually(lambda: all(isr == {1, 3} for isr in _isrs(admin, topic)), WAIT_S, "broker 2 leaves the ISRs")
    cluster.start(2)
    eventually(
        lambda: all(isr == {1, 2, 3} for isr in _isrs(admin, topic)), WAIT_S, "broker 2 is back in sync"
    )
    assert _read(cluster.bootstrap, topic, 3000) == sorted(acknowledged)


def _read(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found: list[tuple[int, bytes]] = []

    def enough() -> bool:
        messages = consumer.consume(count, timeout=0.2)
        for message in messages:
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None, message.error()
            found.append((partition, value))
        return len(found) >= count

    eventually(enough, WAIT_S, f"{count} records are read")
    consumer.close()
    return sorted(found)


def test_metrics_count_records_bytes_and_the_time_of_requests(cluster: BlockingBrokers) -> None:
    def metric(name: str, **labels: str) -> float:
        with urllib.request.urlopen(f"{cluster.admin_urls[0]}/metrics", timeout=WAIT_S) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [each for family in families for each in family.samples if each.name == name]
        return sum(each.value for each in samples if labels.items() <= each.labels.items())

    def traffic() -> list[float]:
        kinds = "records_produced", "bytes_produced", "bytes_consumed", "bytes_replicated"
        return [metric(f"quorate_broker_{kind}_total") for kind in kinds]

    def requests(listener: str, api: str) -> float:
        return metric("quorate_broker_request_seconds_count", listener=listener, api=api)

    servers: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
    wanted = NewTopic("metered", 1, replica_assignment=[[1, 2]])
    admin = AdminClient(servers)
    admin.create_topics([wanted])["metered"].result(WAIT_S)
    before, produces = traffic(), requests("client", "PRODUCE")
    producer = Producer({**servers, "enable.idempotence": True})
    for _ in range(100):
        producer.produce("metered", bytes(1_000))
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({**servers, "group.id": "metered", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("metered", 0, 0)])
    assert len(consumer.consume(100, timeout=WAIT_S)) == 100
    consumer.close()
    eventually(lambda: traffic()[3] - before[3] >= traffic()[1] - before[1], WAIT_S)
    records, produced, consumed, _ = (now - then for now, then in zip(traffic(), before, strict=True))
    assert records == 100
    assert 100_000 < produced < 120_000
    assert consumed >= produced
    assert requests("client", "PRODUCE") > produces
    assert requests("client", "FETCH") >= 1 and requests("broker", "FETCH") >= 1
    assert metric("quorate_broker_request_seconds_sum", listener="broker", api="FETCH") > 0


def test_what_cannot_be_done_is_refused_with_a_remedy(cluster: BlockingBrokers) -> None:
    with pytest.raises(UsageError, match="there is no broker 9"):
        cluster.stop(9)
    with pytest.raises(UsageError, match="runs already"):
        cluster.start(1)
    with pytest.raises(UsageError, match="a cluster of 0 brokers"), brokers_in_thread(0):
        pass
    with (
        pytest.raises(ConfigError, match="is no known key"),
        brokers_in_thread(settings={"topics": {"a": 1}}),
    ):
        pass


async def test_a_killed_broker_is_registered_until_its_session_ends() -> None:
    async with brokers(2) as running, Client(running.hosts) as client:
        path = paths.broker_id_path(2)
        await running.kill(2)
        assert await client.exists(path) is not None
        await running.stop(1)
        assert await client.exists(paths.broker_id_path(1)) is None


def test_a_topic_keeps_its_settings_when_its_broker_returns() -> None:
    with brokers_in_thread(1) as running:
        topic = "kept"
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        new = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
        admin.create_topics([new])[topic].result(WAIT_S)
        running.stop(1)
        running.start(1)
        failures: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        for size in (500, 5000):
            producer.produce(topic, b"x" * size, on_delivery=lambda error, _: failures.append(error))
            assert producer.flush(WAIT_S) == 0
        small, large = failures
        assert small is None
        assert large is not None
        assert large.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_segments_of_a_topic_that_never_rests_close_and_go_by_age() -> None:
    # Ten looks a second; by default there is one a minute, so that a segment closes at most so often.
    assert ReplicationOptions().retention_check_interval_ms == 60_000
    with topic_cluster() as running:
        running.create("short", settings={"retention.ms": "2000"})
        running.create("closed", settings={"segment.ms": "1", "retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})

        def has_lost_its_oldest() -> bool:
            for topic in ("short", "closed"):
                producer.produce(topic, b"now")
            assert producer.flush(WAIT_S) == 0
            return running.offsets("short")[0] > 0

        eventually(has_lost_its_oldest, WAIT_S, "records go although others come")
        assert running.offsets("closed")[0] == 0
        folder = running.brokers._running._folder / "broker-1" / "closed-0"
        eventually(lambda: len(list(folder.glob("*.log"))) > 2, WAIT_S, "segments close by time")
