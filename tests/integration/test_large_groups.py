"""Groups larger than one request of the quorum: their chunks, crashes between them, and a whole cluster."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.core.groups.writing import CHUNK_BYTES, StoredGroup
from broker.local import BlockingBrokers, brokers_in_thread
from broker.wire.codec import encode_request
from controller.election.plans import COORDINATOR_OFFICE, Won
from controller.election.store import elect, ensure_base_paths, resign
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.client import (
    Client,
    ClientClosedError,
    ConnectionLossError,
    MultiFailedError,
    OperationResult,
    Transaction,
)
from quorum.errors import QuorateError
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.group_records import ClassicGroupRecord, MemberRecord, OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from tests.support.broker_wire import BrokerLink
from tests.support.embedded_brokers import zookeeper
from tests.support.failing_client import FailingClient
from tests.support.nodes import eventually
from tests.support.stored_groups import FencedOutError, GivenUpError, GroupWriter
from tests.support.trust import TRUST

__all__ = ["zookeeper"]

WAIT_S = 30.0
GROUP = "a/b ü.%"
KEY = PartitionKey("t", 0)
RETRIES_MAX = 2


def record(generation_id: int, size_bytes: int) -> ClassicGroupRecord:
    """A group with one member that takes so many bytes, roughly."""
    metadata = bytes([generation_id]) * (size_bytes * 3 // 4)
    member = MemberRecord("m", None, "c", "/h", 10_000, 20_000, (("range", metadata),), b"\x01")
    return ClassicGroupRecord(GenerationId(generation_id), "consumer", "range", "m", True, 5, (member,))


SMALL, SMALLER = record(1, 100), record(2, 200)
LARGE, LARGER = record(3, 2 * CHUNK_BYTES + 1_000), record(4, 3 * CHUNK_BYTES)
NOT_BEGUN = ClassicGroupRecord(GenerationId(0), None, None, None, False, 0)
OFFSETS = {KEY: OffsetRecord(5, 3, "meta", 1_700_000_000_000)}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ensemble(1) as quorum, Client(quorum.hosts) as made:
        await ensure_base_paths(made)
        yield made
        store = await elected(made)
        for stored in (await store.load())[0].values():
            await store.delete(stored)
        assert await made.get_children(paths.GROUPS) == []


async def elected(client: Client, writer: Any = None) -> GroupWriter:
    """Win an election, after whoever has won one before, and return a store; its calls pass a writer."""
    outcome = await elect(client, COORDINATOR_OFFICE, 1, 0, TRUST)
    assert isinstance(outcome, Won)
    await resign(client, COORDINATOR_OFFICE, outcome.mandate)
    outcome = await elect(client, COORDINATOR_OFFICE, 1, 0, TRUST)
    assert isinstance(outcome, Won)
    return GroupWriter(writer or client, outcome.mandate, RETRIES_MAX)


async def loaded(client: Client) -> StoredGroup | None:
    """Return the group as a new coordinator finds it; its chunks are those that it names and no others."""
    store = await elected(client)
    found, problems = await store.load()
    assert not problems
    stored = found.get(GROUP)
    if stored is not None:
        assert set(stored.chunks) == await chunks(client)
    return stored


async def chunks(client: Client) -> set[str]:
    return set(await client.get_children(paths.group_path(GROUP))) - {"offsets"}


async def write_before(client: Client, before: ClassicGroupRecord | None) -> StoredGroup:
    stored = StoredGroup(GROUP)
    if before is not None:
        await (await elected(client)).write(stored, before, OFFSETS)
    return stored


class Recorder:
    """A client that keeps the multis it was given, and may lose or hold back one of them."""

    def __init__(self, client: Client, lost: int = -1, *, after: bool = True, times: int = 1) -> None:
        self._client = client
        self._lost, self._after, self._times = lost, after, times
        self.multis: list[Transaction] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        self.multis.append(transaction)
        if not 0 <= len(self.multis) - 1 - self._lost < self._times:
            return await self._client.multi(transaction)
        if self._after:
            await self._client.multi(transaction)
        raise ConnectionLossError("multi", "a test", sent=True)


each_change = pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, LARGE),
        (SMALL, LARGE),
        (LARGE, LARGER),
        (LARGER, SMALL),
    ],
    ids=["new", "grows", "large", "shrinks"],
)


@each_change
async def test_a_group_of_any_size_comes_back_as_written(
    client: Client, before: ClassicGroupRecord | None, after: ClassicGroupRecord
) -> None:
    stored = await write_before(client, before)
    await (await elected(client)).write(stored, after, OFFSETS)
    assert await chunks(client) == set(stored.chunks)
    found = await loaded(client)
    assert found == stored
    assert (stored.record, stored.offsets) == (after, OFFSETS)
    assert len(stored.chunks) == -(-len(after.encode()) // CHUNK_BYTES) * (len(after.encode()) > CHUNK_BYTES)


async def test_a_small_group_is_one_znode_and_each_write_one_multi(client: Client) -> None:
    recorder = Recorder(client)
    store = await elected(client, recorder)
    stored = StoredGroup(GROUP)
    await store.write(stored, SMALL, OFFSETS)
    await store.write(stored, SMALLER, OFFSETS)
    assert [len(each) for each in recorder.multis] == [5, 3]
    assert await chunks(client) == set()


@each_change
async def test_a_coordinator_may_die_at_any_step_of_a_write(
    client: Client, before: ClassicGroupRecord | None, after: ClassicGroupRecord
) -> None:
    outcomes: list[object] = []
    for left in itertools.count():
        stored = await write_before(client, before)
        failing = FailingClient(client)
        store = await elected(client, failing)
        failing.arm(ClientClosedError(), left)
        with contextlib.suppress(ClientClosedError):
            await store.write(stored, after, {})
        found = await loaded(client)
        what = None if found is None else found.record
        outcomes.append(what)
        if found is not None and found.record != after:
            assert found.record == (before or NOT_BEGUN)
            assert found.offsets == (OFFSETS if before is not None else {})
            # Whoever comes next goes on from there.
            await (await elected(client)).write(found, after, {})
            assert (await loaded(client)) == found
        if found is not None:
            await (await elected(client)).delete(found)
        if failing.is_armed:
            break
    assert outcomes[0] == before
    assert outcomes[-1] == after
    assert len(outcomes) == 2 + len(after.encode()) // CHUNK_BYTES + (1 if after != SMALL else 0) + (
        1 if before is None else 0
    )


@each_change
@pytest.mark.parametrize("took_effect", [True, False])
async def test_any_reply_of_a_write_may_be_lost(
    client: Client, took_effect: bool, before: ClassicGroupRecord | None, after: ClassicGroupRecord
) -> None:
    for lost in itertools.count():
        stored = await write_before(client, before)
        recorder = Recorder(client, lost, after=took_effect)
        store = await elected(client, recorder)
        await store.write(stored, after, {KEY: None})
        found = await loaded(client)
        assert found is not None
        assert (found.record, found.offsets, found.version) == (after, {}, stored.version)
        await (await elected(client)).delete(found)
        if lost >= len(recorder.multis):
            break


async def test_a_deposed_coordinator_leaves_nothing(client: Client) -> None:
    """Whenever another one is elected, and whatever it has written by then."""
    for step in range(4):
        stored = await write_before(client, LARGE)
        recorder = Recorder(client)
        store = await elected(client, recorder)
        successor: list[StoredGroup | None] = []
        send = recorder.multi

        async def multi(
            transaction: Transaction,
            step: int = step,
            recorder: Recorder = recorder,
            successor: list[StoredGroup | None] = successor,
            send: Any = send,
        ) -> list[OperationResult]:
            if len(recorder.multis) == step:
                successor.append(await loaded(client))
            found: list[OperationResult] = await send(transaction)
            return found

        recorder.multi = multi  # type: ignore[method-assign]
        with pytest.raises(FencedOutError):
            await store.write(stored, LARGER, {})
        (held,) = successor
        assert held is not None and held.record == LARGE
        assert await loaded(client) == held
        await (await elected(client)).delete(held)


async def test_an_attempt_that_comes_late_changes_nothing(client: Client) -> None:
    """Its chunks were removed meanwhile: a record that names them would be lost."""
    stored = await write_before(client, SMALL)
    held_back = Recorder(client, 4, after=False, times=1 + RETRIES_MAX)
    store = await elected(client, held_back)
    with pytest.raises(GivenUpError, match="no outcome"):
        await store.write(stored, LARGER, {})
    late = held_back.multis[-1]
    assert len(await chunks(client)) == 4
    found = await store.load_group(GROUP)
    assert found is not None and found.record == SMALL
    with pytest.raises(MultiFailedError) as caught:
        await client.multi(late)
    assert caught.value.index == 2
    assert await loaded(client) == found


async def test_a_chunk_that_a_foreign_hand_removed_is_named(client: Client) -> None:
    stored = await write_before(client, LARGE)
    name = stored.chunks[1]
    path = paths.group_chunk_path(GROUP, name)
    data, _ = await client.get(path)
    await client.delete(path)
    _, problems = await (await elected(client)).load()
    assert path in problems[GROUP]
    with pytest.raises(QuorateError, match=name):
        await (await elected(client)).write(stored, SMALL, {})
    await client.create(path, data)


async def test_a_foreign_hand_on_a_large_group_is_noticed(client: Client) -> None:
    stored = await write_before(client, LARGE)
    value, _ = await client.get(paths.group_path(GROUP))
    await client.set(paths.group_path(GROUP), value)
    for after in (SMALL, LARGER):
        with pytest.raises(GivenUpError, match="has changed"):
            await (await elected(client)).write(stored, after, {})
    found = await loaded(client)
    assert found is not None and found.record == LARGE


# -- a whole cluster -----------------------------------------------------------------------------------------

MEMBERS = 150
METADATA_BYTES = 5 * 1024
ASSIGNMENT_BYTES = 1024 * 1024 // MEMBERS + 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    # Between two of the crowd's joins may be no more than this, or the first generation lacks the later ones.
    # The crowd shares this process's lock with the brokers, so half a second of a busy machine is not enough.
    with brokers_in_thread(2, settings={"groups": {"group_initial_rebalance_delay_ms": 2000}}) as running:
        yield running


class Crowd:
    """Members of one group, each with a connection of its own."""

    def __init__(self, cluster: BlockingBrokers, group: str, count: int) -> None:
        self._bootstrap = cluster.bootstrap.split(",")
        self.group = group
        self.count = count
        self.links: list[BrokerLink] = []
        self.connect()

    def connect(self) -> None:
        """Connect all to the coordinator."""
        for link in self.links:
            link.close()
        address = eventually(self._coordinator, WAIT_S, "a coordinator")
        self.links = [BrokerLink(address, WAIT_S) for _ in range(self.count)]

    def _coordinator(self) -> str:
        values = {"key": self.group, "key_type": 0, "coordinator_keys": (self.group,)}
        for address in self._bootstrap:
            with contextlib.suppress(OSError), BrokerLink(address) as link:
                row = link.ask(ApiKey.FIND_COORDINATOR, 4, values).coordinators[0]
                if row.error_code == ErrorCode.NONE:
                    with BrokerLink(f"{row.host}:{row.port}") as there:
                        asked = {"group_id": self.group, "generation_id": 0, "member_id": "nobody"}
                        code = there.ask(ApiKey.HEARTBEAT, 3, asked).error_code
                    assert code == ErrorCode.UNKNOWN_MEMBER_ID, code
                    return f"{row.host}:{row.port}"
        raise AssertionError("no broker names the coordinator")

    def ask_all(self, api_key: ApiKey, api_version: int, values: list[dict[str, Any]]) -> list[Any]:
        """Send one request of each member, then read all answers."""
        # Sent and not waited for: some answers come when all have asked.
        for link, asked in zip(self.links, values, strict=True):
            body = encode_request(api_key, api_version, {"group_id": self.group, **asked})
            link.send(api_key, api_version, body)
        return [link.answer(api_key, api_version) for link in self.links]

    def close(self) -> None:
        for link in self.links:
            link.close()


def metadata(number: int) -> bytes:
    return number.to_bytes(4, "big") * (METADATA_BYTES // 4)


def assignment(number: int) -> bytes:
    return bytes([number]) * ASSIGNMENT_BYTES


def coordinator_id(zookeeper: KazooClient) -> int | None:
    try:
        return int(json.loads(zookeeper.get(paths.COORDINATOR)[0])["brokerid"])
    except NoNodeError:
        return None


def test_150_members_with_5_kb_each_and_1_mib_of_assignments(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    crowd = Crowd(cluster, "crowd", MEMBERS)
    joins = [
        {
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata(number)}],
        }
        for number in range(MEMBERS)
    ]
    joined = crowd.ask_all(ApiKey.JOIN_GROUP, 3, joins)
    assert {each.error_code for each in joined} == {ErrorCode.NONE}
    (generation_id,) = {each.generation_id for each in joined}
    (leader,) = [each for each in joined if each.member_id == each.leader]
    own = {each.member_id: number for number, each in enumerate(joined)}
    assert {each.member_id: each.metadata for each in leader.members} == {
        member_id: metadata(number) for member_id, number in own.items()
    }
    given = [{"member_id": each, "assignment": assignment(number)} for each, number in own.items()]
    syncs = [
        {
            "generation_id": generation_id,
            "member_id": each.member_id,
            "assignments": given if each is leader else (),
        }
        for each in joined
    ]

    def check() -> None:
        synced = crowd.ask_all(ApiKey.SYNC_GROUP, 3, syncs)
        assert {each.error_code for each in synced} == {ErrorCode.NONE}
        assert [each.assignment for each in synced] == [assignment(number) for number in range(MEMBERS)]
        beats = [{"generation_id": generation_id, "member_id": each} for each in own]
        codes = {each.error_code for each in crowd.ask_all(ApiKey.HEARTBEAT, 3, beats)}
        assert codes == {ErrorCode.NONE}

    check()
    named = json.loads(zookeeper.get(paths.group_path("crowd"))[0])["chunks"]
    assert len(named) == 5
    # Another coordinator goes on where this one was.
    dead = coordinator_id(zookeeper)
    assert dead is not None
    cluster.kill(dead)
    crowd.connect()
    syncs = [{**each, "assignments": ()} for each in syncs]
    check()
    assert json.loads(zookeeper.get(paths.group_path("crowd"))[0])["chunks"] == named
    described = {"groups": ("crowd",), "include_authorized_operations": False}
    row = crowd.links[0].ask(ApiKey.DESCRIBE_GROUPS, 4, described).groups[0]
    assert (row.group_state, len(row.members)) == ("Stable", MEMBERS)
    # All leave: one small znode is left.
    leaving = [{"member_id": each, "group_instance_id": None} for each in own]
    left = crowd.links[0].ask(ApiKey.LEAVE_GROUP, 3, {"group_id": "crowd", "members": leaving})
    assert left.error_code == ErrorCode.NONE
    assert zookeeper.get_children(paths.group_path("crowd")) == ["offsets"]
    crowd.close()
    cluster.start(dead)
