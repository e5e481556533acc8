"""What fences a former controller, and what leads to a new election.

Each test runs an embedded quorum of one node; scripted brokers and the candidates share the test's event
loop. Each of them fails when the fence it is about is taken out.
"""

from __future__ import annotations

import asyncio

import pytest

from controller.core.effects import ReadChildren, Write
from controller.core.inputs import ChildrenRead, MultiDone, ReadFailed
from controller.core.requests import NewTopic
from controller.election import store
from controller.election.fenced import fenced_multi
from controller.election.plans import Mandate
from controller.messages.entities import ControlRequest
from controller.runtime import carrying
from controller.runtime.controller import Controller
from controller.runtime.shell import Shell
from controller.wire.codes import ErrorCode
from quorum.client import Client, Transaction
from quorum.client.watches import WatchCause
from quorum.metadata import paths
from quorum.metadata.errors import ControllerFencedError
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    ControllerRecord,
    PartitionStateRecord,
    TopicRecord,
    decode_controller_epoch,
)
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    both_channels,
    cluster,
    term_of,
    until,
    until_read,
    until_state,
)
from tests.support.scripted_broker import ScriptedBroker
from tests.support.written_states import create_topic, write_states

__all__ = ["cluster"]


async def epoch_on_record(broker: ScriptedBroker) -> int:
    data, _ = await broker.client.get(paths.CONTROLLER_EPOCH)
    return decode_controller_epoch(data)


def watched(client: Client) -> set[str]:
    """Paths of the standing watches of a client, beside that of its broker's own queue."""
    armed = client._watches._armed
    return {*armed[WatchCause.PERSISTENT], *armed[WatchCause.RECURSIVE]} - {paths.queue_path(1)}


async def depose(cluster: ControlledCluster, successor: ScriptedBroker) -> None:
    """Have another candidate elected."""
    successor.compete()
    await successor.client.delete(paths.CONTROLLER)
    controller = successor.controller
    assert controller is not None
    await until(lambda: controller.active and len(controller.status().brokers) == len(cluster.brokers))


# -- a former controller changes nothing ---------------------------------------------------------------------


async def test_the_states_and_topics_of_a_deposed_controller_are_not_written(
    cluster: ControlledCluster,
) -> None:
    one, two, _ = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    assert one.controller is not None
    former = mandate_of(one.controller)
    await one.controller.stop()
    await depose_by_vacancy(two)
    before = await until_state(two, lambda state: state.leader == 2)
    found = (await store.read_partition_states(two.client, [KEY]))[KEY]
    assert found is not None
    # The version fits and the session lives: only the epoch can refuse it.
    wish = PartitionStateRecord(ControllerEpoch(1), 3, LeaderEpoch(9), (3,))
    with pytest.raises(ControllerFencedError):
        await write_states(one.client, former, {KEY: (wish, found[1])})
    with pytest.raises(ControllerFencedError):
        await write_states(one.client, former, creations={PartitionKey(TOPIC, 1): wish})
    await is_fenced(one, former)
    assert await two.read_state(KEY) == before
    assert await two.client.get_children(paths.BROKER_TOPICS) == [TOPIC]
    assert await two.client.get_children(paths.DELETE_TOPICS) == []


def mandate_of(controller: Controller) -> Mandate[ControllerEpoch]:
    mandate = controller._candidate.mandate
    assert mandate is not None
    return mandate


async def is_fenced(broker: ScriptedBroker, mandate: Mandate[ControllerEpoch]) -> None:
    """See that any other write in the name of a mandate is refused."""
    request = Transaction().create(paths.delete_topic_path(TOPIC), b"")
    with pytest.raises(ControllerFencedError):
        await fenced_multi(broker.client, mandate, request)


async def depose_by_vacancy(successor: ScriptedBroker) -> None:
    controller = successor.compete()
    await until(lambda: controller.active)


@both_channels
async def test_a_controller_paused_between_reading_and_writing_wakes_up_to_nothing(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (3, 2)})
    former = term_of(cluster.active)
    paused, goes_on = asyncio.Event(), asyncio.Event()
    write = Shell.write

    async def pause(shell: Shell, effect: Write) -> MultiDone:
        if shell is former:
            paused.set()
            await goes_on.wait()
        return await write(shell, effect)

    monkeypatch.setattr(Shell, "write", pause)
    await create_topic(two.client, "late", TopicRecord(None, {0: (3, 2)}))
    async with asyncio.timeout(20):
        await paused.wait()
    # It cannot see that it is deposed: its loop is where it was.
    await two.client.delete(paths.CONTROLLER)
    controller = two.compete()
    await until(lambda: controller.active and controller.controller_epoch == 2)
    await until(lambda: three.controller_epoch == 2)
    requests = len([each for each in three.requests if epoch_in(each) == 1])
    goes_on.set()
    await until(lambda: one.controller is not None and not one.controller.active)
    assert one.controller is not None
    await until(lambda: one.controller is not None and one.controller.status().controller_id == 2)
    assert len([each for each in three.requests if epoch_in(each) == 1]) == requests
    await until_read(lambda: epoch_on_record(two), lambda epoch: epoch == 2)


def epoch_in(request: ControlRequest) -> int:
    epoch = getattr(request, "controller_epoch", None)
    assert isinstance(epoch, int)
    return epoch


async def test_a_broker_that_knows_a_later_controller_makes_this_one_resign(
    cluster: ControlledCluster,
) -> None:
    _, two = await cluster.start(2)
    await cluster.create({0: (2, 1)})
    refused: list[ControlRequest] = []

    def refuse_the_first_term(request: ControlRequest) -> ErrorCode | None:
        if epoch_in(request) > 1:
            return None
        refused.append(request)
        return ErrorCode.STALE_CONTROLLER_EPOCH

    two.script = refuse_the_first_term
    await two.set_isr(KEY, (2,))
    # Nobody had deposed it: it is elected again, with an epoch that the broker accepts.
    await until(lambda: cluster.active.controller_epoch == 2)
    await until(lambda: two.metadata[KEY].isr == (2,))
    assert len(refused) == 1


async def test_what_clients_asked_of_a_deposed_controller_is_answered(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two = await cluster.start(2)
    controller = cluster.active
    goes_on = asyncio.Event()
    read_children = carrying.read_children

    async def pause(client: Client, effect: ReadChildren) -> ChildrenRead | ReadFailed:
        await goes_on.wait()
        return await read_children(client, effect)

    monkeypatch.setattr(carrying, "read_children", pause)
    await two.die()
    asked = asyncio.create_task(
        controller.create_topics([NewTopic(TOPIC)], timeout_ms=20_000, validate_only=False)
    )
    await until(lambda: term_of(controller).machine._passes.requests)
    term_of(controller).end("test")
    goes_on.set()
    outcomes = await asked
    assert outcomes[TOPIC].error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.NONE)


# -- /controller ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        ControllerRecord(2, 0).encode(),
        ControllerRecord(1, 0).encode(),
        ControllerRecord(-1, 0).encode(),
        b"{",
    ],
    ids=["deleted", "a live broker", "the controller itself", "nobody", "malformed"],
)
async def test_a_touched_controller_node_leads_to_a_new_election(
    cluster: ControlledCluster, value: bytes | None
) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    two.compete()
    former = cluster.active
    if value is None:
        await two.client.delete(paths.CONTROLLER)
    else:
        await two.client.set(paths.CONTROLLER, value)
    await until(lambda: cluster.active.controller_epoch == 2)
    assert await epoch_on_record(two) == 2
    await until(lambda: two.controller_epoch == 2)
    await until(lambda: former.controller_epoch != 1)
    assert one.controller is former


async def test_the_former_controllers_watches_are_gone(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    assert watched(one.client) == {
        *(paths.BROKER_TOPICS, paths.BROKER_IDS, paths.DELETE_TOPICS, "/config"),
        *(paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION),
    }
    await depose(cluster, two)
    await until(lambda: one.controller is not None and one.controller.status().controller_id == 2)
    assert watched(one.client) == set()
    assert paths.BROKER_TOPICS in watched(two.client)


@both_channels
async def test_a_dead_controller_is_followed_by_another(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    two.compete()
    await until(lambda: two.controller is not None and two.controller.status().controller_id == 1)
    await one.die()
    await until(lambda: cluster.active.status().controller_id == 2)
    assert cluster.active.controller_epoch == 2


async def test_a_controller_that_stops_leaves_the_office_at_once(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    two.compete()
    await until(lambda: two.controller is not None and two.controller.status().controller_id == 1)
    assert one.controller is not None
    await one.controller.stop()
    await until(lambda: two.controller is not None and two.controller.active)
    # It is still a broker.
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])


# -- /controller_epoch ---------------------------------------------------------------------------------------


async def test_a_missing_epoch_goes_on_from_the_highest_in_the_states(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    await two.client.delete(paths.CONTROLLER)
    await until(lambda: cluster.active.controller_epoch == 2)
    await cluster.create({0: (2,)}, "second")
    assert one.controller is not None
    former = mandate_of(one.controller)
    await one.controller.stop()
    await two.client.delete(paths.CONTROLLER_EPOCH)
    two.compete()
    await until(lambda: cluster.active.controller_epoch == 3)
    assert await epoch_on_record(two) == 3
    await is_fenced(one, former)


async def test_an_epoch_node_that_was_made_again_lets_no_former_mandate_in(
    cluster: ControlledCluster,
) -> None:
    one, two = await cluster.start(2)
    await two.client.delete(paths.CONTROLLER_EPOCH)
    await store.ensure_controller_epoch(one.client, ControllerEpoch(5))
    assert await epoch_on_record(two) == 5
    await two.client.delete(paths.CONTROLLER)
    await until(lambda: cluster.active.controller_epoch == 6)
    # The fence of a former controller is a version of the node before; a new node counts from 0.
    for epoch in range(6):
        await is_fenced(one, Mandate(1, ControllerEpoch(epoch), epoch))


async def test_a_controller_whose_epoch_node_goes_is_elected_again(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    await two.client.delete(paths.CONTROLLER_EPOCH)
    # The next write meets the fence; nothing of it takes effect before the new term.
    await create_topic(two.client, "late", TopicRecord(None, {0: (1,)}))
    await until(lambda: cluster.active.controller_epoch == 2)
    await until(lambda: len(one.states) == 1)
    assert next(iter(one.states.values())).controller_epoch == 2


async def test_a_malformed_epoch_stops_elections_until_it_is_corrected(cluster: ControlledCluster) -> None:
    (one,) = await cluster.start(1)
    controller = one.controller
    assert controller is not None
    await one.client.set(paths.CONTROLLER_EPOCH, b"many")
    await one.client.delete(paths.CONTROLLER)
    await until(lambda: not controller.active)
    await one.client.set(paths.CONTROLLER_EPOCH, b"8")
    await until(lambda: controller.controller_epoch == 9)
