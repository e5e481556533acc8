"""An error of the quorum ends the request that met it, or the term; never the candidate or the broker.

A client raises each error that calls can meet, at one call after the other of an election and of requests.
After each of them the candidate still runs, unless its session is over, and the next request is served.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.core.cluster_view import ClusterView
from broker.core.groups.inputs import CommitOffsets, DeleteGroup
from broker.core.groups.model import GroupOptions
from broker.groups.coordinator import Coordinator, coordinator_of
from broker.groups.errors import GroupRefusedError, NotCoordinatorError
from broker.groups.term import GroupsTerm
from controller.core.requests import NewPartitions, NewTopic
from controller.election.store import ensure_base_paths, register_broker
from controller.runtime.controller import Controller
from controller.wire.codes import ErrorCode
from quorum.client import AccessEntry, Client, NoNodeError
from quorum.client.errors import server_error
from quorum.errors import CODE_NUMBERS, QuorateError
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    RECOVERED,
    BrokerRecord,
    IncarnationRecord,
    LogEnd,
    TopicRecord,
    topic_label,
)
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    cluster,
    term_of,
    until,
    until_read,
    until_state,
)
from tests.support.failing_client import ERRORS, FailingClient
from tests.support.no_transactions import NO_TRANSACTIONS
from tests.support.trust import TRUST

__all__ = ["cluster"]

DEADLINE_S = 20.0
TIMEOUT_MS = 3_000
#: An error meets each call of this number, and the next error begins one call later.
STRIDE = 11
#: An election alone, and what begins a term.
CALLS_MIN = 12
CASES = {name: (error, number % STRIDE) for number, (name, error) in enumerate(ERRORS.items())}

each_error = pytest.mark.parametrize(("error", "first"), CASES.values(), ids=CASES)


async def fail_at_every_call(
    failing: FailingClient,
    error: QuorateError,
    first: int,
    scenario: Callable[[], Awaitable[None]],
    judge: Callable[[], Awaitable[None]],
) -> None:
    """Run a scenario again and again, each time with an error at a later call, until it is through before."""
    async with asyncio.timeout(4 * DEADLINE_S):
        for left in itertools.count(first, STRIDE):
            failing.arm(error, left)
            await scenario()
            is_through = failing.is_armed
            failing.arm(None)
            await judge()
            if is_through:
                assert left > CALLS_MIN
                return


@each_error
async def test_an_error_of_the_quorum_ends_no_controller(
    cluster: ControlledCluster, error: QuorateError, first: int
) -> None:
    one = await cluster.add(1)
    failing = FailingClient(one.client)
    names = (f"t-{number}" for number in itertools.count())

    def candidate() -> Controller:
        """The candidate; a new one where an error said that its session is over."""
        if one.running is None or one.controller is None or one.running.done():
            assert one.running is None or isinstance(error, SESSION_OVER), one.running.exception()
            return one.compete(client=failing.as_client)
        return one.controller

    async def create() -> ErrorCode:
        topic = NewTopic(next(names), 1, 1)
        found = await candidate().create_topics([topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        await asyncio.sleep(0)
        return found[topic.name].error_code

    async def scenario() -> None:
        former = candidate().controller_epoch
        await vacate(one.client, paths.CONTROLLER)
        while failing.is_armed and candidate().controller_epoch in (None, former):
            await one.client.sync()
        controller = candidate()
        topic = NewTopic(next(names), 1, 1)
        more = NewPartitions(topic.name, 2)
        key = PartitionKey(topic.name, 0)
        await controller.create_topics([topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        await controller.create_partitions([more], timeout_ms=TIMEOUT_MS, validate_only=False)
        await controller.elect_leaders([key], unclean=True, timeout_ms=TIMEOUT_MS)
        await controller.reassign({key: (1,)}, timeout_ms=TIMEOUT_MS)
        await controller.delete_topics([topic.name], timeout_ms=TIMEOUT_MS)

    async def judge() -> None:
        while await create() != ErrorCode.NONE:
            pass

    await fail_at_every_call(failing, error, first, scenario, judge)


async def test_a_state_that_may_not_be_written_holds_up_no_other_topic(cluster: ControlledCluster) -> None:
    one, two, _ = await cluster.start(3)
    for topic in ("closed", "open"):
        await cluster.create({0: (2, 3)}, topic)
    state = paths.partition_state_path(PartitionKey("closed", 0))
    await one.client.set_acl(state, [AccessEntry(1 + 16, "world", "anyone")])
    await two.die()
    await until_state(one, lambda state: state.leader == 3, PartitionKey("open", 0))
    await until(lambda: "closed" in term_of(cluster.active).machine.model.left_alone)
    found = await cluster.active.create_topics(
        [NewTopic("next", 1, 2)], timeout_ms=TIMEOUT_MS, validate_only=False
    )
    assert found["next"].error_code == ErrorCode.NONE
    assert cluster.active.controller_epoch == 1


async def break_topic(client: Client) -> Callable[[], Awaitable[object]]:
    path = paths.topic_path(TOPIC)
    return await broken(client, path)


async def break_state(client: Client) -> Callable[[], Awaitable[object]]:
    return await broken(client, paths.partition_state_path(KEY))


async def broken(client: Client, path: str) -> Callable[[], Awaitable[object]]:
    good, _ = await client.get(path)
    await client.set(path, b"[]")
    return lambda: client.set(path, good)


async def close_state(client: Client) -> Callable[[], Awaitable[object]]:
    """Let nobody write a state."""
    state = paths.partition_state_path(KEY)
    good, _ = await client.get(state)
    await client.set_acl(state, [AccessEntry(1 + 16, "world", "anyone")])

    async def mend() -> None:
        await client.set_acl(state, [AccessEntry(31, "world", "anyone")])
        await client.set(state, good)

    return mend


@pytest.mark.parametrize("is_replaced", [False, True], ids=["controller stays", "controller goes"])
@pytest.mark.parametrize("is_emptied", [False, True], ids=["shortened", "emptied"])
@pytest.mark.parametrize("leave_alone", [break_topic, break_state, close_state])
async def test_a_topic_that_was_left_alone_is_judged_when_it_is_mended(
    cluster: ControlledCluster,
    leave_alone: Callable[[Client], Awaitable[Callable[[], Awaitable[object]]]],
    is_emptied: bool,
    is_replaced: bool,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (2,)})
    whole = PartitionKey(TOPIC, 1)
    topic, _ = await one.client.get(paths.topic_path(TOPIC))
    label = topic_label(TOPIC, TopicRecord.decode(TOPIC, topic).topic_id)
    mend = await leave_alone(one.client)
    await two.die()
    two.shortened = {} if is_emptied else {label: {0: LogEnd(0, 5)}}
    await two.live(incarnation="e" * 32 if is_emptied else None)
    await until(lambda: cluster.active.status().brokers.get(2) == two.generation)
    await until(lambda: list(cluster.active.status().left_alone) == [TOPIC])
    await until(lambda: 2 in three.live_brokers)
    # Whatever the states say, it leads nothing there.
    assert two.states == {}
    await three.die()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
    if is_replaced:
        await cluster.active.stop()
        one.compete()
        await until(lambda: sorted(cluster.active.status().brokers) == [1, 2])
        assert two.states == {}
    await mend()
    state = await until_state(one, lambda state: state.isr == (3,))
    assert (state.leader, state.shortened) == (-1, {} if is_emptied else {2: (0, 5)})
    # What is whole is led again.
    await until(lambda: two.leader_of(whole) == (-1 if is_emptied else 2))
    await three.live()
    await until(lambda: two.leader_of(KEY) == 3)
    await until_read(two.incarnation_on_record, lambda value: not IncarnationRecord.decode(2, value).topics)
    # That was once: its leader takes it in again.
    await three.set_isr(KEY, (3, 2))
    await three.die()
    state = await until_state(one, lambda state: state.leader == 2)
    assert state.leader_recovery_state == RECOVERED


async def vacate(client: Client, office: str) -> None:
    try:
        await client.delete(office)
    except NoNodeError:
        return


@pytest.fixture
async def hosts() -> AsyncIterator[str]:
    async with ensemble(1) as quorum:
        yield quorum.hosts


@pytest.fixture
async def client(hosts: str) -> AsyncIterator[Client]:
    async with Client(hosts) as made:
        await ensure_base_paths(made)
        yield made


async def ready_term(coordinator: Coordinator) -> GroupsTerm:
    """The running term, once its groups are loaded."""
    if coordinator.term is None:
        raise NotCoordinatorError
    await coordinator.term.ready()
    return coordinator.term


@each_error
async def test_an_error_of_the_quorum_ends_no_coordinator(
    client: Client, error: QuorateError, first: int
) -> None:
    failing = FailingClient(client)
    coordinator: Coordinator | None = None
    running: asyncio.Task[None] | None = None
    # A group that could not be read is left alone by its coordinator.
    names = (f"next-{number}" for number in itertools.count())

    def candidate() -> Coordinator:
        """The candidate; a new one where an error said that its session is over."""
        nonlocal coordinator, running
        if coordinator is None or running is None or running.done():
            assert running is None or isinstance(error, SESSION_OVER), running.exception()
            coordinator = coordinator_of(
                failing.as_client, 1, GroupOptions(), ClusterView(), TRUST, NO_TRANSACTIONS
            )
            running = asyncio.create_task(coordinator.run())
        return coordinator

    async def commit(group_id: str) -> ErrorCode:
        await asyncio.sleep(0)
        offsets = {PartitionKey("t", 0): OffsetRecord(1, -1, "", 0)}
        try:
            term = await ready_term(candidate())
            request = CommitOffsets(group_id, "", None, GenerationId(-1), offsets)
            return await term.ask(request, ErrorCode)
        except GroupRefusedError as refusal:
            return refusal.error_code

    async def scenario() -> None:
        former = candidate().mandate
        await vacate(client, paths.COORDINATOR)
        while failing.is_armed and candidate().mandate in (None, former):
            await client.sync()
        await commit("g")
        try:
            await (await ready_term(candidate())).ask(DeleteGroup("g"), ErrorCode)
        except GroupRefusedError:
            return

    async def judge() -> None:
        group_id = next(names)
        while await commit(group_id) != ErrorCode.NONE:
            pass

    await fail_at_every_call(failing, error, first, scenario, judge)
    await candidate().stop()


async def test_a_coordinator_that_cannot_load_lets_another_one_try(client: Client, hosts: str) -> None:
    class CannotList(FailingClient):
        async def get_children(self, path: str) -> list[str]:
            raise server_error(CODE_NUMBERS["QUOTAEXCEEDED"], path)

    def registration(number: int) -> BrokerRecord:
        return BrokerRecord("h", number, (), {}, 0, incarnation=str(number) * 32)

    await register_broker(client, 1, registration(1), TRUST)
    first = coordinator_of(
        CannotList(client).as_client, 1, GroupOptions(), ClusterView(), TRUST, NO_TRANSACTIONS
    )
    running = [asyncio.create_task(first.run())]
    while await client.exists(paths.COORDINATOR) is None:
        pass
    async with Client(hosts) as other, asyncio.timeout(DEADLINE_S):
        await register_broker(other, 2, registration(2), TRUST)
        second = _coordinator(other, 2)
        running.append(asyncio.create_task(second.run()))
        while second.mandate is None:
            await other.sync()
        assert (await ready_term(second)).machine.status().left_alone == ()
        assert not running[0].done()
        await second.stop()
    await first.stop()


def _coordinator(client: Client, broker_id: int) -> Coordinator:
    return coordinator_of(client, broker_id, GroupOptions(), ClusterView(), TRUST, NO_TRANSACTIONS)
