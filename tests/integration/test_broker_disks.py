"""Brokers whose disks fail, hang or take their time: others lead, and nothing acknowledged goes with them.

Three real brokers with sessions of a second, on disks that a test reaches (tests/support/hanging_broker.py).
A topic of small segments makes a broker fsync with every second batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.wire.codec import encode_request
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, produce, record_batch
from tests.support.hanging_broker import (
    BROKEN_FSYNC,
    SILENT_FSYNC,
    SILENT_WRITE,
    SLOW_FSYNC,
    HangingBrokers,
)
from tests.support.nodes import eventually

DEADLINE_S = 60.0
PRODUCE = 0
BATCH = record_batch([b"x" * 3000])


@pytest.fixture(scope="module")
def running() -> Iterator[HangingBrokers]:
    settings = {"broker": {"replica_lag_time_max_ms": 1500}, "limits": {"segment_bytes_min": 4096}}
    with HangingBrokers(session_timeout_ms=SHORT_SESSION_MS, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: HangingBrokers) -> HangingBrokers:
    """Three ready brokers on good disks."""
    for broker_id in running.brokers:
        for fault in (SILENT_FSYNC, SILENT_WRITE, BROKEN_FSYNC, SLOW_FSYNC):
            running.mend(broker_id, fault)
        if not running.running(broker_id):
            running.start_broker(broker_id)
    running.wait_ready()
    return running


def create(cluster: BrokerCluster, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with small segments."""
    admin = AdminClient(quiet(cluster.bootstrap))
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config={"segment.bytes": "4096"})

    def created() -> bool:
        admin.create_topics([new], request_timeout=10)[topic].result()
        return True

    eventually(created, DEADLINE_S, f"topic {topic} is created")
    cluster.wait_in_sync(topic)


def fill(cluster: BrokerCluster, broker_id: int, topic: str, count: int) -> None:
    """Have records in several segments, acknowledged by all."""
    for _ in range(count):
        row = produce(cluster.address(broker_id), topic, 0, BATCH)
        assert row.error_code == 0, row


def another_leads(cluster: BrokerCluster, topic: str, former: int) -> int:
    """Wait until another broker leads the topic's only partition."""

    def look() -> int:
        leader = int(cluster.state(topic, 0).get("leader", -1))
        return 0 if leader == former else max(leader, 0)

    return eventually(look, DEADLINE_S, f"another broker than {former} leads {topic}")


def ended_by_itself(cluster: BrokerCluster, broker_id: int) -> str:
    """Wait until a broker has ended, as after a crash; returns what it wrote."""
    process = cluster.brokers[broker_id].process
    assert process is not None
    assert process.wait(DEADLINE_S) not in (0, -9)
    assert not (cluster.brokers[broker_id].data_dir / ".kafka_cleanshutdown").exists()
    return cluster.brokers[broker_id].output_path.read_text()


def has_all(cluster: BrokerCluster, topic: str, count: int) -> None:
    """The present leader has the `count` records that were acknowledged, and takes another one."""
    leader = cluster.leader_of(topic, 0)
    row = produce(cluster.address(leader), topic, 0, BATCH)
    assert row.error_code == 0
    assert row.base_offset >= count


@pytest.mark.parametrize("fault", [SILENT_FSYNC, BROKEN_FSYNC])
def test_a_disk_that_hangs_or_fails_costs_the_broker_and_no_record(
    cluster: HangingBrokers, fault: str
) -> None:
    former, *others = cluster.brokers
    create(cluster, fault, [[former, *others]])
    fill(cluster, former, fault, 6)
    cluster.ask(former, fault)
    # A roll asks for an fsync; so does the next checkpoint.
    for _ in range(2):
        produce(cluster.address(former), fault, 0, BATCH, acks=1)
    assert another_leads(cluster, fault, former) in others
    output = ended_by_itself(cluster, former)
    assert ("has not answered" if fault == SILENT_FSYNC else "Input/output error") in output
    has_all(cluster, fault, 6)
    cluster.mend(former, fault)
    cluster.start_broker(former)
    cluster.wait_ready()
    cluster.wait_in_sync(fault)


def test_a_write_that_never_returns_costs_the_session_and_others_lead(cluster: HangingBrokers) -> None:
    former, *others = cluster.brokers
    create(cluster, "silent", [[former, *others]])
    fill(cluster, former, "silent", 3)
    cluster.ask(former, SILENT_WRITE)
    data = [{"name": "silent", "partition_data": [{"index": 0, "records": BATCH}]}]
    with BrokerLink(cluster.address(former)) as link:
        values = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data}
        link.send(PRODUCE, 9, encode_request(PRODUCE, 9, values))
        eventually(lambda: cluster.has_met(former, SILENT_WRITE), DEADLINE_S, "its disk is silent")
        assert another_leads(cluster, "silent", former) in others
        has_all(cluster, "silent", 3)
        cluster.mend(former, SILENT_WRITE)
        cluster.wait_in_sync("silent")
    assert cluster.running(former), "it has not lost anything: it follows"
    has_all(cluster, "silent", 4)


def test_a_broker_answers_health_checks_while_it_opens_its_logs(cluster: HangingBrokers) -> None:
    starting = max(cluster.brokers)
    cluster.kill(starting)
    cluster.ask(starting, SILENT_FSYNC)
    cluster.start_broker(starting)
    eventually(lambda: cluster.has_met(starting, SILENT_FSYNC), DEADLINE_S, "it opens its logs")
    assert cluster.get(starting, "/livez")[0] == 200
    code, body = cluster.get(starting, "/readyz")
    assert (code, b"not registered" in body) == (503, True), body
    assert cluster.status(starting)["ready"] is False
    cluster.mend(starting, SILENT_FSYNC)
    cluster.wait_ready()


def test_a_follower_on_a_slow_disk_leaves_the_isr_and_comes_back(cluster: HangingBrokers) -> None:
    """It waits for its rolls, no event loop does, and acks=all waits for it no longer than the lag allows."""
    leader, follower, third = cluster.brokers
    create(cluster, "slow", [[leader, follower, third]])
    cluster.ask(follower, SLOW_FSYNC, "1.0")
    fill(cluster, leader, "slow", 8)
    assert cluster.has_met(follower, SLOW_FSYNC)
    assert sorted(cluster.state("slow", 0)["isr"]) == [leader, third]
    ready = "its slow disk does not cost it its session"
    eventually(lambda: cluster.get(follower, "/readyz")[0] == 200, DEADLINE_S, ready)
    cluster.mend(follower, SLOW_FSYNC)
    cluster.wait_in_sync("slow")
