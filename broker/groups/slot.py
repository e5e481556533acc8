"""One group of a term: its machine, what the quorum holds of it, and what is on its way there.

One write of a group is in flight; what is decided meanwhile is merged into the next one. An answer waits for
every record that was decided before it; the answer to a commit waits for its offsets.
Soft state only, but `stored`, which mirrors the znodes.
Source: control-plane design, "Coordinator".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.groups.store import StoredGroup
from quorum.metadata.group_records import GroupRecord, OffsetRecord
from quorum.metadata.paths import PartitionKey

Machine = ClassicGroup | ConsumerGroup


@dataclass(slots=True)
class Batch:
    """What one write carries, and the answers that wait for it."""

    #: Whether the group's record is written.
    saves: bool = False
    #: What it is then; None: what the machine says when the write begins.
    record: GroupRecord | None = None
    #: None: the offset is removed.
    offsets: dict[PartitionKey, OffsetRecord | None] = field(default_factory=dict)
    answers: list[tuple[asyncio.Future[Any], Any]] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.saves and not self.offsets


class GroupSlot:
    """One group."""

    def __init__(self, machine: Machine, stored: StoredGroup) -> None:
        """Hold a machine and its mirror."""
        self.machine = machine
        self.stored = stored
        #: Of the last record that was decided.
        self.generation_id = machine.generation_id
        self.pending: Batch | None = None
        self.flying: Batch | None = None
        self.writer: asyncio.Task[None] | None = None
        #: What it counts of the room of all groups: its record, and its offsets with those on their way.
        self.record_bytes = 0
        #: Of the record that was written last.
        self.written_bytes = 0
        self.offset_bytes = sum(each.stored_bytes for each in stored.offsets.values())

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.stored.group_id

    @property
    def holds_back(self) -> bool:
        """Whether answers have to wait for a record."""
        return any(batch is not None and batch.saves for batch in (self.pending, self.flying))

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the group is in the quorum, on its way there, or expected."""
        unwritten = self.stored.record is None and self.pending is None and self.flying is None
        return unwritten and self.machine.is_empty

    def growth(self, offsets: Mapping[PartitionKey, OffsetRecord | None]) -> int:
        """Return how many bytes a group's offsets take more with some; None: removed."""
        growth = 0
        for key, offset in offsets.items():
            before = self.stored.offsets.get(key)
            for batch in (self.flying, self.pending):
                if batch is not None and key in batch.offsets:
                    before = batch.offsets[key]
            growth += 0 if offset is None else offset.stored_bytes
            growth -= 0 if before is None else before.stored_bytes
        return growth

    def next_batch(self) -> Batch:
        """Return the batch that the next write carries."""
        if self.pending is None:
            self.pending = Batch()
        return self.pending

    def answer(self, future: asyncio.Future[Any], value: Any) -> None:
        """Answer, now or after the records that were decided before."""
        if self.holds_back:
            self.next_batch().answers.append((future, value))
        elif not future.done():
            future.set_result(value)

    def fail(self, error: Exception) -> None:
        """Answer all that waits for a write with an error."""
        for batch in (self.flying, self.pending):
            for future, _ in batch.answers if batch is not None else ():
                if not future.done():
                    future.set_exception(error)
        self.pending = None
