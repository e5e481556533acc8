"""Consumer groups against brokers inside this process: members that come and go, coordinators that die."""

from __future__ import annotations

import functools
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.metadata import paths
from tests.support.embedded_brokers import zookeeper
from tests.support.group_members import (
    ConfluentMember,
    Member,
    PythonMember,
    create_topic,
    overlaps,
    owned_by_all,
)
from tests.support.nodes import eventually
from tests.support.observability import named_metrics, shown_metrics

__all__ = ["zookeeper"]

WAIT_S = 30.0
PARTITIONS = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    settings = {"groups": {"group_initial_rebalance_delay_ms": 0}}
    with brokers_in_thread(3, settings=settings) as running:
        yield running


def create(cluster: BlockingBrokers, topic: str, partitions: int = PARTITIONS) -> None:
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}), topic, partitions)


def produce(cluster: BlockingBrokers, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0


def start(
    kind: type[Member],
    name: str,
    cluster: BlockingBrokers,
    group: str,
    topic: str,
    settings: dict[str, Any] | None = None,
) -> Member:
    return kind(name, cluster.bootstrap, group, [topic], settings or {}).start()


def group_record(zookeeper: KazooClient, group: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zookeeper.retry(zookeeper.get, paths.group_path(group))[0])
    return found


def coordinator_id(zookeeper: KazooClient) -> int | None:
    """Return who coordinates; None while nobody does."""
    try:
        return int(json.loads(zookeeper.retry(zookeeper.get, paths.COORDINATOR)[0])["brokerid"])
    except NoNodeError:
        return None


def committed(zookeeper: KazooClient, group: str) -> dict[tuple[str, int], int]:
    """Return the offsets in the znodes. One that goes while they are read is gone."""
    offsets: dict[tuple[str, int], int] = {}
    parent = paths.group_offsets_path(group)
    for topic in zookeeper.retry(zookeeper.get_children, parent):
        with suppress(NoNodeError):
            for partition in zookeeper.retry(zookeeper.get_children, f"{parent}/{topic}"):
                path = f"{parent}/{topic}/{partition}"
                value = json.loads(zookeeper.retry(zookeeper.get, path)[0])
                offsets[topic, int(partition)] = value["offset"]
    return offsets


def read_by(members: list[Member]) -> set[tuple[tuple[str, int], int]]:
    return {(key, offset) for each in members for key, offset, _ in list(each.records)}


def test_members_of_two_clients_come_and_go(cluster: BlockingBrokers) -> None:
    create(cluster, "mixed")
    kinds: list[type[Member]] = [ConfluentMember, PythonMember] * 3
    # All names are of one assignor, as both clients call it.
    settings: dict[type[Member], dict[str, Any]] = {
        ConfluentMember: {"partition.assignment.strategy": "range"},
        PythonMember: {},
    }
    members = [
        start(kind, f"mixed-{number}", cluster, "mixed/group", "mixed", settings[kind])
        for number, kind in enumerate(kinds)
    ]
    try:
        eventually(lambda: owned_by_all(members, PARTITIONS), WAIT_S, "six members own all partitions")
        eventually(lambda: all(len(each.owned) == 2 for each in members), WAIT_S, "two partitions each")
        produce(cluster, "mixed", 600)
        for leaving in members[:3]:
            leaving.leave()
        eventually(lambda: owned_by_all(members[3:], PARTITIONS), WAIT_S, "three members own all partitions")
        produce(cluster, "mixed", 600)
        eventually(lambda: len(read_by(members)) == 1200, WAIT_S, "all records are read")
    finally:
        for member in members:
            member.leave()
    assert overlaps(members) == []


@pytest.mark.parametrize("kind", [ConfluentMember, pytest.param(PythonMember, marks=pytest.mark.long)])
def test_a_coordinator_that_dies_costs_a_pause_only(
    cluster: BlockingBrokers, zookeeper: KazooClient, kind: type[Member]
) -> None:
    topic = group = f"failover-{kind.__name__}"
    create(cluster, topic)
    members = [start(kind, f"{topic}-{number}", cluster, group, topic) for number in range(2)]
    try:
        eventually(lambda: all(len(each.owned) == 6 for each in members), WAIT_S, "each owns its half")
        eventually(lambda: group_record(zookeeper, group)["assigned"] == 1, WAIT_S)
        produce(cluster, topic, 120)
        eventually(lambda: sum(committed(zookeeper, group).values()) == 120, WAIT_S, "all is committed")
        before = group_record(zookeeper, group)
        assignments = [each.assignments for each in members]
        dead = coordinator_id(zookeeper)
        assert dead is not None
        cluster.kill(dead)
        killed = time.monotonic()
        eventually(
            lambda: coordinator_id(zookeeper) not in (None, dead), WAIT_S, "another coordinator is elected"
        )
        produce(cluster, topic, 120)
        eventually(lambda: sum(committed(zookeeper, group).values()) == 240, WAIT_S, "commits go on")
        assert group_record(zookeeper, group) == before
        assert [each.assignments for each in members] == assignments
        pause = min(at for each in members for at in each.commit_times if at > killed) - killed
        assert pause < WAIT_S
    finally:
        for member in members:
            member.leave()
    assert overlaps(members) == []
    cluster.start(dead)


def test_consumers_that_know_only_dead_brokers_say_so_and_go_on_when_they_return(
    cluster: BlockingBrokers, zookeeper: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    topic, dead = "bootstrap", (2, 3)
    create(cluster, topic)
    produce(cluster, topic, 120)
    addresses = cluster.bootstrap.split(",")[1:]
    bootstrap = ",".join(addresses)
    for broker_id in dead:
        cluster.kill(broker_id)
    with pytest.raises(KafkaTimeoutError, match=f"Unable to bootstrap from .*{addresses[0]}"):
        KafkaConsumer(bootstrap_servers=addresses, bootstrap_timeout_ms=500)
    caplog.clear()
    said: list[KafkaError] = []
    members = [
        ConfluentMember("confluent", bootstrap, "of-confluent", [topic], {"error_cb": said.append}).start(),
        PythonMember("python", bootstrap, "of-python", [topic]).start(),
    ]
    try:
        eventually(
            lambda: KafkaError._ALL_BROKERS_DOWN in [each.code() for each in said],
            *(WAIT_S, "confluent-kafka says that all brokers are down"),
        )
        eventually(
            lambda: all(any(address in each.str() for each in said) for address in addresses),
            *(WAIT_S, "confluent-kafka names both"),
        )
        eventually(
            lambda: "Bootstrap connection to bootstrap-" in caplog.text,
            *(WAIT_S, "kafka-python says that it cannot connect"),
        )
        for broker_id in dead:
            cluster.start(broker_id)
        eventually(
            lambda: all(sum(each.committed.values()) == 120 for each in members),
            *(WAIT_S, "both have read and committed everything"),
        )
        assert all(committed(zookeeper, each.group) == each.committed for each in members)
    finally:
        for member in members:
            member.leave()


def commit(cluster: BlockingBrokers, group: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(topic.replace("_", "-"), 0, offset) for topic, offset in offsets.items()]
    eventually(lambda: _committed(consumer, wanted), WAIT_S, "offsets are committed")
    consumer.close()


def _committed(consumer: Consumer, wanted: list[TopicPartition]) -> bool:
    try:
        done = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        raise AssertionError(error) from error
    return all(each.error is None for each in done)


def test_offsets_go_with_their_topic(cluster: BlockingBrokers, zookeeper: KazooClient) -> None:
    for topic in ("goes-away", "stays-here"):
        create(cluster, topic, 1)
    commit(cluster, "reader", goes_away=5, stays_here=7)
    assert committed(zookeeper, "reader") == {("goes-away", 0): 5, ("stays-here", 0): 7}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics(["goes-away"])["goes-away"].result(WAIT_S)
    eventually(
        lambda: committed(zookeeper, "reader") == {("stays-here", 0): 7}, WAIT_S, "only the other's are left"
    )


def test_a_znode_that_a_foreign_hand_wrote_costs_its_group_only(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    create(cluster, "touched", 1)
    for group in ("touched", "untouched"):
        commit(cluster, group, touched=1)
    epoch = zookeeper.get(paths.COORDINATOR_EPOCH)[0]
    path = paths.group_path("touched")
    zookeeper.set(path, zookeeper.get(path)[0])
    for group in ("touched", "untouched"):
        commit(cluster, group, touched=2)
        assert committed(zookeeper, group) == {("touched", 0): 2}
    assert zookeeper.get(paths.COORDINATOR_EPOCH)[0] == epoch


def test_status_and_metrics_show_the_groups(cluster: BlockingBrokers, zookeeper: KazooClient) -> None:
    create(cluster, "counted", 1)
    commit(cluster, "counted", counted=1)
    number = coordinator_id(zookeeper)
    assert number is not None
    url = cluster.admin_urls[number - 1]
    with urllib.request.urlopen(f"{url}/v1/status", timeout=WAIT_S) as answer:
        status = json.load(answer)
    assert status["coordinator_id"] == number
    assert status["coordinator"]["groups"]["Empty"] >= 1
    with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
        metrics = answer.read().decode()
    assert "quorate_coordinator_active 1.0" in metrics
    assert 'quorate_groups{state="Empty"}' in metrics


def test_every_metric_of_the_brokers_dashboard_and_alerts_exists(cluster: BlockingBrokers) -> None:
    known: set[str] = set()
    for url in cluster.admin_urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
            known |= shown_metrics(answer.read().decode())
    used = named_metrics("brokers-dashboard.json", "brokers-alerts.yml")
    assert len(used) > 15
    assert used <= known


def test_admin_clients_list_groups_although_one_broker_has_them_all(cluster: BlockingBrokers) -> None:
    create(cluster, "listed", 1)
    commit(cluster, "listed", listed=1)
    confluent = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = confluent.list_consumer_groups().result(WAIT_S)
    assert found.errors == []
    assert "listed" in [each.group_id for each in found.valid]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    assert "listed" in json.dumps(admin.list_groups(), default=str)
    admin.close()


def test_a_commit_of_many_offsets_with_long_metadata_outlives_its_coordinator(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    create(cluster, "wordy", 300)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "wordy", "log_level": 0})
    wanted = [TopicPartition("wordy", each, each + 1, metadata=f"{each:04}" * 1_000) for each in range(300)]
    eventually(lambda: _committed(consumer, wanted), WAIT_S, "offsets are committed")
    dead = coordinator_id(zookeeper)
    assert dead is not None
    cluster.kill(dead)
    eventually(
        lambda: coordinator_id(zookeeper) not in (None, dead), WAIT_S, "another coordinator is elected"
    )
    found = consumer.committed([TopicPartition("wordy", each) for each in range(300)], timeout=WAIT_S)
    assert [(each.offset, each.metadata) for each in found] == [
        (each.offset, each.metadata) for each in wanted
    ]
    consumer.close()
    cluster.start(dead)


def test_groups_that_hold_all_they_may_are_refused_more_and_the_others_go_on() -> None:
    with brokers_in_thread(1, settings={"groups": {"groups_bytes_max": 1024 * 1024}}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("full", 100, 1)])["full"].result(WAIT_S)
        commit(running, "honest", full=1)
        wanted = [TopicPartition("full", each, 1, metadata="x" * 4_000) for each in range(100)]
        greedy = [
            Consumer({"bootstrap.servers": running.bootstrap, "group.id": f"greedy-{each}", "log_level": 0})
            for each in range(3)
        ]
        for each in greedy[:2]:
            eventually(functools.partial(_committed, each, wanted), WAIT_S, "offsets are committed")
        with pytest.raises(KafkaException) as caught:
            greedy[2].commit(offsets=wanted, asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION
        for each in greedy:
            each.close()
        commit(running, "honest", full=10**12)
        with urllib.request.urlopen(f"{running.admin_urls[0]}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert float(values["quorate_group_requests_refused_total"]) == 1
        assert 800_000 < float(values["quorate_groups_bytes"]) <= 1024 * 1024
