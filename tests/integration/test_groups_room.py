"""What groups hold in all: where it is refused, what is taken all the same, and that terms count alike."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from broker.core.cluster_view import ClusterView
from broker.core.groups.model import (
    JOIN_EPOCH,
    GroupLimits,
    GroupOptions,
    HeartbeatRequest,
    JoinRequest,
    SyncRequest,
)
from broker.core.groups.writing import CHUNK_BYTES
from broker.groups.errors import GroupRefusedError, NotCoordinatorError
from controller.election.plans import COORDINATOR_OFFICE, Won
from controller.election.store import elect, ensure_base_paths
from controller.wire.codes import ErrorCode
from quorum.client import Client, Transaction
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord
from tests.support.groups_term import AskedTerm
from tests.support.no_transactions import NO_TRANSACTIONS
from tests.support.trust import TRUST

BYTES_MAX = 1024 * 1024
NOBODY = ("", None, GenerationId(-1))
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
OPTIONS = GroupOptions(LIMITS, groups_bytes_max=BYTES_MAX)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ensemble(1) as quorum, Client(quorum.hosts) as made:
        await ensure_base_paths(made)
        await made.create(paths.topic_path("t"), b"{}")
        yield made


@contextlib.asynccontextmanager
async def term_of(client: Client, options: GroupOptions = OPTIONS) -> AsyncIterator[AskedTerm]:
    outcome = await elect(client, COORDINATOR_OFFICE, 1, 0, TRUST)
    assert isinstance(outcome, Won)
    term = AskedTerm(client, outcome.mandate, options, ClusterView(), NO_TRANSACTIONS)
    run = asyncio.ensure_future(term.run())
    try:
        await term.ready()
        yield term
    finally:
        term.end("the test is over")
        await run
        await client.delete(COORDINATOR_OFFICE.path)


def offsets(count: int, metadata: str = "", number: int = 0) -> dict[PartitionKey, OffsetRecord]:
    return {PartitionKey("t", each): OffsetRecord(number, -1, metadata, 5) for each in range(count)}


def joining(metadata: bytes, member_id: str = "", client_id: str = "c") -> JoinRequest:
    protocols = (("range", metadata),)
    return JoinRequest(member_id, None, client_id, "/h", 10_000, 10_000, "consumer", protocols, False)


async def fill(term: AskedTerm) -> None:
    """Commit until there is no room for 4,000 bytes of metadata; every group has one offset."""

    async def commit_all() -> None:
        for number in itertools.count():
            await term.commit(f"filler-{number}", *NOBODY, offsets(1, "x" * 4_000))

    before = len(term.machine.slots())
    with pytest.raises(GroupRefusedError, match=r"groups\.groups_bytes_max") as caught:
        await commit_all()
    assert caught.value.error_code is ErrorCode.POLICY_VIOLATION
    assert before < len(term.machine.slots()) < before + 1_000
    assert all(slot.stored.offsets for slot in term.machine.slots()[before:]), "what was refused is no group"
    assert BYTES_MAX - 10_000 < term.machine.status().held_bytes <= BYTES_MAX


async def test_what_makes_groups_larger_is_refused_and_all_else_is_taken(client: Client) -> None:
    async with term_of(client) as term:
        assert await term.commit("old", *NOBODY, offsets(5, "meta")) is ErrorCode.NONE
        joined = await term.join("members", joining(b"m" * 2_000))
        given = {joined.member_id: b"a" * 2_000}
        sync = SyncRequest(joined.member_id, None, joined.generation_id, None, None, given)
        await term.sync("members", sync)
        await fill(term)
        # As large as it was, or smaller, with larger numbers.
        assert await term.commit("old", *NOBODY, offsets(5, "meta", 10**15)) is ErrorCode.NONE
        assert await term.commit("old", *NOBODY, offsets(4, "", 10**18)) is ErrorCode.NONE
        # The generation of a group that was there begins anew, with its assignment.
        again = await term.join("members", joining(b"n" * 2_000, joined.member_id))
        assert again.error_code is ErrorCode.NONE
        sync = SyncRequest(again.member_id, None, again.generation_id, None, None, given)
        assert (await term.sync("members", sync)).assignment == b"a" * 2_000
        large = joining(b"m" * 9_000)
        topics = tuple(f"{each:04}" + "t" * 96 for each in range(100))
        heartbeat = HeartbeatRequest("m", JOIN_EPOCH, rebalance_timeout_ms=1, topics=topics)
        for refused in (
            term.commit("old", *NOBODY, offsets(30, "meta")),
            term.join("members", large),
            term.join("members", joining(b"n" * 9_000, joined.member_id)),
            term.join("others", large),
            term.consumer_heartbeat("others", heartbeat),
            term.sync("members", SyncRequest(sync.member_id, *sync_of(again.generation_id, sync.member_id))),
        ):
            with pytest.raises(GroupRefusedError) as caught:
                await refused
            assert caught.value.error_code is ErrorCode.POLICY_VIOLATION
        assert term.machine.status().refused == 7
        assert term.group("others") is None
        # Room comes back with what is deleted.
        for number in range(20):
            assert await term.delete(f"filler-{number}") is ErrorCode.NONE
        assert (await term.consumer_heartbeat("others", heartbeat)).error_code is ErrorCode.NONE
        assert await term.commit("old", *NOBODY, offsets(30, "meta")) is ErrorCode.NONE


def sync_of(
    generation_id: GenerationId, leader: str
) -> tuple[None, GenerationId, None, None, dict[str, bytes]]:
    return None, generation_id, None, None, {leader: bytes(20_000)}


async def settle_alone(term: AskedTerm, rng: random.Random) -> str:
    """Join an empty classic group and assign; returns the member's id."""
    joined = await term.join("classic", joining(rng.randbytes(500)))
    given = {joined.member_id: rng.randbytes(500)}
    asked = SyncRequest(joined.member_id, None, joined.generation_id, None, None, given)
    assert (await term.sync("classic", asked)).assignment == given[joined.member_id]
    return joined.member_id


async def test_every_term_counts_the_same(client: Client) -> None:
    rng = random.Random(7)
    async with term_of(client) as term:
        for number in range(150):
            group = f"g{number % 7}"
            match rng.randrange(7):
                case 0:
                    await term.delete(group)
                case 1 if term.group(group) is not None:
                    await term.remove_offsets(group, [PartitionKey("t", rng.randrange(9))])
                case 2:
                    heartbeat = HeartbeatRequest("m", JOIN_EPOCH, rebalance_timeout_ms=1, topics=("t",))
                    with contextlib.suppress(GroupRefusedError):
                        await term.consumer_heartbeat(group, heartbeat)
                case 3:
                    with contextlib.suppress(GroupRefusedError):
                        await term.consumer_heartbeat(group, HeartbeatRequest("m", -1))
                case 4:
                    member_id = await settle_alone(term, rng)
                    await term.leave("classic", [(member_id, None)])
                case _:
                    written = offsets(rng.randrange(9), "é\x01" * rng.randrange(50), number)
                    await asyncio.gather(*(term.commit(group, *NOBODY, written) for _ in range(2)))
        member_id = await settle_alone(term, rng)
        held_bytes = term.machine.status().held_bytes
        assert held_bytes > 10_000
    async with term_of(client) as term:
        assert term.machine.status().held_bytes == held_bytes
        await term.leave("classic", [(member_id, None)])
        for group in [slot.group_id for slot in term.machine.slots()]:
            with contextlib.suppress(GroupRefusedError, NotCoordinatorError):
                await term.consumer_heartbeat(group, HeartbeatRequest("m", -1))
            assert await term.delete(group) is ErrorCode.NONE
        assert term.machine.status().held_bytes == 0


async def test_a_group_to_which_too_much_would_be_assigned_says_so(client: Client) -> None:
    """A pattern of one short member may match more than a group may hold; nothing is asked again for ever."""
    topics = [f"{each:04}" + "t" * 200 for each in range(4_500)]
    for start in range(0, len(topics), 1_000):
        transaction = Transaction()
        for topic in topics[start : start + 1_000]:
            record = TopicRecord(uuid.uuid4(), {0: (1,)})
            transaction.create(paths.topic_path(topic), record.encode())
        await client.multi(transaction)
    # The record takes 1.8 MB: three chunks.
    options = replace(OPTIONS, limits=replace(LIMITS, group_bytes_max=1024 * 1024))
    async with term_of(client, options) as term:
        heartbeat = HeartbeatRequest("m", JOIN_EPOCH, rebalance_timeout_ms=1, topic_pattern=".*")
        with pytest.raises(GroupRefusedError) as caught:
            await term.consumer_heartbeat("large", heartbeat)
        assert caught.value.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
        await asyncio.gather(*term._tasks.running)
        assert term.group("large") is None
        # A group that was there goes on with its members; only who makes it too large is refused.
        small = HeartbeatRequest("s", JOIN_EPOCH, rebalance_timeout_ms=1, topics=(topics[0],))
        told = await term.consumer_heartbeat("large", small)
        assert told.assignment
        for refused in (heartbeat, replace(heartbeat, member_id="n")):
            with pytest.raises(GroupRefusedError) as caught:
                await term.consumer_heartbeat("large", refused)
            assert caught.value.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
            await asyncio.gather(*term._tasks.running)
            again = await term.consumer_heartbeat("large", HeartbeatRequest("s", told.member_epoch))
            assert again.error_code is ErrorCode.NONE
    # Where the limit allows it, it is written in chunks, and the next term goes on from them.
    async with term_of(client) as term:
        joined = await term.consumer_heartbeat("large", heartbeat)
        assert joined.error_code is ErrorCode.NONE
        slot = term.group("large")
        assert slot is not None
        size, stored = slot.machine.size, slot.stored
        assert stored.record is not None
        written_bytes = len(stored.record.encode())
        assert written_bytes <= size <= 1.05 * written_bytes
        assert len(stored.chunks) == -(-written_bytes // CHUNK_BYTES) > 2
        held_bytes = term.machine.status().held_bytes
        assert held_bytes == size
    # A limit that is lower by now takes nothing away.
    async with term_of(client, options) as term:
        assert term.machine.status().held_bytes == held_bytes
        slot = term.group("large")
        assert slot is not None and slot.stored == stored
        for member_id in ("m", "s"):
            left = await term.consumer_heartbeat("large", HeartbeatRequest(member_id, -1))
            assert left.error_code is ErrorCode.NONE
        assert slot.stored.chunks == ()
        assert await client.get_children(paths.group_path("large")) == ["offsets"]
