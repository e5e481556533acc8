"""Elections on request: preferred leaders, unclean ones, and leaderships that go back by themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from broker.local import BlockingBrokers, brokers_in_thread
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.admin_requests import PreferredElectionRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import RECOVERED, RECOVERING
from tests.support.broker_records import quiet
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    cluster,
    until,
    until_read,
    until_state,
)
from tests.support.nodes import eventually
from tests.support.scripted_broker import OPTIONS

__all__ = ["cluster"]

WAIT_S = 30.0
OTHER = PartitionKey(TOPIC, 1)


async def elect(
    cluster: ControlledCluster, *keys: PartitionKey, unclean: bool = False
) -> dict[PartitionKey, ErrorCode]:
    outcomes = await cluster.active.elect_leaders(keys or None, unclean=unclean, timeout_ms=10_000)
    assert not isinstance(outcomes, ErrorCode)
    return {key: outcome.error_code for key, outcome in outcomes.items()}


async def led_by_the_second(cluster: ControlledCluster) -> None:
    """Two partitions that prefer broker 2 and are led by broker 1, because 2 was away."""
    await cluster.start(2)
    await cluster.create({0: (2, 1), 1: (2, 1)})
    two = cluster.brokers[2]
    await two.die()
    for key in (KEY, OTHER):
        await until_state(cluster.brokers[1], lambda state: state.leader == 1, key)
    await two.live()
    await until(lambda: 2 in cluster.active.status().brokers)
    for key in (KEY, OTHER):
        await cluster.brokers[1].set_isr(key, (1, 2))


async def test_preferred_leaders_come_back_on_request(cluster: ControlledCluster) -> None:
    await led_by_the_second(cluster)
    before = await cluster.brokers[1].read_state(KEY)
    assert before is not None
    assert await elect(cluster, KEY) == {KEY: ErrorCode.NONE}
    state = await until_state(cluster.brokers[1], lambda state: state.leader == 2)
    assert (state.isr, state.leader_epoch) == ((1, 2), before.leader_epoch + 1)
    await until(lambda: all(each.leader_of(KEY) == 2 for each in cluster.brokers.values()))
    assert cluster.brokers[1].leader_of(OTHER) == 1
    # Of all, only those that needed it are named.
    assert await elect(cluster) == {OTHER: ErrorCode.NONE}
    assert await elect(cluster) == {}


async def test_what_needs_no_election_or_cannot_have_it_is_refused_by_kafkas_codes(
    cluster: ControlledCluster,
) -> None:
    await led_by_the_second(cluster)
    await cluster.brokers[1].set_isr(OTHER, (1,))
    assert await elect(cluster, KEY, OTHER, PartitionKey(TOPIC, 7), PartitionKey("none", 0)) == {
        KEY: ErrorCode.NONE,
        OTHER: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        PartitionKey(TOPIC, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        PartitionKey("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await elect(cluster, KEY) == {KEY: ErrorCode.ELECTION_NOT_NEEDED}
    assert await elect(cluster, KEY, unclean=True) == {KEY: ErrorCode.ELECTION_NOT_NEEDED}


async def test_a_request_in_the_quorum_is_carried_out_and_removed(cluster: ControlledCluster) -> None:
    await led_by_the_second(cluster)
    client = cluster.brokers[1].client
    record = PreferredElectionRecord((KEY, OTHER))
    await client.create(paths.PREFERRED_REPLICA_ELECTION, record.encode())
    for key in (KEY, OTHER):
        await until_state(cluster.brokers[1], lambda state: state.leader == 2, key)
    await until_read(lambda: client.exists(paths.PREFERRED_REPLICA_ELECTION), lambda stat: stat is None)
    # What means nothing does not stay in the way of the next request.
    await client.create(paths.PREFERRED_REPLICA_ELECTION, b"all of them, please")
    await until_read(lambda: client.exists(paths.PREFERRED_REPLICA_ELECTION), lambda stat: stat is None)


async def test_an_unclean_election_on_request_is_marked_and_counted(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await two.set_isr(KEY, (2,))
    await two.die()
    await until_state(one, lambda state: state.leader == -1)
    assert await elect(cluster, KEY) == {KEY: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert await elect(cluster, KEY, unclean=True) == {KEY: ErrorCode.NONE}
    state = await until_state(one, lambda state: state.leader == 3)
    assert (state.isr, state.leader_recovery_state) == ((3,), RECOVERING)
    assert cluster.active.status().counters.unclean_elections == 1
    await until(lambda: three.leader_of(KEY) == 3)
    # The next clean decision ends the recovery.
    await two.live()
    await until(lambda: 2 in cluster.active.status().brokers)
    await three.set_isr(KEY, (3, 2))
    assert await elect(cluster, KEY) == {KEY: ErrorCode.NONE}
    state = await until_state(one, lambda state: state.leader == 2)
    assert state.leader_recovery_state == RECOVERED


async def test_where_no_replica_lives_nobody_is_elected(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    await two.die()
    await until_state(one, lambda state: state.leader == -1)
    assert await elect(cluster, KEY, unclean=True) == {KEY: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_leaderships_go_back_by_themselves_past_the_threshold(cluster: ControlledCluster) -> None:
    one = await cluster.add(1)
    one.compete(dataclasses.replace(OPTIONS, leader_imbalance_check_interval_ms=50))
    await until(lambda: one.controller is not None and one.controller.active)
    two = await cluster.add(2)
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
    await cluster.create({0: (2, 1), 1: (1, 2)})
    await two.die()
    await until_state(one, lambda state: state.leader == 1)
    await two.live()
    await until(lambda: 2 in cluster.active.status().brokers)
    await one.set_isr(KEY, (1, 2))
    await until_state(one, lambda state: state.leader == 2)
    assert cluster.active.status().counters.leaders_rebalanced == 1
    state = await one.read_state(OTHER)
    assert state is not None
    assert state.leader == 1


async def test_a_deposed_controller_elects_nobody(cluster: ControlledCluster) -> None:
    one, _ = await cluster.start(2)
    controller = cluster.active
    await controller.stop()
    assert await controller.elect_leaders(None, unclean=False, timeout_ms=1_000) == ErrorCode.NOT_CONTROLLER
    assert await controller.reassign({}, timeout_ms=1_000) == ErrorCode.NOT_CONTROLLER
    assert controller.reassignments() is None
    assert (await controller.shut_down(2, one.generation)).error_code == ErrorCode.NOT_CONTROLLER


# -- a real client -------------------------------------------------------------------------------------------


@pytest.fixture
def brokers() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(2) as running:
        yield running


def test_a_client_library_elects_preferred_leaders(brokers: BlockingBrokers) -> None:
    admin = AdminClient(quiet(brokers.bootstrap))
    admin.create_topics([NewTopic("t", 2, replica_assignment=[[1, 2], [2, 1]])])["t"].result(WAIT_S)
    zookeeper = KazooClient(brokers.hosts)
    zookeeper.start(WAIT_S)
    with contextlib.closing(zookeeper), contextlib.ExitStack() as ending:
        ending.callback(zookeeper.stop)

        def state(partition: int) -> dict[str, Any]:
            value, _ = zookeeper.get(f"/brokers/topics/t/partitions/{partition}/state")
            found: dict[str, Any] = json.loads(value)
            return found

        eventually(lambda: all(len(state(each)["isr"]) == 2 for each in (0, 1)), WAIT_S)
        brokers.stop(2)
        eventually(lambda: state(1)["leader"] == 1, WAIT_S)
        brokers.start(2)
        eventually(lambda: len(state(1)["isr"]) == 2, WAIT_S)
        wanted = [TopicPartition("t", 0), TopicPartition("t", 1)]
        # The first client may still know broker 2 as the controller, which it was until it stopped.
        admin = AdminClient(quiet(brokers.bootstrap))
        found = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(WAIT_S)
        by_partition = {partition.partition: error for partition, error in found.items()}
        assert by_partition[1] is None
        assert by_partition[0] is not None
        assert by_partition[0].code() == ErrorCode.ELECTION_NOT_NEEDED
        assert state(1)["leader"] == 2
