"""Groups in a real quorum: what a coordinator writes, what a deposed one does not, and lost replies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.core.cluster_view import ClusterView
from broker.core.groups import machine
from broker.core.groups.model import GroupOptions
from broker.core.groups.writing import StoredGroup
from broker.groups import term as term_module
from broker.groups.term import GroupsTerm
from controller.election.plans import COORDINATOR_OFFICE, HeldBy, Won
from controller.election.store import elect, ensure_base_paths, register_broker, resign
from quorum.client import Client, ConnectionLossError, NoNodeError, OperationResult, Transaction
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.group_records import ClassicGroupRecord, MemberRecord, OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord
from quorum.platform.wall_clock import PARTED_MS_MAX, WallClock
from tests.support.no_transactions import NO_TRANSACTIONS
from tests.support.stored_groups import FencedOutError, GivenUpError, GroupWriter
from tests.support.trust import TRUST

GROUP = "a/b ü.%"
KEY, OTHER = PartitionKey("t", 0), PartitionKey("u", 7)


def record(generation_id: int) -> ClassicGroupRecord:
    member = MemberRecord("m", None, "c", "/h", 10_000, 20_000, (("range", b"\x00\xff"),), b"\x01")
    generation = GenerationId(generation_id)
    return ClassicGroupRecord(generation, "consumer", "range", "m", True, 5, (member,))


def offset(number: int) -> OffsetRecord:
    return OffsetRecord(number, 3, "meta", 1_700_000_000_000)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ensemble(1) as quorum, Client(quorum.hosts) as made:
        await ensure_base_paths(made)
        yield made


async def become_coordinator(client: Client, broker_id: int = 1) -> GroupWriter:
    outcome = await elect(client, COORDINATOR_OFFICE, broker_id, 0, TRUST)
    assert isinstance(outcome, Won)
    return GroupWriter(client, outcome.mandate)


async def loaded(store: GroupWriter, group: str = GROUP) -> StoredGroup:
    found, problems = await store.load()
    assert not problems
    return found[group]


async def test_a_group_and_its_offsets_come_back_as_written(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {KEY: offset(5)})
    await store.write(stored, None, {KEY: offset(6), OTHER: offset(1)})
    await store.write(stored, record(2), {OTHER: None})
    found = await loaded(store)
    assert (found.record, found.offsets) == (record(2), {KEY: offset(6)})
    assert (found.version, found.nodes) == (stored.version, stored.nodes)


async def test_a_group_that_is_deleted_leaves_nothing(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {PartitionKey("t", each): offset(each) for each in range(1_500)})
    await store.delete(stored)
    assert await client.get_children(paths.GROUPS) == []


async def test_a_deposed_coordinator_writes_nothing(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {KEY: offset(5)})
    outcome = await elect(client, COORDINATOR_OFFICE, 1, 0, TRUST)
    assert isinstance(outcome, Won)
    await resign(client, COORDINATOR_OFFICE, outcome.mandate)
    successor = await become_coordinator(client)
    for write in (
        store.write(stored, record(9), {}),
        store.write(stored, None, {KEY: offset(1)}),
        store.delete(stored),
    ):
        with pytest.raises(FencedOutError):
            await write
    found = await loaded(successor)
    assert (found.record, found.offsets) == (record(1), {KEY: offset(5)})


async def test_another_broker_waits_while_the_coordinator_lives(client: Client) -> None:
    await become_coordinator(client)
    registration = BrokerRecord("h", 1, (), {}, 0, incarnation="0" * 32)
    await register_broker(client, 1, registration, TRUST)
    assert await elect(client, COORDINATOR_OFFICE, 2, 0, TRUST) == HeldBy(1)


async def test_a_foreign_hand_on_the_znode_is_noticed(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {KEY: offset(5)})
    await client.set(paths.group_path(GROUP), record(7).encode())
    for part in (record(2), None):
        with pytest.raises(GivenUpError, match="has changed"):
            await store.write(stored, part, {KEY: offset(6)})
    assert (await loaded(store)).offsets == {KEY: offset(5)}


async def test_offsets_that_a_foreign_hand_removed_are_written_again(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {KEY: offset(5)})
    await client.delete(paths.group_offset_path(GROUP, KEY))
    await client.delete(paths.group_topic_path(GROUP, KEY.topic))
    await store.write(stored, None, {KEY: offset(6)})
    assert (await loaded(store)).offsets == {KEY: offset(6)}


async def test_a_malformed_group_is_left_alone(client: Client) -> None:
    store = await become_coordinator(client)
    await store.write(StoredGroup("good"), record(1), {})
    await client.create(paths.group_path("bad"), b"no json")
    await client.create(f"{paths.GROUPS}/%zz", b"")
    found, problems = await store.load()
    assert set(found) == {"good"}
    assert set(problems) == {"bad", "%zz"}
    assert paths.group_path("bad") in problems["bad"]


class LossyClient:
    """A client whose next multi loses its reply, after or before it has taken effect."""

    def __init__(self, client: Client, *, after: bool) -> None:
        self._client = client
        self._after = after
        self.losses = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        if not self.losses:
            return await self._client.multi(transaction)
        self.losses -= 1
        if self._after:
            await self._client.multi(transaction)
        raise ConnectionLossError("multi", "a test", sent=True)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("part", ["new", "record", "offsets"])
async def test_a_lost_reply_is_looked_up(client: Client, after: bool, part: str) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    if part != "new":
        await store.write(stored, record(1), {KEY: offset(5)})
    lossy: Any = LossyClient(client, after=after)
    again = GroupWriter(lossy, store.mandate)
    await again.write(stored, None if part == "offsets" else record(2), {OTHER: offset(8)})
    assert lossy.losses == 0
    await store.write(stored, None, {KEY: offset(6)})
    found = await loaded(store)
    assert found.record == (record(1) if part == "offsets" else record(2))
    assert found.offsets == {KEY: offset(6), OTHER: offset(8)}


async def test_the_deletion_of_a_group_may_lose_its_reply(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    await store.write(stored, record(1), {})
    lossy: Any = LossyClient(client, after=True)
    await GroupWriter(lossy, store.mandate).delete(stored)
    with pytest.raises(NoNodeError):
        await client.get(paths.group_path(GROUP))


@pytest.mark.parametrize(("members", "set_ms"), [(True, 0), (False, 0), (False, 2 * PARTED_MS_MAX)])
async def test_offsets_of_a_group_that_was_empty_for_long_are_removed(
    client: Client, members: bool, set_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the time of day was set since the start: then nothing goes for its age."""
    passed_ms = itertools.chain([0], itertools.repeat(set_ms))
    monkeypatch.setattr(term_module, "CLOCK", WallClock(lambda: next(passed_ms), lambda: 0))
    monkeypatch.setattr(machine, "SWEEP_MS", 0)
    store = await become_coordinator(client)
    empty = ClassicGroupRecord(GenerationId(2), "consumer", None, None, False, 5)
    await store.write(StoredGroup(GROUP), record(1) if members else empty, {KEY: offset(5)})
    await client.create(paths.topic_path(KEY.topic), b"{}")
    term = GroupsTerm(
        client, store.mandate, GroupOptions(offsets_retention_ms=1), ClusterView(), NO_TRANSACTIONS
    )
    run = asyncio.ensure_future(term.run())
    await term.ready()
    for _ in range(3):
        await term._ticked.wait()
    while term._tasks.running:
        await asyncio.gather(*term._tasks.running)
    assert (await client.get_children(paths.GROUPS) == []) is (not members and not set_ms)
    term.end("the test is over")
    assert await run == "the test is over"


async def test_a_commit_is_cut_by_bytes(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup(GROUP)
    written = {
        PartitionKey("t" * 249, each): OffsetRecord(each, 3, text, 5)
        for each, text in enumerate(["x" * 4_000] * 300 + ["\x01" * 4_000] * 100)
    }
    member = MemberRecord("m", None, "c", "/h", 1, 1, (("range", bytes(560 * 1024)),))
    large = ClassicGroupRecord(GenerationId(1), "consumer", "range", "m", True, 5, (member,))
    await store.write(stored, large, written)
    await store.write(stored, None, written)
    found = await loaded(store)
    assert (found.record, found.offsets) == (large, written)


async def test_a_group_with_many_long_topics_is_deleted(client: Client) -> None:
    store = await become_coordinator(client)
    stored = StoredGroup("ü" * 500)
    topics = [f"{each:05}-{'t' * 243}" for each in range(300)]
    await store.write(stored, record(1), {PartitionKey(topic, 0): offset(1) for topic in topics})
    lossy: Any = LossyClient(client, after=True)
    await GroupWriter(lossy, store.mandate).delete(stored)
    assert await client.get_children(paths.GROUPS) == []
