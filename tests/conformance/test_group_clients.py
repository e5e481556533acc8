"""Consumer groups of unchanged clients against three broker processes, one of which is killed or paused.

kafka-python, confluent-kafka with both protocols, and kcat. What the members say they owned and committed is
compared with what is in the quorum.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from quorum.metadata import paths
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.group_members import (
    ConfluentMember,
    Member,
    PythonMember,
    create_topic,
    overlaps,
    owned_by_all,
)
from tests.support.nodes import eventually

WAIT_S = 60.0
PARTITIONS = 12
#: Kafka 3.9.1 on ZooKeeper pauses commits for 5.5 to 9 s when the coordinator's broker dies.
PAUSE_MAX_S = 5.5
SETTINGS = {
    "groups": {
        "group_initial_rebalance_delay_ms": 500,
        "group_consumer_heartbeat_interval_ms": 300,
        "group_consumer_session_timeout_ms": 6_000,
    }
}
CONSUMER_PROTOCOL = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(settings=SETTINGS, session_timeout_ms=SHORT_SESSION_MS) as running:
        yield running


@pytest.fixture
def all_brokers(cluster: BrokerCluster) -> Iterator[BrokerCluster]:
    """The cluster; what a test has killed or paused runs again afterwards."""
    yield cluster
    for broker_id, broker in cluster.brokers.items():
        if broker.paused:
            cluster.resume(broker_id)
        if not cluster.running(broker_id):
            cluster.start_broker(broker_id)
    cluster.wait_ready()


class Load:
    """A producer in a thread: one record after the other, spread over the partitions."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "enable.idempotence": True}
        )
        self._ending = threading.Event()
        self.delivered = [0] * PARTITIONS
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._was_delivered
            )
            self._producer.poll(0.01)
            number += 1

    def _was_delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.delivered[message.partition()] += 1

    def end(self) -> int:
        """Stop; returns how many records were acknowledged."""
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        return sum(self.delivered)


def admin(cluster: BrokerCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def coordinator_id(cluster: BrokerCluster) -> int | None:
    found = cluster.read(paths.COORDINATOR)
    return None if found is None else int(found["brokerid"])


def group_record(cluster: BrokerCluster, group: str) -> dict[str, Any]:
    found = cluster.read(paths.group_path(group))
    assert found is not None
    return found


def in_quorum(cluster: BrokerCluster, group: str, topic: str) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for partition in range(PARTITIONS):
        value = cluster.read(f"{paths.group_topic_path(group, topic)}/{partition}")
        if value is not None:
            found[topic, partition] = value["offset"]
    return found


def start(kind: type[Member], number: int, cluster: BrokerCluster, topic: str, settings: Any) -> Member:
    return kind(f"{topic}-{number}", cluster.bootstrap, topic, [topic], dict(settings)).start()


def pause_s(member: Member, killed: float) -> float:
    """Seconds from the coordinator's death to a member's first commit after it."""
    return min(at for at in list(member.commit_times) if at > killed) - killed


RANGE = {"partition.assignment.strategy": "range"}
#: kcat's member has the assignor and the timeouts of the others.
KCAT_MEMBER = [
    *("-X", "partition.assignment.strategy=range", "-X", "session.timeout.ms=6000"),
    *("-X", "heartbeat.interval.ms=300", "-X", "auto.commit.interval.ms=200"),
    *("-X", "auto.offset.reset=earliest"),
]
KINDS: dict[str, list[tuple[type[Member], dict[str, Any]]]] = {
    "classic": [(ConfluentMember, RANGE), (PythonMember, {})] * 3,
    "cooperative": [(ConfluentMember, {"partition.assignment.strategy": "cooperative-sticky"})] * 6,
    "consumer": [(ConfluentMember, CONSUMER_PROTOCOL)] * 6,
}


@pytest.mark.alone
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "protocol",
    # To a broker the second one is the first one with another assignor.
    ["classic", pytest.param("cooperative", marks=pytest.mark.long), "consumer"],
)
def test_a_coordinator_killed_amid_commits_loses_nothing(all_brokers: BrokerCluster, protocol: str) -> None:
    cluster, topic = all_brokers, f"commits-{protocol}"
    create_topic(admin(cluster), topic, PARTITIONS)
    members = [
        start(kind, number, cluster, topic, settings)
        for number, (kind, settings) in enumerate(KINDS[protocol])
    ]
    load = Load(cluster, topic)
    try:
        eventually(lambda: all(len(each.owned) == 2 for each in members), WAIT_S, "two partitions each")
        eventually(lambda: len(in_quorum(cluster, topic, topic)) == PARTITIONS, WAIT_S, "all commit")
        before = group_record(cluster, topic)
        assignments = [each.assignments for each in members]
        dead = coordinator_id(cluster)
        assert dead is not None
        cluster.kill(dead)
        killed = time.monotonic()
        said = {key: offset for each in members for key, offset in each.committed.items()}
        eventually(lambda: coordinator_id(cluster) not in (None, dead), WAIT_S, "another is elected")
        kept = in_quorum(cluster, topic, topic)
        assert all(kept[key] >= offset for key, offset in said.items())
        commits = [len(each.commit_times) for each in members]
        eventually(
            lambda: all(len(each.commit_times) > count for each, count in zip(members, commits, strict=True)),
            WAIT_S,
            "every member commits again",
        )
        assert group_record(cluster, topic) == before
        assert [each.assignments for each in members] == assignments
        assert max(pause_s(each, killed) for each in members) < PAUSE_MAX_S
        sent = load.end()
        eventually(lambda: sum(in_quorum(cluster, topic, topic).values()) >= sent, WAIT_S, "all is read")
    finally:
        load.end()
        for member in members:
            member.leave()
    assert overlaps(members) == []


@pytest.mark.alone
@pytest.mark.timeout(400)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_killed_amid_a_rebalance_costs_no_partition(
    all_brokers: BrokerCluster, protocol: str
) -> None:
    cluster, topic = all_brokers, f"rebalance-{protocol}"
    create_topic(admin(cluster), topic, PARTITIONS)
    kinds = KINDS[protocol]
    members = [
        start(kind, number, cluster, topic, settings) for number, (kind, settings) in enumerate(kinds[:3])
    ]
    load = Load(cluster, topic)
    try:
        eventually(lambda: owned_by_all(members, PARTITIONS), WAIT_S, "three members own all")
        dead = coordinator_id(cluster)
        assert dead is not None
        members += [
            start(kind, number, cluster, topic, settings)
            for number, (kind, settings) in enumerate(kinds[3:], 3)
        ]
        eventually(lambda: len(group_record(cluster, topic)["members"]) > 3, WAIT_S, "others have come")
        cluster.kill(dead)
        eventually(lambda: all(len(each.owned) == 2 for each in members), WAIT_S, "two partitions each")
        sent = load.end()
        eventually(lambda: sum(in_quorum(cluster, topic, topic).values()) >= sent, WAIT_S, "all is read")
    finally:
        load.end()
        for member in members:
            member.leave()
    assert overlaps(members) == []


@pytest.mark.alone
@pytest.mark.timeout(400)
def test_a_coordinator_that_wakes_up_takes_no_offset_back(all_brokers: BrokerCluster) -> None:
    cluster, topic = all_brokers, "paused"
    create_topic(admin(cluster), topic, PARTITIONS)
    members = [start(ConfluentMember, number, cluster, topic, {}) for number in range(2)]
    load = Load(cluster, topic)
    try:
        eventually(lambda: len(in_quorum(cluster, topic, topic)) == PARTITIONS, WAIT_S, "all is committed")
        paused = coordinator_id(cluster)
        assert paused is not None
        cluster.pause(paused)
        eventually(lambda: coordinator_id(cluster) not in (None, paused), WAIT_S, "another is elected")
        commits = [len(each.commit_times) for each in members]
        eventually(
            lambda: all(len(each.commit_times) > count for each, count in zip(members, commits, strict=True)),
            WAIT_S,
            "every member commits again",
        )
        lowest = in_quorum(cluster, topic, topic)
        cluster.resume(paused)

        def committed() -> int:
            nonlocal lowest
            now = in_quorum(cluster, topic, topic)
            if any(now[key] < offset for key, offset in lowest.items()):
                raise RuntimeError(f"offsets went back from {lowest} to {now}")
            lowest = now
            return sum(now.values())

        eventually(lambda: committed() and cluster.ready(paused), WAIT_S, "the old coordinator is back")
        sent = load.end()
        eventually(lambda: committed() >= sent, WAIT_S, "all is read")
    finally:
        load.end()
        for member in members:
            member.leave()
    assert overlaps(members) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_partitions_of_a_member_that_is_killed_or_paused_go_to_the_others(
    cluster: BrokerCluster, tmp_path: Path, by: signal.Signals
) -> None:
    topic = f"member-{by.name.lower()}"
    create_topic(admin(cluster), topic, PARTITIONS)
    members = [start(ConfluentMember, number, cluster, topic, RANGE) for number in range(2)]
    command = ["kcat", "-b", cluster.bootstrap, "-G", topic, "-q", *KCAT_MEMBER, topic]
    with (tmp_path / "output.log").open("wb") as output:
        victim = subprocess.Popen(command, stdout=output, stderr=output)
    load = Load(cluster, topic)
    try:
        eventually(lambda: [len(each.owned) for each in members] == [4, 4], WAIT_S, "each owns its third")
        victim.send_signal(by)
        eventually(lambda: owned_by_all(members, PARTITIONS), WAIT_S, "the others take over")
        if by is signal.SIGSTOP:
            victim.send_signal(signal.SIGCONT)
            eventually(lambda: [len(each.owned) for each in members] == [4, 4], WAIT_S, "it comes back")
        sent = load.end()
        eventually(lambda: sum(in_quorum(cluster, topic, topic).values()) >= sent, WAIT_S, "all is read")
    finally:
        load.end()
        victim.kill()
        victim.wait(WAIT_S)
        for member in members:
            member.leave()
    assert overlaps(members) == []


@pytest.mark.timeout(300)
def test_kcat_consumes_as_a_member(cluster: BrokerCluster) -> None:
    create_topic(admin(cluster), "kcat-group", 3)
    given = b"".join(b"%d\n" % number for number in range(300))
    command = ["kcat", "-b", cluster.bootstrap]
    subprocess.run([*command, "-P", "-t", "kcat-group"], input=given, check=True, timeout=WAIT_S)
    options = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-e", "-q", "-J"]
    done = subprocess.run(
        [*command, *options, "-G", "kcat-readers", "kcat-group"],
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(int(row["payload"]) for row in read) == list(range(300))
    committed = {
        partition: (cluster.read(f"{paths.group_topic_path('kcat-readers', 'kcat-group')}/{partition}") or {})
        for partition in range(3)
    }
    assert sum(each.get("offset", 0) for each in committed.values()) == 300
