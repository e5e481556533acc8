"""One transactional id of a term: what the quorum holds of it, and the write that is under way.

Soft state only, but `stored`, which mirrors the znodes.
Source: ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.core.transactions import inputs
from broker.core.transactions.deciding import Change
from broker.core.transactions.inputs import StoredTransaction
from broker.core.transactions.moves import Event
from controller.core.effects import CreateNode, DeleteNode, Operation, SetData
from quorum.metadata.numbers import next_version
from quorum.metadata.paths import pending_offsets_path, transaction_path
from quorum.metadata.transaction_records import TransactionState, encode_pending_offsets

#: what an idle id takes of a node's memory, but for its name twice
TRANSACTION_BYTES: Final = 700


@dataclass(slots=True)
class Flight:
    """A write of an id, from its decision to its outcome."""

    #: None: the id is removed.
    change: Change | None
    #: The request that it answers.
    request: int | None = None
    #: Groups that are still to be borrowed, and what those that were do in the multi.
    groups: list[str] = field(default_factory=list)
    #: {group: number of its loan}
    loans: dict[str, int] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    #: How often the multi had no good outcome, and whether one of those may still take effect.
    rounds: int = 0
    is_doubtful: bool = False
    #: Why the quorum takes none of it, for good.
    problem: str = ""

    @property
    def ends(self) -> bool:
        """Whether the transaction has no pending offsets afterwards."""
        return self.change is None or self.change.event in (Event.COMMIT, Event.ABORT, Event.FENCE)


class TransactionSlot:
    """One transactional id."""

    __slots__ = ("awaited_ms", "counted_bytes", "flight", "opened_ms", "stored", "waiting")

    def __init__(self, stored: StoredTransaction) -> None:
        """Hold a mirror."""
        self.stored = stored
        self.flight: Flight | None = None
        #: Requests that wait for the write, or for the markers.
        self.waiting: list[tuple[int, inputs.TransactionRequest]] = []
        #: Since when requests wait for the markers; monotonic.
        self.awaited_ms = 0
        #: When its open transaction began; monotonic.
        self.opened_ms = 0
        #: What it counts of the room.
        self.counted_bytes = 0

    @property
    def name(self) -> str:
        """The transactional id."""
        return self.stored.transactional_id

    @property
    def state(self) -> TransactionState:
        """As the quorum holds it."""
        record = self.stored.record
        return TransactionState.DEAD if record is None else record.state

    def after(self, flight: Flight) -> StoredTransaction:
        """Return what the quorum holds when a write has taken effect."""
        stored, change = self.stored, flight.change
        if change is None:
            return StoredTransaction(stored.transactional_id)
        offsets = {} if flight.ends else dict(stored.offsets)
        if change.offsets is not None:
            group_id, rows = change.offsets
            offsets[group_id] = dict(rows)
        version = 0 if stored.record is None else next_version(stored.version)
        return StoredTransaction(stored.transactional_id, change.record, version, offsets)

    def operations(self, flight: Flight, checked_version: int) -> Iterator[Operation]:
        """Return the multi of a write, behind the fence.

        Args:
            flight: the write.
            checked_version: of the id's znode.
        """
        stored, path = self.stored, transaction_path(self.name)
        yield from flight.operations
        if flight.ends:
            yield from (DeleteNode(pending_offsets_path(self.name, each)) for each in stored.offsets)
        if flight.change is None:
            yield DeleteNode(path, checked_version)
            return
        value = flight.change.record.encode()
        yield CreateNode(path, value) if stored.record is None else SetData(path, value, checked_version)
        if flight.change.offsets is not None:
            group_id, rows = flight.change.offsets
            child, value = pending_offsets_path(self.name, group_id), encode_pending_offsets(rows)
            yield SetData(child, value, -1) if group_id in stored.offsets else CreateNode(child, value)


def size_bytes(stored: StoredTransaction) -> int:
    """Return what an id takes of a node's memory, roughly."""
    if stored.record is None:
        return 0
    size = TRANSACTION_BYTES + 2 * len(transaction_path(stored.transactional_id))
    size += sum(len(topic) + 4 for topic, _ in stored.record.partitions)
    return size + sum(each.stored_bytes for rows in stored.offsets.values() for each in rows.values())
