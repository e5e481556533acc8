"""Partitions that move to other brokers: step by step, against every death of the controller, and under load.

Source: docs/internals/requirements.md, [0.F]; KIP-455; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from controller.core.reassignment import Move
from controller.wire.codes import ErrorCode
from quorum.client import Transaction
from quorum.metadata import paths
from quorum.metadata.admin_requests import ReassignmentRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node
from quorum.metadata.records import PartitionStateRecord, TopicRecord
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    cluster,
    until,
    until_read,
    until_state,
)
from tests.support.scripted_broker import ScriptedBroker

__all__ = ["cluster"]

OTHER = PartitionKey(TOPIC, 1)


async def record_of(broker: ScriptedBroker, topic: str = TOPIC) -> TopicRecord:
    node = await read_node(broker.client, paths.topic_path(topic))
    assert node is not None
    return TopicRecord.decode(topic, node.data)


async def until_record(
    broker: ScriptedBroker, replicas: dict[int, tuple[int, ...]], topic: str = TOPIC
) -> TopicRecord:
    """Wait until a topic has exactly these replicas, and nothing comes or goes."""
    return await until_read(
        lambda: record_of(broker, topic),
        lambda record: (
            (record.partitions, record.adding_replicas, record.removing_replicas) == (replicas, {}, {})
        ),
    )


async def reassign(
    cluster: ControlledCluster, targets: dict[PartitionKey, tuple[int, ...] | None]
) -> dict[PartitionKey, ErrorCode]:
    outcomes = await cluster.active.reassign(targets, timeout_ms=10_000)
    assert not isinstance(outcomes, ErrorCode)
    return {key: outcome.error_code for key, outcome in outcomes.items()}


async def catch_up(cluster: ControlledCluster, *keys: PartitionKey) -> None:
    """Do what leaders do, until cancelled: take every replica that follows into the ISR."""
    while True:
        for key in keys:
            for broker in cluster.brokers.values():
                known = broker.states.get(key)
                if known is None or known.leader != broker.broker_id:
                    continue
                state = await broker.read_state(key)
                if state is None or state.leader_epoch != known.leader_epoch:
                    continue
                coming = [
                    each
                    for each in known.replicas
                    if each not in state.isr
                    and (copy := cluster.brokers[each].states.get(key)) is not None
                    and copy.leader_epoch == known.leader_epoch
                ]
                if coming:
                    with contextlib.suppress(Exception):  # the controller was quicker
                        await broker.set_isr(key, (*state.isr, *coming))
        await asyncio.sleep(0)


# -- step by step --------------------------------------------------------------------------------------------


async def test_a_replica_comes_is_in_sync_and_another_one_goes(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    assert await reassign(cluster, {KEY: (3, 1)}) == {KEY: ErrorCode.NONE}
    # All take part, and the new one knows that it is.
    record = await record_of(one)
    assert record.partitions == {0: (3, 1, 2)}
    assert (record.adding_replicas, record.removing_replicas) == ({0: (3,)}, {0: (2,)})
    await until(lambda: all(KEY in each.states for each in (one, two, three)))
    assert [each.states[KEY].is_new for each in (one, two, three)] == [False, False, True]
    assert [each.states[KEY].leader_epoch for each in (one, two, three)] == [1, 1, 1]
    assert one.states[KEY].replicas == (3, 1, 2)
    assert dict(cluster.active.reassignments() or ()) == {KEY: Move((3, 1, 2), (1, 2), (3, 1))}
    assert cluster.active.status().under_replicated == ()
    # In sync: the leader stays, because the target has it. The record waits for the one that goes.
    two.answers.clear()
    await one.set_isr(KEY, (1, 2, 3))
    state = await until_state(one, lambda state: state.isr == (1, 3))
    assert (state.leader, state.leader_epoch) == (1, 2)
    await until(lambda: three.states[KEY].leader_epoch == 2)
    assert three.states[KEY].replicas == (3, 1)
    assert (await record_of(one)).removing_replicas == {0: (2,)}
    two.answers.set()
    await until_record(one, {0: (3, 1)})
    assert two.stopped == [KEY]
    await until(lambda: not dict(cluster.active.reassignments() or ()))


async def test_a_leader_that_goes_is_replaced_from_the_target(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    await reassign(cluster, {KEY: (3, 2)})
    await until(lambda: KEY in three.states)
    await one.set_isr(KEY, (1, 2, 3))
    await until_record(one, {0: (3, 2)})
    state = await one.read_state(KEY)
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (3, (2, 3), 2)
    assert one.stopped == [KEY]
    await until(lambda: two.leader_of(KEY) == 3)


async def test_replicas_are_added_removed_and_ordered_without_a_move(cluster: ControlledCluster) -> None:
    one, *_ = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    keeper = asyncio.create_task(catch_up(cluster, KEY))
    try:
        for target in ((1, 2, 3), (2, 1, 3), (2, 3), (3,)):
            assert await reassign(cluster, {KEY: target}) == {KEY: ErrorCode.NONE}
            await until_record(one, {0: target})
            await until_state(one, lambda state, target=target: set(state.isr) == set(target))  # type: ignore[misc]
            await until(lambda target=target: one.metadata[KEY].replicas == target)  # type: ignore[misc]
    finally:
        keeper.cancel()


async def test_a_request_in_the_quorum_is_trimmed_as_partitions_arrive(cluster: ControlledCluster) -> None:
    one, _, three = await cluster.start(3)
    await cluster.create({0: (1, 2), 1: (2, 1)})
    wanted = ReassignmentRecord({KEY: (1, 3), OTHER: (2, 3), PartitionKey("none", 0): (1,)})
    await one.client.create(paths.REASSIGN_PARTITIONS, wanted.encode())

    async def requested() -> dict[PartitionKey, tuple[int, ...]] | None:
        node = await read_node(one.client, paths.REASSIGN_PARTITIONS)
        return None if node is None else dict(ReassignmentRecord.decode(node.data).targets)

    # What cannot be done is taken out at once.
    await until_read(requested, lambda left: left == {KEY: (1, 3), OTHER: (2, 3)})
    await until(lambda: KEY in three.states and OTHER in three.states)
    await one.set_isr(KEY, (1, 2, 3))
    await until_read(requested, lambda left: left == {OTHER: (2, 3)})
    await cluster.brokers[2].set_isr(OTHER, (2, 1, 3))
    await until_read(requested, lambda left: left is None)
    await until_record(one, {0: (1, 3), 1: (2, 3)})


async def test_a_target_that_dies_is_listed_and_the_cancelled_move_undone(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    await three.die()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
    assert await reassign(cluster, {KEY: (1, 3)}) == {KEY: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    await three.live()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2, 3])
    await reassign(cluster, {KEY: (1, 3)})
    await three.die()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
    assert dict(cluster.active.reassignments() or ()) == {KEY: Move((1, 3, 2), (1, 2), (1, 3))}
    assert await reassign(cluster, {KEY: None, OTHER: None}) == {
        KEY: ErrorCode.NONE,
        OTHER: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await until_record(one, {0: (1, 2)})
    assert await reassign(cluster, {KEY: None}) == {KEY: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    state = await one.read_state(KEY)
    assert state is not None
    assert (state.leader, state.isr) == (1, (1, 2))
    await three.live()
    await until(lambda: KEY in three.metadata)
    assert KEY not in three.states
    assert (one.stopped, two.stopped) == ([], [])


async def test_a_cancelled_move_deletes_what_had_come(cluster: ControlledCluster) -> None:
    one, _, three = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    await reassign(cluster, {KEY: (3, 2)})
    await until(lambda: KEY in three.states)
    await reassign(cluster, {KEY: None})
    # The order of those that stayed is that of the cancelled target, as in Kafka.
    await until_record(one, {0: (2, 1)})
    assert three.stopped == [KEY]
    await until(lambda: one.states[KEY].replicas == (2, 1))


async def test_another_target_meanwhile_takes_the_first_ones_replicas_away(
    cluster: ControlledCluster,
) -> None:
    one, _, three, _ = await cluster.start(4)
    await cluster.create({0: (1, 2)})
    await reassign(cluster, {KEY: (1, 3)})
    await until(lambda: KEY in three.states)
    keeper = asyncio.create_task(catch_up(cluster, KEY))
    await reassign(cluster, {KEY: (1, 4)})
    try:
        await until_record(one, {0: (1, 4)})
    finally:
        keeper.cancel()
    assert KEY not in three.states
    state = await one.read_state(KEY)
    assert state is not None
    assert state.isr == (1, 4)


async def test_a_topic_that_moves_gets_no_partitions_and_can_be_deleted(cluster: ControlledCluster) -> None:
    _, _, three = await cluster.start(3)
    await cluster.create({0: (1, 2)})
    await reassign(cluster, {KEY: (1, 3)})
    await until(lambda: KEY in three.states)
    outcomes = await cluster.active.delete_topics([TOPIC], timeout_ms=10_000)
    assert outcomes[TOPIC].error_code == ErrorCode.NONE
    assert all(each.stopped == [KEY] for each in cluster.brokers.values())
    assert dict(cluster.active.reassignments() or ()) == {}


# -- the controller dies at every step -----------------------------------------------------------------------

#: The controller's writes: the record with both sets, the state that announces it, the state with the target
#: alone, the record of the target alone, and the request that is removed.
WRITES = 5


def die_at(broker: ScriptedBroker, number: int, takes_effect: bool) -> asyncio.Event:
    """Let a controller stop for ever at one of its writes, before or after it; returns what is set then."""
    reached = asyncio.Event()
    writes = 0
    really_write = broker.client.multi

    async def write(transaction: Transaction) -> Any:
        nonlocal writes
        writes += 1
        if writes <= number:
            return await really_write(transaction)
        if takes_effect and not reached.is_set():
            await really_write(transaction)
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError("it is dead")

    broker.client.multi = write  # type: ignore[method-assign]  # dies in the middle
    return reached


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(WRITES))
async def test_a_controller_killed_at_any_step_is_succeeded(
    cluster: ControlledCluster, number: int, takes_effect: bool
) -> None:
    one = await cluster.add(4, candidate=True)
    others = [await cluster.add(each) for each in (1, 2, 3)]
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2, 3, 4])
    await cluster.create({0: (1, 2)})
    reached = die_at(one, number, takes_effect)
    keeper = asyncio.create_task(catch_up(cluster, KEY))
    try:
        record = ReassignmentRecord({KEY: (3, 1)})
        await others[0].client.create(paths.REASSIGN_PARTITIONS, record.encode())
        await reached.wait()
        del one.client.multi
        await one.die()
        others[0].compete()
        await until_record(others[0], {0: (3, 1)})
        await until_read(
            lambda: others[0].client.exists(paths.REASSIGN_PARTITIONS), lambda stat: stat is None
        )
        await until(lambda: KEY not in others[1].states)
        state: PartitionStateRecord = await until_state(others[0], lambda state: set(state.isr) == {1, 3})
    finally:
        keeper.cancel()
    assert state.leader == 1
    for each in (0, 2):
        await until(lambda each=each: others[each].states[KEY].replicas == (3, 1))  # type: ignore[misc]
        assert KEY not in others[each].stopped


#: Of a cancellation: the record with the former replicas as the target, the state with them alone, the record
#: of them alone.
CANCELLING_WRITES = 3


@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(CANCELLING_WRITES))
async def test_a_controller_killed_while_it_cancels_is_succeeded(
    cluster: ControlledCluster, number: int, takes_effect: bool
) -> None:
    one = await cluster.add(4, candidate=True)
    others = [await cluster.add(each) for each in (1, 2, 3)]
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2, 3, 4])
    await cluster.create({0: (1, 2), 1: (2, 1)})
    await reassign(cluster, {KEY: (1, 3), OTHER: (2, 3)})
    await until(lambda: KEY in others[2].states and OTHER in others[2].states)
    reached = die_at(one, number, takes_effect)
    cancelling = asyncio.create_task(reassign(cluster, {KEY: None}))
    await reached.wait()
    del one.client.multi
    await one.die()
    cancelling.cancel()
    others[0].compete()
    await until(lambda: others[0].controller is not None and others[0].controller.active)
    # Nothing of the cancellation stands in the quorum before its first write: then the move goes on.
    is_cancelled = number > 0 or takes_effect
    keeper = asyncio.create_task(catch_up(cluster, OTHER, *(() if is_cancelled else (KEY,))))
    try:
        await until_record(others[0], {0: (1, 2) if is_cancelled else (1, 3), 1: (2, 3)})
        await until_state(others[0], lambda state: set(state.isr) == ({1, 2} if is_cancelled else {1, 3}))
    finally:
        keeper.cancel()
    assert (KEY in others[2].states) is not is_cancelled
