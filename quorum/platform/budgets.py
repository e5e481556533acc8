"""What all connections of a port may hold together, in bytes, and which of them goes when it is too much.

Decides that the fattest connection goes when a budget is exceeded: many small peers never pay for a large
one. Two budgets: bytes that were received and are not dealt with, and bytes of answers that nobody reads.
Knows no protocol. Soft state only.

A budget is judged at the end of a turn, never while connections are iterated over. What waits unread is noted
when it is written and looked at again before anybody is dropped for it, so a stale number costs nobody the
connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Generic, Protocol, TypeVar

#: unread bytes of a connection that are not counted: a few, until its peer's next read
UNREAD_NOTED_BYTES_MIN: Final = 4096


class Holder(Protocol):
    """A connection that holds bytes."""

    def unsent_bytes(self) -> int:
        """Return what its peer has not taken, if that is worth counting."""

    def drop(self) -> None:
        """End it at once, with all that it holds."""


H = TypeVar("H", bound=Holder)


class ByteBudget(Generic[H]):
    """Bytes that connections hold, bounded in all."""

    def __init__(self, what: str, setting: str, bytes_max: int) -> None:
        """Begin with nothing.

        Args:
            what: the bytes, in words. setting: the key that bounds them. bytes_max: of all connections.
        """
        self.what = what
        self.setting = setting
        self.bytes_max = bytes_max
        self.total_bytes = 0
        #: {connection: bytes}, none of 0
        self.held: dict[H, int] = {}

    def note(self, holder: H, size: int) -> None:
        """Learn how much a connection holds now."""
        self.total_bytes += size - self.held.pop(holder, 0)
        if size:
            self.held[holder] = size


class Budgets(ABC, Generic[H]):
    """The budgets of all connections of a port."""

    def __init__(self, received: ByteBudget[H], unread: ByteBudget[H]) -> None:
        """Begin with nothing held.

        Args:
            received: of what came in. unread: of what does not go out.
        """
        self.received = received
        self.unread = unread

    @abstractmethod
    def shed(self, holder: H, problem: str) -> None:
        """Count and log a connection that is dropped for what it holds."""

    def settle(self) -> None:
        """Drop the fattest connections while a budget is exceeded; at the end of a turn."""
        if self.received.total_bytes > self.received.bytes_max:
            self._shed_fattest(self.received)
        if self.unread.total_bytes > self.unread.bytes_max:
            self.look_at_unread()
            self._shed_fattest(self.unread)

    def may_write(self, holder: H, size: int) -> bool:
        """Make room for a large answer that is about to leave; false if its own connection had to go for it.

        What an aborted transport holds is free only in the loop's next turn: dropping what is not written yet
        bounds what answers of one turn cost. So the asker goes unless another one holds twice as much.
        """
        budget = self.unread
        if budget.total_bytes + size > budget.bytes_max:
            self.look_at_unread()
        while budget.total_bytes + size > budget.bytes_max:
            wanted = budget.held.get(holder, 0) + size
            fattest = max(budget.held, key=budget.held.__getitem__, default=holder)
            if fattest is holder or budget.held[fattest] < 2 * wanted:
                self.drop(holder, wanted, budget.what, budget.setting, budget.bytes_max)
                budget.note(holder, 0)
                return False
            self.drop(fattest, budget.held[fattest], budget.what, budget.setting, budget.bytes_max)
            budget.note(fattest, 0)
        return True

    def look_at_unread(self) -> None:
        """See how much of what was noted is still unread."""
        for holder in list(self.unread.held):
            self.unread.note(holder, holder.unsent_bytes())

    def forget(self, holder: H) -> None:
        """A connection is gone, and what it held with it."""
        self.received.note(holder, 0)
        self.unread.note(holder, 0)

    def drop(self, holder: H, held: int, what: str, setting: str, limit: int) -> None:
        """Drop a connection for what it holds; the bytes in words, the key that bounds them, its value."""
        self.shed(
            holder,
            f"all clients together hold too many {what} ({setting} = {limit}), it holds {held}",
        )
        holder.drop()

    def _shed_fattest(self, budget: ByteBudget[H]) -> None:
        while budget.total_bytes > budget.bytes_max:
            holder = max(budget.held, key=budget.held.__getitem__)
            self.drop(holder, budget.held[holder], budget.what, budget.setting, budget.bytes_max)
            # What it holds goes when its transport does, at once.
            budget.note(holder, 0)
