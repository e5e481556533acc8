"""One group of a term: its machine, what the quorum holds of it, and what is on its way there.

One write of a group is in flight; what is decided meanwhile is merged into the next one. An answer waits for
every record that was decided before it; the answer to a commit waits for its offsets.
Soft state only, but `stored`, which mirrors the znodes.
Source: ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.writing import GroupWrite, StoredGroup
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey

Machine = ClassicGroup | ConsumerGroup


class GroupSlot:
    """One group."""

    def __init__(self, machine: Machine, stored: StoredGroup) -> None:
        """Hold a machine and its mirror."""
        self.machine = machine
        self.stored = stored
        #: Of the last record that was decided.
        self.generation_id = machine.generation_id
        self.pending: GroupWrite | None = None
        self.flying: GroupWrite | None = None
        #: What comes before `pending`: loans, and what was decided before each.
        self.queued: list[GroupWrite] = []
        #: Requests to delete the group, which wait for its writes.
        self.deletions: list[int | None] = []
        #: What it counts of the room of all groups: its record, and its offsets with those on their way.
        self.record_bytes = 0
        #: Of the record that was written last.
        self.written_bytes = 0
        self.offset_bytes = sum(each.stored_bytes for each in stored.offsets.values())
        #: While topics are read: those that had offsets at the begin, and got none since.
        self.known_topics: frozenset[str] = frozenset()

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.stored.group_id

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the group is in the quorum, on its way there, or expected."""
        unwritten = self.stored.record is None and self.pending is None and self.flying is None
        return unwritten and not self.queued and self.machine.is_empty

    def summary(self) -> str:
        """Say in one line where the group stands."""
        machine = self.machine
        return (
            f"group {self.group_id!r}: {machine.state.value}, generation {machine.generation_id}, "
            f"{machine.member_count} members, protocol {machine.protocol} ({machine.reason})"
        )

    def growth(self, offsets: Mapping[PartitionKey, OffsetRecord | None]) -> int:
        """Return how many bytes a group's offsets take more with some; None: removed."""
        growth = 0
        held = [write.offsets for write in (self.flying, *self.queued, self.pending) if write is not None]
        for key, offset in offsets.items():
            before = self.stored.offsets.get(key)
            for each in held:
                before = each.get(key, before)
            growth += 0 if offset is None else offset.stored_bytes
            growth -= 0 if before is None else before.stored_bytes
        return growth

    def next_write(self) -> GroupWrite:
        """Return what the next write carries."""
        if self.pending is None:
            self.pending = GroupWrite()
        return self.pending

    def lend(self, loan: GroupWrite) -> None:
        """Let a transaction write the group, behind what is decided by now."""
        self.queued += (loan,) if self.pending is None else (self.pending, loan)
        self.pending = None

    def take_next(self) -> GroupWrite | None:
        """Return the write that is next; None: there is none."""
        if self.queued:
            return self.queued.pop(0)
        write, self.pending = self.pending, None
        return write

    def last_saving(self) -> GroupWrite | None:
        """Return the last write that has a record; None: every record that was decided is durable."""
        for write in (self.pending, *reversed(self.queued), self.flying):
            if write is not None and write.record is not None:
                return write
        return None
