"""What a new coordinator reads below /transactions, of which some is malformed."""

from __future__ import annotations

from broker.groups.transaction_store import TransactionStore
from controller.election.store import ensure_base_paths
from quorum.client import Client
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import (
    TransactionRecord,
    TransactionState,
    encode_pending_offsets,
)

NAME, GROUP, KEY = "a/b ü.%", "g/%", PartitionKey("t", 3)


async def test_ids_come_back_without_malformed_ones() -> None:
    record = TransactionRecord(
        *(7, 3, 7, 2, 1_000, TransactionState.ONGOING, 4, 5, frozenset((KEY,)), frozenset((GROUP,)))
    )
    offset = OffsetRecord(9, -1, "m", 6)
    async with ensemble(1) as quorum, Client(quorum.hosts) as client:
        await ensure_base_paths(client)
        await client.create(f"{paths.TRANSACTIONS}/{paths.KEPT}")
        await client.create(paths.transaction_path(NAME), record.encode())
        await client.create(paths.pending_offsets_path(NAME, GROUP), encode_pending_offsets({KEY: offset}))
        await client.create(paths.transaction_path("bad"), record.encode().replace(b"Ongoing", b"Gone"))
        await client.create(f"{paths.TRANSACTIONS}/a b", b"")
        store = TransactionStore(client)
        [(found, problems)] = [each async for each in store.load()]
        (stored,) = found
        assert (stored.transactional_id, stored.record, stored.version) == (NAME, record, 0)
        assert stored.offsets == {GROUP: {KEY: offset}}
        assert await store.read(NAME) == stored
        assert await store.read("none") is None
        assert problems.keys() == {"bad", "a b"}
        assert "field 'state' holds \"Gone\"" in problems["bad"]
