"""What groups hold in the quorum, all of them together, and whether there is room for more.

Every node of the quorum holds all of it in memory. What makes a group larger is refused where there is no
room; what leaves it as it is, as most commits and rebalances do, is always taken. It counts when it is
decided, so that what is on its way to the quorum has its place. A record in chunks counts as one, although it
and the one before are there together while it is written. Soft state: a term counts anew what it loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker.core.groups.model import GroupRefusal, GroupState
from broker.core.groups.slot import GroupSlot
from broker.core.groups.writing import GroupWrite
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey

#: Refusals are logged at most so often.
_LOG_INTERVAL_MS: Final = 60_000
_REBALANCES: Final = (GroupState.PREPARING, GroupState.COMPLETING)


class GroupBytes:
    """The bytes of all groups of one term."""

    def __init__(self, bytes_max: int) -> None:
        """Count from nothing."""
        self._bytes_max = bytes_max
        self.held_bytes = 0
        #: requests for which there was no room
        self.refused = 0
        #: Until when a refusal is no news.
        self._quiet_until_ms = 0

    def count(self, slot: GroupSlot) -> None:
        """Count a group's record as its machine has it now."""
        size = slot.machine.size
        if slot.machine.state in _REBALANCES:
            # The assignments that it had come back at its end; nobody else takes their place.
            size = max(size, slot.record_bytes)
        self.held_bytes += size - slot.record_bytes
        slot.record_bytes = size

    def put(self, slot: GroupSlot, offsets: Mapping[PartitionKey, OffsetRecord | None], growth: int) -> None:
        """Add offsets to what a group's next write carries; None: removed; growth: by so many bytes."""
        slot.next_write().offsets.update(offsets)
        slot.offset_bytes += growth
        self.held_bytes += growth

    def lend(self, slot: GroupSlot, loan: GroupWrite) -> None:
        """Let a transaction write offsets into a group; it had room for them."""
        growth = slot.growth(loan.offsets)
        slot.lend(loan)
        slot.offset_bytes += growth
        self.held_bytes += growth

    def recount(self, slot: GroupSlot) -> None:
        """Count a group's offsets anew, after some did not come."""
        offsets: dict[PartitionKey, OffsetRecord | None] = dict(slot.stored.offsets)
        for write in (*slot.queued, *(() if slot.pending is None else (slot.pending,))):
            offsets.update(write.offsets)
        size = sum(each.stored_bytes for each in offsets.values() if each is not None)
        self.held_bytes += size - slot.offset_bytes
        slot.offset_bytes = size

    def remove(self, slot: GroupSlot, keys: Iterable[PartitionKey]) -> None:
        """Let a group's next write remove offsets."""
        offsets = dict.fromkeys(keys)
        self.put(slot, offsets, slot.growth(offsets))

    def leave(self, slot: GroupSlot) -> None:
        """Count a group no more."""
        self.held_bytes -= slot.record_bytes + slot.offset_bytes
        slot.record_bytes = slot.offset_bytes = 0

    @property
    def free_share(self) -> float:
        """How much of the room is free: from 0 to 1."""
        return max(1 - self.held_bytes / self._bytes_max, 0.0)

    def refusal(self, name: str, growth: int, what: str = "group") -> GroupRefusal | None:
        """Say why something cannot become larger by some bytes; None: it can, by none or fewer always."""
        if growth <= 0 or self.held_bytes + growth <= self._bytes_max:
            return None
        self.refused += 1
        problem = (
            f"{what} {name!r} needs {growth} bytes more, and groups and transactional ids hold "
            f"{self.held_bytes} of the {self._bytes_max} that groups.groups_bytes_max allows"
        )
        remedy = "delete groups or offsets, send less metadata, use fewer ids, or raise the limit"
        return GroupRefusal(ErrorCode.POLICY_VIOLATION, problem, remedy)

    def news(self, refusal: GroupRefusal, now_ms: int) -> str | None:
        """Return a refusal for the log; None: one like it was there a short while ago."""
        if now_ms < self._quiet_until_ms:
            return None
        self._quiet_until_ms = now_ms + _LOG_INTERVAL_MS
        return f"refused: {refusal.problem}; {refusal.remedy}"
