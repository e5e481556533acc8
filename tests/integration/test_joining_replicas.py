"""A follower that loses its log while its way into the ISR is being written stays out (KIP-903).

The leader is cut off from the quorum while it lets the follower join. The follower restarts with an empty
log, and only then does the leader reach the quorum again. A state that names that follower would let it lead
without a record that was acknowledged.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import produce, record_batch
from tests.support.nodes import QuorateNodes, eventually
from tests.support.request_relay import RequestRelay

DEADLINE_S = 60.0
#: Longer than the leader is cut off, on a slow machine as well.
SESSION_MS = 60_000
TOPIC = "joining"


@pytest.fixture
def cluster() -> Iterator[BrokerCluster]:
    limits = {"tick_ms": 200, "session_timeout_min_ms": 1000, "session_timeout_max_ms": SESSION_MS}
    quorum = QuorateNodes(nodes=1, settings={"limits": limits})
    # A follower that has joined wrongly does not leave before the test looks.
    settings = {"broker": {"replica_lag_time_max_ms": 10 * SESSION_MS}}
    with BrokerCluster(settings=settings, session_timeout_ms=SESSION_MS, quorum=quorum) as running:
        yield running


def log_bytes(cluster: BrokerCluster, broker_id: int) -> int:
    """How much a broker has of the partition."""
    folder = cluster.brokers[broker_id].data_dir / f"{TOPIC}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def restart(cluster: BrokerCluster, broker_id: int) -> None:
    """Start a broker that was killed, until it has a new generation."""
    before = cluster.generation(broker_id)
    cluster.start_broker(broker_id)
    eventually(lambda: cluster.generation(broker_id) > before, DEADLINE_S, "the broker registers again")


def test_a_follower_that_lost_its_log_meanwhile_does_not_join(cluster: BrokerCluster) -> None:
    controller = cluster.controller_id()
    leader, follower = sorted(each for each in cluster.brokers if each != controller)
    with contextlib.ExitStack() as ending:
        to_leader = RequestRelay(cluster.brokers[leader].broker_port)
        to_quorum = RequestRelay(cluster.nodes.nodes[1].client_port, control=False)
        ending.callback(to_leader.close)
        ending.callback(to_quorum.close)
        cluster.stop(leader)
        cluster.brokers[leader].settings["advertised"] = {"broker": to_leader.address}
        cluster.brokers[leader].settings["quorum"] = {"hosts": [to_quorum.address]}
        cluster.start_broker(leader)
        cluster.wait_ready()
        wanted = NewTopic(TOPIC, 1, replica_assignment=[[leader, follower]])
        admin = AdminClient(quiet(cluster.bootstrap))
        admin.create_topics([wanted], operation_timeout=20)[TOPIC].result(30)
        cluster.wait_in_sync(TOPIC)

        def append(acks: int) -> None:
            def appended() -> bool:
                row = produce(cluster.address(leader), TOPIC, 0, record_batch([b"x" * 100]), acks=acks)
                assert row.error_code == 0, f"error {row.error_code}"
                return True

            eventually(appended, DEADLINE_S, f"a record is acknowledged, acks={acks}")

        append(-1)
        generation = cluster.generation(leader)
        to_quorum.cut()
        cluster.kill(follower)
        restart(cluster, follower)
        eventually(lambda: cluster.state(TOPIC, 0)["isr"] == [leader], DEADLINE_S, "the follower left")
        before = log_bytes(cluster, follower)
        append(1)
        # A follower that fetches is about to join; the leader's write of that does not get through.
        eventually(lambda: log_bytes(cluster, follower) > before, DEADLINE_S, "the follower fetches")
        cluster.kill(follower)
        shutil.rmtree(cluster.brokers[follower].data_dir / f"{TOPIC}-0")
        to_leader.cut()
        restart(cluster, follower)
        to_quorum.mend()
        # While the change is pending, the high watermark waits for the follower, which cannot fetch.
        append(-1)
        assert cluster.generation(leader) == generation
        assert cluster.state(TOPIC, 0)["isr"] == [leader]
        to_leader.mend()
        cluster.wait_in_sync(TOPIC)
        assert log_bytes(cluster, follower) == log_bytes(cluster, leader)
