"""Control requests by the queues of the brokers, /brokers/state/N (ZKQueue).

What both channels do alike stands in the tests of the controller, which run with either. Here is what only a
queue has: deletion as acknowledgement, entries of former lives and controllers, and brokers whose settings
differ.
Source: docs/internals/requirements.md, [0.A], [0.A.2], [0.E], [0.disc2]; ARCHITECTURE.md, "Life of a
controller".
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from controller.messages.entities import LeaderAndIsrRequest
from controller.wire.codes import ErrorCode
from quorum.client import CreateMode, NoNodeError, ServerError
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    controlled_cluster,
    until,
    until_read,
    until_state,
)
from tests.support.scripted_broker import OPTIONS, TRUST, ScriptedBroker, request_kinds

OTHER = PartitionKey(TOPIC, 1)


@pytest.fixture
async def cluster() -> AsyncIterator[ControlledCluster]:
    async with controlled_cluster("queue") as running:
        yield running


async def entries(reader: ScriptedBroker, broker_id: int) -> dict[str, QueueEntryRecord]:
    """What stands in a queue: {path: entry}, in order."""
    queue = paths.queue_path(broker_id)
    try:
        names = [f"{queue}/{name}" for name in sorted(await reader.client.get_children(queue))]
    except NoNodeError:
        return {}
    nodes = zip(names, await reader.client.read_all(names), strict=True)
    return {
        path: QueueEntryRecord.decode(path, node[0])
        for path, node in nodes
        if not isinstance(node, ServerError)
    }


async def until_quiet(broker: ScriptedBroker) -> None:
    """Wait until a broker has applied all that a new topic is owed."""
    await until(lambda: KEY in broker.metadata)
    await until_read(lambda: entries(broker, broker.broker_id), lambda found: not found)


async def test_a_role_stands_in_the_queue_until_it_is_applied(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3, 1), 1: (2, 1)})
    await until_quiet(three)
    three.answers.clear()
    await two.die()
    await until_read(lambda: entries(one, 3), lambda found: found)
    (path, entry), *others = (await entries(one, 3)).items()
    assert not others
    assert entry.kind is ChangeKind.LEADER_AND_ISR
    assert (entry.generation, entry.controller_epoch) == (three.generation, 1)
    stat = await one.client.exists(path)
    state = await one.client.exists(paths.partition_state_path(KEY))
    assert stat is not None
    assert state is not None
    assert stat.czxid > state.mzxid
    # Not acknowledged before it is applied, and gone then; the states of others are not its concern.
    assert three.leader_of(KEY) == 2
    three.answers.set()
    await until(lambda: three.leader_of(KEY) == 3)
    await until_read(lambda: entries(one, 3), lambda found: not found)
    assert OTHER not in three.states
    assert cluster.active.status().counters.stale_generations == 0


async def test_a_decision_outlives_the_controller_that_dies_before_the_broker_reads_it(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await until_quiet(three)
    three.answers.clear()
    await two.die()
    await until_read(lambda: entries(one, 3), lambda found: found)
    await one.die()
    three.answers.set()
    await until(lambda: three.leader_of(KEY) == 3)
    assert three.controller_epoch == 1
    three.compete()
    await until(lambda: three.controller_epoch == 2)
    assert three.states[KEY].leader_epoch == 1


async def test_a_broker_that_dies_before_it_reads_leaves_nothing_for_its_next_life(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3, 1)})
    await until(lambda: all(KEY in each.metadata for each in (one, two, three)))
    three.answers.clear()
    await two.die()
    await until_state(one, lambda state: state.leader == 3)
    await three.die()
    await until_state(one, lambda state: state.leader == 1)
    # Neither has a queue any more.
    await until_read(
        lambda: one.client.get_children(paths.BROKER_QUEUES), lambda names: sorted(names) == ["1"]
    )
    three.answers.set()
    three.requests.clear()
    await three.live()
    await until(lambda: three.leader_of(KEY) == 1)
    assert request_kinds(three.requests)[0] == "UpdateMetadata"
    assert {each.broker_epoch for each in three.requests if isinstance(each, LeaderAndIsrRequest)} == {
        three.generation
    }


async def test_what_a_bounce_left_unread_is_purged_and_never_applied(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await until(lambda: KEY in one.metadata)
    former = three.generation
    three.answers.clear()
    await two.die()
    await until_state(one, lambda state: state.leader == 3)
    three.requests.clear()
    three.answered.clear()
    await three.bounce()
    three.answers.set()
    await until(lambda: three.leader_of(KEY) == 3)
    await until_read(lambda: entries(one, 3), lambda found: not found)
    assert all(getattr(each, "broker_epoch", None) != former for each in three.requests)
    assert set(three.answered) == {ErrorCode.NONE}


async def test_entries_of_other_lives_and_of_no_meaning_hold_up_nothing(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    queue = f"{paths.queue_path(2)}/"
    stale = QueueEntryRecord(
        ChangeKind.STOP_REPLICA, ControllerEpoch(1), BrokerGeneration(two.generation - 1), b""
    )

    async def write(value: bytes) -> str:
        path, _ = await one.client.create2(queue, value, CreateMode.PERSISTENT_SEQUENTIAL)
        return path

    def sign(value: bytes, broker_id: int = 2) -> bytes:
        return TRUST.sign(paths.queue_path(broker_id), value)

    skipped = await write(sign(stale.encode()))
    empty = dataclasses.replace(stale, generation=two.generation)
    # No JSON, no entry, cut short, signed by nobody, signed for another broker's queue.
    gone = [await write(each) for each in (b"{", sign(b"{}"), sign(empty.encode()))]
    gone += [await write(each) for each in (empty.encode(), sign(empty.encode(), 1))]
    await cluster.create({0: (2, 1)})
    assert two.leader_of(KEY) == 2
    await until_read(lambda: one.client.get_children(queue[:-1]), lambda names: len(names) == 1)
    assert [await one.client.exists(path) for path in gone] == [None] * len(gone)
    assert await one.client.exists(skipped) is not None


async def test_a_queue_that_somebody_removed_costs_an_election_and_no_decision(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await until(lambda: KEY in three.metadata)
    await until_read(lambda: entries(one, 3), lambda found: not found)
    await one.client.delete(paths.queue_path(3))
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    assert cluster.active.controller_epoch == 2


@pytest.mark.parametrize("before", ["direct", "queue"])
async def test_the_channel_of_the_elected_broker_counts(cluster: ControlledCluster, before: str) -> None:
    after = "queue" if before == "direct" else "direct"
    cluster.options = dataclasses.replace(OPTIONS, channel=before)
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    three.compete(dataclasses.replace(OPTIONS, channel=after))
    await one.die()
    await until(lambda: three.controller_epoch == 2)
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    wanted = ["3"] if after == "queue" else []
    await until_read(lambda: three.client.get_children(paths.BROKER_QUEUES), lambda names: names == wanted)


async def test_a_broker_that_does_not_read_its_queue_is_asked_directly(cluster: ControlledCluster) -> None:
    one = await cluster.add(1, candidate=True)
    two = ScriptedBroker(cluster.hosts, 2, options=cluster.options)
    two.reads_queue = False
    cluster.brokers[2] = await two.start()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
    await cluster.create({0: (2, 1)})
    await until(lambda: (one.leader_of(KEY), two.leader_of(KEY)) == (2, 2))
    assert await one.client.get_children(paths.BROKER_QUEUES) == ["1"]


async def test_an_entry_that_no_event_told_of_is_read_after_the_next_connection(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    async with three.deaf():
        await two.die()
        await until_read(lambda: entries(one, 3), lambda found: found)
        await three.client.sync()
        assert three.leader_of(KEY) == 2
    await until(lambda: three.leader_of(KEY) == 3)
