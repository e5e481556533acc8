"""Fetch sessions between real brokers: a leader of 50 partitions dies, a session gives way, a link is lost.

Broker 1 has room for one session and leads in the test of that alone; the others have as many as they like.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-227.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.wire.codec import encode_request
from controller.wire.apis import ApiKey
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_links import BrokerLinks
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, ask, produce, record_batch
from tests.support.nodes import eventually

DEADLINE_S = 60.0
#: Longer than two busy cores keep a broker from its loop.
SESSION_MS = 2000
PARTITIONS = 50
PRODUCE_VERSION = 9
FETCH_VERSION = 11
FETCH_SESSION_ID_NOT_FOUND = 70
SESSIONS = "quorate_broker_incremental_fetch_sessions"
CACHED = "quorate_broker_incremental_fetch_partitions_cached"
EVICTIONS = "quorate_broker_incremental_fetch_session_evictions_total"

Linked = tuple[BrokerCluster, BrokerLinks]


@pytest.fixture(scope="module")
def linked() -> Iterator[Linked]:
    cluster = BrokerCluster(session_timeout_ms=SESSION_MS)
    cluster.brokers[1].settings["limits"] = {"max_incremental_fetch_session_cache_slots": 1}
    links = BrokerLinks(cluster)
    with contextlib.closing(links), cluster, cluster.shown():
        yield cluster, links


def create(cluster: BrokerCluster, topic: str, assignments: Sequence[Sequence[int]], isr_min: int) -> None:
    cluster.wait_controller_known()
    rows = [list(row) for row in assignments]
    config = {"min.insync.replicas": str(isr_min)}
    wanted = NewTopic(topic, len(rows), replica_assignment=rows, config=config)
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([wanted], operation_timeout=20)[topic].result(30)
    cluster.wait_in_sync(topic)


def append_to_all(cluster: BrokerCluster, broker_id: int, topic: str) -> set[tuple[int, int]]:
    """Append a record to each partition with acks=all; returns (error code, base offset) of the answers."""
    rows = [{"index": number, "records": record_batch([b"value"])} for number in range(PARTITIONS)]
    data = [{"name": topic, "partition_data": rows}]
    values = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data}
    answer = ask(cluster.address(broker_id), ApiKey.PRODUCE, PRODUCE_VERSION, values)
    return {(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses}


def fetch_of_session(topic: str, session_id: int, session_epoch: int) -> dict[str, object]:
    """What a consumer asks for; the first fetch of a session names its partition."""
    position = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [] if session_epoch else [{"topic": topic, "partitions": [position]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def wait_for_sessions(cluster: BrokerCluster, leader: int) -> None:
    """Wait until both followers fetch all partitions in sessions."""
    held = 2 * PARTITIONS
    eventually(lambda: cluster.metric(leader, CACHED) >= held, DEADLINE_S, "sessions hold all partitions")


def test_fifty_partitions_go_on_under_another_leader(linked: Linked) -> None:
    cluster, _ = linked
    create(cluster, "fifty", [(2, 3, 1)] * PARTITIONS, isr_min=2)
    assert append_to_all(cluster, 2, "fifty") == {(0, 0)}
    wait_for_sessions(cluster, 2)
    cluster.kill(2)

    def leaders() -> set[int]:
        return {int(cluster.state("fifty", number)["leader"]) for number in range(PARTITIONS)}

    eventually(lambda: leaders() == {3}, DEADLINE_S, "broker 3 leads all partitions")

    def goes_on() -> bool:
        # Broker 3 hears of its leadership after the quorum.
        row = produce(cluster.address(3), "fifty", 0, record_batch([b"value"]))
        return bool(row.error_code == 0)

    eventually(goes_on, DEADLINE_S, "the new leader takes records")
    cluster.start_broker(2)
    cluster.wait_ready(2)
    cluster.wait_in_sync("fifty")
    answers = append_to_all(cluster, 3, "fifty")
    assert {code for code, _ in answers} == {0}
    assert min(offset for _, offset in answers) == 1
    wait_for_sessions(cluster, 3)


def test_followers_replicate_where_sessions_give_way(linked: Linked) -> None:
    cluster, _ = linked
    create(cluster, "lone", [(1,)], isr_min=1)
    with BrokerLink(cluster.address(1)) as consumer:
        first = consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_of_session("lone", 0, 0))
        assert (first.error_code, cluster.metric(1, SESSIONS)) == (0, 1)
        assert first.session_id != 0
        create(cluster, "crowded", [(1, 2, 3)], isr_min=3)
        eventually(lambda: cluster.metric(1, EVICTIONS) == 1, DEADLINE_S, "the consumer's session gave way")
        for offset in range(5):
            row = produce(cluster.address(1), "crowded", 0, record_batch([b"value"]))
            assert (row.error_code, row.base_offset) == (0, offset)
        assert cluster.metric(1, SESSIONS) == 1
        assert sorted(cluster.state("crowded", 0)["isr"]) == [1, 2, 3]
        later = consumer.ask(ApiKey.FETCH, FETCH_VERSION, fetch_of_session("lone", first.session_id, 1))
        assert later.error_code == FETCH_SESSION_ID_NOT_FOUND


def test_a_lost_link_loses_no_record(linked: Linked) -> None:
    cluster, links = linked
    create(cluster, "severed", [(3, 2)], isr_min=2)
    assert produce(cluster.address(3), "severed", 0, record_batch([b"value"])).error_code == 0
    sessions, cached = cluster.metric(3, SESSIONS), cluster.metric(3, CACHED)
    relay = links.relays[2, 3]
    relay.cut()
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [
            {"name": "severed", "partition_data": [{"index": 0, "records": record_batch([b"value"])}]}
        ],
    }
    with BrokerLink(cluster.address(3), DEADLINE_S) as producer:
        producer.send(ApiKey.PRODUCE, PRODUCE_VERSION, encode_request(0, PRODUCE_VERSION, values))
        # The leader has it, and whatever it sent of it has vanished.
        eventually(lambda: log_bytes(cluster, 3) > log_bytes(cluster, 2), DEADLINE_S, "the leader appends")
        assert not producer.has_answer()
        relay.mend()
        row = producer.answer(ApiKey.PRODUCE, PRODUCE_VERSION).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (0, 1)
    assert log_bytes(cluster, 3) == log_bytes(cluster, 2)
    # The session of the lost connection made room for the next one.
    now_held = (cluster.metric(3, SESSIONS), cluster.metric(3, CACHED))
    assert now_held == (sessions, cached)


def log_bytes(cluster: BrokerCluster, broker_id: int) -> int:
    folder = cluster.brokers[broker_id].data_dir / "severed-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))
