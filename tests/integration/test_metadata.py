"""Elections, registrations and fenced writes against real servers: who wins, who is fenced, what is lost."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from controller.core import writing
from controller.election.fenced import fenced_multi
from controller.election.plans import CONTROLLER_OFFICE, HeldBy, Mandate, Won
from controller.election.store import (
    compare_and_set_state,
    elect,
    ensure_base_paths,
    ensure_cluster_id,
    read_partition_states,
    register_broker,
    resign,
)
from quorum.client import (
    BadVersionError,
    Client,
    CreateMode,
    NodeExistsError,
    OperationResult,
    SessionExpiredError,
    Stat,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.errors import (
    BrokerIdInUseError,
    ContendedError,
    ControllerFencedError,
    MetadataDecodeError,
)
from quorum.metadata.numbers import ControllerEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node, registered_brokers
from quorum.metadata.records import (
    BrokerRecord,
    ControllerRecord,
    GenerationRecord,
    PartitionStateRecord,
    TopicRecord,
)
from tests.support.clients import (
    SESSION_TIMEOUT_MS,
    CuttingProxy,
    first_of,
    hosts,
    outlive_session,
    system,
    wipe,
)
from tests.support.metadata_records import mandate_of, partition_state
from tests.support.trust import TRUST
from tests.support.written_states import create_topic, write_states

__all__ = ["hosts", "system"]

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def client(hosts: str) -> AsyncIterator[Client]:
    """A client on a tree with nothing but the base paths."""
    async with Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS) as connected:
        await wipe(connected)
        await ensure_base_paths(connected)
        yield connected


def connect(hosts: str) -> Client:
    return Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)


def broker(broker_id: int, incarnation: str | None = None) -> BrokerRecord:
    return BrokerRecord(
        host="127.0.0.1",
        port=9092 + broker_id,
        endpoints=(f"PLAINTEXT://127.0.0.1:{9092 + broker_id}",),
        listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
        timestamp_ms=NOW_MS,
        incarnation=f"{broker_id:032x}" if incarnation is None else incarnation,
    )


async def candidate(client: Client, broker_id: int) -> Won[ControllerEpoch] | HeldBy:
    await register_broker(client, broker_id, broker(broker_id), TRUST)
    return await elect(client, CONTROLLER_OFFICE, broker_id, NOW_MS, TRUST)


async def won(client: Client, broker_id: int = 1) -> Mandate[ControllerEpoch]:
    outcome = await candidate(client, broker_id)
    assert isinstance(outcome, Won)
    return outcome.mandate


async def epoch_now(client: Client) -> int:
    await client.sync(paths.CONTROLLER_EPOCH)
    data, _ = await client.get(paths.CONTROLLER_EPOCH)
    assert data is not None
    return int(data)


async def make_partitions(
    client: Client, mandate: Mandate[ControllerEpoch], count: int
) -> list[PartitionKey]:
    keys = [PartitionKey("orders", number) for number in range(count)]
    await create_topic(client, "orders", TopicRecord(uuid.UUID(int=1), dict.fromkeys(range(count), (1, 2))))
    first = {key: partition_state(1, 1, 0, (1, 2)) for key in keys}
    assert len((await write_states(client, mandate, creations=first)).states) == count
    return keys


# -- base ----------------------------------------------------------------------------------------------------


async def test_everybody_agrees_on_one_cluster_id(client: Client, hosts: str) -> None:
    async with connect(hosts) as other:
        ids = await asyncio.gather(
            ensure_cluster_id(client, "first"),
            ensure_cluster_id(other, "second"),
            ensure_cluster_id(client, "third"),
        )
        assert len(dict.fromkeys(ids)) == 1
        await ensure_base_paths(other)
    assert await epoch_now(client) == 0


# -- elections -----------------------------------------------------------------------------------------------


async def test_the_first_controller_has_epoch_1_and_others_learn_of_it(client: Client, hosts: str) -> None:
    mandate = await won(client, 1)
    assert (mandate.broker_id, mandate.epoch) == (1, 1)
    assert await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST) == Won(mandate)
    async with connect(hosts) as other:
        await other.sync()
        assert await candidate(other, 2) == HeldBy(1)
    node = await read_node(client, paths.CONTROLLER)
    assert node is not None
    assert ControllerRecord.decode(node.data) == ControllerRecord(1, NOW_MS)
    assert node.stat.ephemeral_owner == client.session_id
    assert await epoch_now(client) == 1


async def test_of_many_candidates_one_wins_and_epochs_rise_by_one(client: Client, hosts: str) -> None:
    candidates = {number: connect(hosts) for number in range(1, 6)}
    for one in candidates.values():
        await one.start()
    try:
        for expected_epoch in range(1, 6):
            # A follower may still show the controller that has just gone.
            await asyncio.gather(*(one.sync() for one in candidates.values()))
            outcomes = await asyncio.gather(*(candidate(one, number) for number, one in candidates.items()))
            winners = [outcome.mandate for outcome in outcomes if isinstance(outcome, Won)]
            assert [mandate.epoch for mandate in winners] == [expected_epoch]
            losers = [outcome for outcome in outcomes if isinstance(outcome, HeldBy)]
            assert losers == [HeldBy(winners[0].broker_id)] * (len(candidates) - 1)
            await candidates.pop(winners[0].broker_id).close()
    finally:
        for one in candidates.values():
            await one.close()
    assert await epoch_now(client) == 5


async def test_a_replaced_controller_is_fenced_and_changes_nothing(client: Client, hosts: str) -> None:
    mandate = await won(client, 1)
    keys = await make_partitions(client, mandate, 3)
    await client.delete(paths.CONTROLLER)
    async with connect(hosts) as other:
        await other.sync()
        successor = await won(other, 2)
        assert successor.epoch == 2
        update = {keys[0]: (partition_state(1, 2, 1, (2,)), 0)}
        with pytest.raises(ControllerFencedError, match="epoch 1") as caught:
            await write_states(client, mandate, update)
        assert caught.value.definite
        written = await write_states(other, successor, update)
        assert [known.partition_version for known in written.states.values()] == [1]
        first = {PartitionKey("orders", 9): partition_state(1, 1, 0, (1,))}
        with pytest.raises(ControllerFencedError):
            await write_states(client, mandate, creations=first)
        assert not await resign(client, CONTROLLER_OFFICE, mandate)
        assert await resign(other, CONTROLLER_OFFICE, successor)
        assert not await resign(other, CONTROLLER_OFFICE, successor)
        assert await other.exists(paths.CONTROLLER) is None


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"not json",
        ControllerRecord(-1, NOW_MS).encode(),
        ControllerRecord(7, NOW_MS).encode(),
        ControllerRecord(1, NOW_MS).encode(),
    ],
    ids=["empty", "malformed", "nobody", "unregistered", "same value"],
)
async def test_overwriting_the_controller_forces_an_election(
    client: Client, hosts: str, foreign: bytes
) -> None:
    await won(client, 1)
    async with connect(hosts) as other:
        await other.set(paths.CONTROLLER, foreign)
        outcome = await candidate(other, 2)
        assert isinstance(outcome, Won)
        assert outcome.mandate.epoch == 2
        await client.sync()
        assert await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST) == HeldBy(2)


async def test_a_controller_node_that_no_broker_owns_is_replaced(client: Client, hosts: str) -> None:
    async with connect(hosts) as other:
        await register_broker(other, 2, broker(2), TRUST)
        # Persistent, and in the name of a broker that did not create it.
        await client.create(paths.CONTROLLER, ControllerRecord(2, NOW_MS).encode())
        mandate = await won(client, 1)
        assert mandate.epoch == 1


async def test_the_controller_takes_its_own_overwritten_node_back_with_a_new_epoch(client: Client) -> None:
    first = await won(client, 1)
    await client.set(paths.CONTROLLER, b"rubbish")
    second = await won(client, 1)
    assert second.epoch == first.epoch + 1
    with pytest.raises(ControllerFencedError):
        await fenced_multi(client, first, Transaction().set(paths.CLUSTER_ID, b""))


async def test_an_earlier_life_is_replaced_at_once(client: Client, hosts: str) -> None:
    earlier = connect(hosts)
    await earlier.start()
    assert (await won(earlier, 1)).epoch == 1
    await earlier.close(keep_session=True)
    await client.sync()
    assert (await won(client, 1)).epoch == 2


async def test_no_controller_is_elected_on_a_malformed_epoch(client: Client) -> None:
    await client.set(paths.CONTROLLER_EPOCH, b"many")
    await register_broker(client, 1, broker(1), TRUST)
    with pytest.raises(MetadataDecodeError, match="/controller_epoch"):
        await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST)


async def test_a_missing_epoch_is_created(client: Client) -> None:
    await client.delete(paths.CONTROLLER_EPOCH)
    assert (await won(client, 1)).epoch == 1


async def test_an_election_whose_reply_was_lost_is_recognised_as_won(client: Client, hosts: str) -> None:
    async with CuttingProxy(first_of(hosts)) as proxy, connect(proxy.hosts) as behind:
        await register_broker(behind, 1, broker(1), TRUST)
        before_multi(behind, proxy.swallow_replies)
        outcome = asyncio.ensure_future(elect(behind, CONTROLLER_OFFICE, 1, NOW_MS, TRUST))
        await proxy.cut_after_reply()
        assert await outcome == Won(mandate_of(1, 1, 1))
        assert await epoch_now(client) == 1


async def test_a_new_controller_is_not_mistaken_for_the_stale_one_it_replaced(
    client: Client, hosts: str
) -> None:
    stale = connect(hosts)
    await stale.start()
    await won(stale, 1)
    await stale.close(keep_session=True)
    await client.sync()
    async with connect(hosts) as other:
        await register_broker(other, 2, broker(2), TRUST)
        await other.sync()

        async def the_other_wins() -> None:
            # The node that the candidate wants to delete is another one now, of the same version.
            await other.delete(paths.CONTROLLER)
            assert isinstance(await elect(other, CONTROLLER_OFFICE, 2, NOW_MS, TRUST), Won)

        await register_broker(client, 1, broker(1), TRUST)
        before_multi(client, the_other_wins)
        assert await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST) == HeldBy(2)
        assert await epoch_now(client) == 2


def before_multi(client: Client, intrude: Callable[[], Awaitable[None] | None]) -> None:
    """Let something happen once, right before the next multi of a client leaves."""
    multi = client.multi

    async def intruded(transaction: Transaction) -> list[OperationResult]:
        client.multi = multi  # type: ignore[method-assign]
        happening = intrude()
        if happening is not None:
            await happening
        return await multi(transaction)

    client.multi = intruded  # type: ignore[method-assign]


# -- registrations -------------------------------------------------------------------------------------------


async def test_the_generation_is_the_czxid_of_the_registration(client: Client, hosts: str) -> None:
    generation = await register_broker(client, 1, broker(1), TRUST)
    node = await read_node(client, paths.broker_id_path(1))
    kept = await read_node(client, paths.broker_generation_path(1))
    assert node is not None
    assert kept is not None
    assert generation == node.stat.czxid == kept.stat.mzxid
    assert node.stat.ephemeral_owner == client.session_id
    assert kept.stat.ephemeral_owner == 0
    assert GenerationRecord.decode(1, kept.data) == GenerationRecord(f"{1:032x}")
    assert await register_broker(client, 1, broker(1), TRUST) == generation
    assert await registered_brokers(client) == {1: (generation, broker(1))}


async def test_a_bounced_broker_gets_a_higher_generation_without_waiting(client: Client, hosts: str) -> None:
    earlier = connect(hosts)
    await earlier.start()
    first = await register_broker(earlier, 1, broker(1), TRUST)
    await earlier.close(keep_session=True)
    await client.sync()
    second = await register_broker(client, 1, broker(1), TRUST)
    assert second > first
    kept = await read_node(client, paths.broker_generation_path(1))
    assert kept is not None
    assert (kept.stat.mzxid, kept.stat.version) == (second, 1)


async def test_another_incarnation_is_refused_until_the_first_is_gone(client: Client, hosts: str) -> None:
    other = connect(hosts)
    await other.start()
    generation = await register_broker(other, 1, broker(1, "aa"), TRUST)
    await client.sync()
    with pytest.raises(BrokerIdInUseError, match="broker id 1"):
        await register_broker(client, 1, broker(1, "bb"), TRUST)
    assert (await registered_brokers(client))[1][0] == generation
    await other.close()
    await client.sync()
    assert await register_broker(client, 1, broker(1, "bb"), TRUST) > generation
    kept = await read_node(client, paths.broker_generation_path(1))
    assert kept is not None
    assert GenerationRecord.decode(1, kept.data).incarnation == "bb"


@pytest.mark.parametrize("registered_before", [True, False], ids=["a second time", "for the first time"])
async def test_a_broker_that_registers_between_two_reads_of_another_is_not_removed(
    client: Client, hosts: str, registered_before: bool
) -> None:
    """Both registrations have version 0, so only the generation tells the new one from the earlier life's."""
    async with connect(hosts) as earlier, connect(hosts) as other:
        if registered_before:
            await register_broker(earlier, 1, broker(1, "aa"), TRUST)
            await client.sync()

        async def the_other_registers() -> None:
            await earlier.close()
            await other.sync()
            await register_broker(other, 1, broker(1, "bb"), TRUST)
            await client.sync()

        between_reads(client, the_other_registers)
        with pytest.raises(BrokerIdInUseError, match="incarnation bb"):
            await register_broker(client, 1, broker(1, "aa"), TRUST)
        assert (await registered_brokers(client))[1][1] == broker(1, "bb")


def between_reads(client: Client, intrude: Callable[[], Awaitable[None]]) -> None:
    """Let something happen once, after the first read of a client was answered and before its next one."""
    get = client.get
    answered = asyncio.Event()
    first = True

    async def in_turn(path: str) -> tuple[bytes | None, Stat]:
        nonlocal first
        if not first:
            await answered.wait()
            return await get(path)
        first = False
        try:
            return await get(path)
        finally:
            await intrude()
            answered.set()

    client.get = in_turn  # type: ignore[method-assign, assignment]


async def test_a_registration_whose_reply_was_lost_is_adopted(client: Client, hosts: str) -> None:
    async with CuttingProxy(first_of(hosts)) as proxy, connect(proxy.hosts) as behind:
        before_multi(behind, proxy.swallow_replies)
        registering = asyncio.ensure_future(register_broker(behind, 1, broker(1), TRUST))
        await proxy.cut_after_reply()
        generation = await registering
        await client.sync()
        kept = await read_node(client, paths.broker_generation_path(1))
        assert kept is not None
        assert (kept.stat.mzxid, kept.stat.version) == (generation, 0)


async def test_a_lost_session_registers_nothing(client: Client, hosts: str) -> None:
    async with (
        CuttingProxy(first_of(hosts)) as proxy,
        Client(proxy.hosts, session_timeout_ms=1000) as lost,
    ):
        await outlive_session(lost, proxy, hosts, f"{paths.BROKER_IDS}/9")
        with pytest.raises(SessionExpiredError):
            await register_broker(lost, 1, broker(1), TRUST)
    assert await registered_brokers(client) == {}


async def test_a_broker_without_an_incarnation_is_refused(client: Client) -> None:
    record = BrokerRecord("h", 1, (), {}, NOW_MS)
    with pytest.raises(ValueError, match="incarnation"):
        await register_broker(client, 1, record, TRUST)


# -- partition states ----------------------------------------------------------------------------------------


async def test_states_are_created_read_and_written_in_batches(client: Client) -> None:
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 2500)
    written = await write_states(client, mandate, updates_of(keys))
    assert {key: known.partition_version for key, known in written.states.items()} == dict.fromkeys(keys, 1)
    states = await read_partition_states(client, [*keys, PartitionKey("orders", 2500)])
    assert states.pop(PartitionKey("orders", 2500)) is None
    assert states == dict.fromkeys(keys, (partition_state(1, 2, 1, (2,)), 1))
    # All states of one multi were written by one transaction.
    stats = [await client.exists(paths.partition_state_path(key)) for key in keys]
    zxids = [stat.mzxid for stat in stats if stat is not None]
    assert [zxids.count(each) for each in dict.fromkeys(zxids)] == [1000, 1000, 500]


def updates_of(keys: Sequence[PartitionKey]) -> dict[PartitionKey, tuple[PartitionStateRecord, int]]:
    return {key: (partition_state(1, 2, 1, (2,)), 0) for key in keys}


async def test_a_conflict_spares_the_other_multis(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CHUNK_OPERATIONS_MAX", 10)
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 30)
    moved = keys[17]
    assert (
        await compare_and_set_state(client, moved, partition_state(1, 1, 0, (1,)), PartitionVersion(0)) == 1
    )
    written = await write_states(client, mandate, updates_of(keys))
    assert (list(written.states), written.unsettled) == ([*keys[:10], *keys[20:]], keys[10:20])
    assert written.refused == {}
    states = await read_partition_states(client, keys)
    versions = [state[1] for state in states.values() if state is not None]
    assert versions == [1] * 10 + [0] * 7 + [1] + [0] * 2 + [1] * 10


async def test_a_missing_and_an_existing_partition_are_conflicts_too(client: Client) -> None:
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 4)
    ghost = PartitionKey("orders", 4)
    written = await write_states(client, mandate, updates_of([keys[0], ghost]))
    assert written == ({}, [keys[0], ghost], {})
    first = {key: partition_state(1, 1, 0, (1,)) for key in (ghost, keys[2])}
    assert await write_states(client, mandate, creations=first) == ({}, [ghost, keys[2]], {})
    assert (await read_partition_states(client, [ghost]))[ghost] is None


async def test_multis_stay_below_the_frame_limit_whatever_the_sizes(client: Client) -> None:
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 900)
    isr = tuple(range(1_000_000, 1_000_300))
    updates = {key: (partition_state(1, isr[0], 1, isr), 0) for key in keys}
    # 900 states of 2.4 kB are more than a server takes in one frame.
    written = await write_states(client, mandate, updates)
    assert list(written.states) == keys


async def test_a_lost_reply_leaves_the_multi_unknown(
    client: Client, hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHUNK_OPERATIONS_MAX", 10)
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 20)
    async with CuttingProxy(first_of(hosts)) as proxy, connect(proxy.hosts) as behind:
        proxy.swallow_replies()
        under_way = asyncio.ensure_future(write_states(behind, mandate, updates_of(keys)))
        await proxy.cut_after_reply()
        assert await under_way == ({}, keys, {})
        # The first multi was applied: its reply was the one that got lost.
        await client.sync()
        states = await read_partition_states(client, keys[:10])
        assert [state[1] for state in states.values() if state is not None] == [1] * 10


async def test_a_follower_that_bounced_does_not_join_the_isr(client: Client, hosts: str) -> None:
    mandate = await won(client)
    [key] = await make_partitions(client, mandate, 1)
    follower = connect(hosts)
    await follower.start()
    await register_broker(follower, 2, broker(2), TRUST)
    await client.sync()
    known = await read_node(client, paths.broker_generation_path(2))
    assert known is not None
    await follower.close(keep_session=True)
    async with connect(hosts) as bounced:
        await register_broker(bounced, 2, broker(2), TRUST)
        grown = partition_state(1, 1, 0, (1, 2))
        with pytest.raises(BadVersionError) as caught:
            await compare_and_set_state(
                client, key, grown, PartitionVersion(0), joining={2: known.stat.version}
            )
        assert caught.value.path == paths.broker_generation_path(2)
        assert (
            await compare_and_set_state(
                client, key, grown, PartitionVersion(0), joining={2: known.stat.version + 1}
            )
            == 1
        )
        with pytest.raises(BadVersionError) as caught:
            await compare_and_set_state(client, key, grown, PartitionVersion(0))
        assert caught.value.path == paths.partition_state_path(key)


async def test_topics_are_created_once_and_only_under_good_names(client: Client) -> None:
    record = TopicRecord(uuid.UUID(int=7), {0: (1,)})
    await create_topic(client, "orders", record)
    with pytest.raises(NodeExistsError):
        await create_topic(client, "orders", record)
    with pytest.raises(ValueError, match="Topic name is invalid"):
        await create_topic(client, "a/b", record)
    node = await read_node(client, paths.topic_path("orders"))
    assert node is not None
    assert TopicRecord.decode("orders", node.data) == record


async def test_a_fence_in_the_middle_of_a_pipeline_raises_and_writes_nothing_after(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHUNK_OPERATIONS_MAX", 10)
    mandate = await won(client)
    keys = await make_partitions(client, mandate, 30)
    assert len((await write_states(client, mandate, updates_of(keys[:10]))).states) == 10
    moved = asyncio.ensure_future(client.set(paths.CONTROLLER_EPOCH, b"2"))
    rest = asyncio.ensure_future(write_states(client, mandate, updates_of(keys[10:])))
    await moved
    with pytest.raises(ControllerFencedError):
        await rest
    states = await read_partition_states(client, keys)
    assert [state[1] for state in states.values() if state is not None] == [1] * 10 + [0] * 20


@pytest.mark.parametrize("copies", [False, True])
async def test_a_strangers_registration_goes_and_holds_no_office(
    client: Client, hosts: str, copies: bool
) -> None:
    path = paths.broker_id_path(1)
    async with connect(hosts) as stranger:
        # A copy of what a broker signed is not signed for the session that owns the copy.
        value = TRUST.sign(path, broker(1).encode(), client.session_id) if copies else broker(1).encode()
        await stranger.create(path, value, CreateMode.EPHEMERAL)
        record = ControllerRecord(1, NOW_MS).encode()
        await stranger.create(paths.CONTROLLER, record, CreateMode.EPHEMERAL)
        await client.sync()
        assert isinstance(await elect(client, CONTROLLER_OFFICE, 2, NOW_MS, TRUST), Won)
        generation = await register_broker(client, 1, broker(1), TRUST)
        data, stat = await client.get(path)
        assert (stat.czxid, stat.ephemeral_owner) == (generation, client.session_id)
        assert TRUST.is_signed(path, data, client.session_id)


async def test_a_holders_node_that_cannot_be_deleted_is_contended_and_not_fatal(client: Client) -> None:
    await client.create(paths.CONTROLLER)
    await client.create(f"{paths.CONTROLLER}/child")
    with pytest.raises(ContendedError):
        await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST)
    await client.delete(f"{paths.CONTROLLER}/child")
    assert isinstance(await elect(client, CONTROLLER_OFFICE, 1, NOW_MS, TRUST), Won)


async def test_a_malformed_registration_hides_no_other(client: Client) -> None:
    generation = await register_broker(client, 1, broker(1), TRUST)
    await client.create(paths.broker_id_path(9), b"{")
    found = await registered_brokers(client)
    assert found[1] == (generation, broker(1))
    assert isinstance(found[9][1], str)
