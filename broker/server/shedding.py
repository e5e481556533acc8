"""What all connections of a listener may hold together, and which of them goes when it is too much.

Decides by bytes (quorum/platform/budgets.py), by number and by silence. At the limit of connections the one
goes that was silent the longest and waits for nothing; after connections_max_idle_ms of silence it goes in
any case. A peer that has proved that it is a broker never goes for its silence, and those that have not hold
at most half of the room of their listener: no flood keeps followers out. Soft state only.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from broker.config.sections import BrokerLimitsSection
from broker.server.refusals import Refusals
from quorum.platform.accepting import Room
from quorum.platform.budgets import Budgets, ByteBudget, Holder

#: between two looks at what is idle and what is unread
TICK_S: Final = 1.0
#: at the limit a connection goes that was silent for so long although its request is not answered
SILENT_S_MIN: Final = 30.0
#: an answer of records has room for so much, however much others leave unread
ANSWER_BYTES_MIN: Final = 1024 * 1024
#: and for this share of what is left: many are read at the same time
_ANSWER_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class ListenerLimits(BrokerLimitsSection):
    """What one listener and each of its connections may hold."""

    #: a peer of the broker listener that has not authenticated by then is cut off
    authentication_timeout_ms: int = 10_000


class IdleHolder(Holder, Protocol):
    """A connection, as far as it matters for which one goes."""

    #: host:port of the peer
    peer: str

    def is_idle(self) -> bool:
        """Tell whether nothing is done for the peer."""


C = TypeVar("C", bound=IdleHolder)


class Shedder(Budgets[C]):
    """The bounds of all connections of a listener."""

    def __init__(
        self,
        name: str,
        limits: ListenerLimits,
        connections_max: int,
        *,
        proofs: bool,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch over connections.

        Args:
            name: the listener's name.
            limits: bounds.
            connections_max: how many there may be.
            proofs: whether peers must prove what they are.
            now_s: a monotonic clock.
        """
        super().__init__(
            ByteBudget(
                "bytes of requests that are not answered yet",
                "limits.received_bytes_total_max",
                limits.received_bytes_total_max,
            ),
            ByteBudget(
                "bytes of answers that are not read",
                "limits.unread_bytes_total_max",
                limits.unread_bytes_total_max,
            ),
        )
        self._idle_s = limits.connections_max_idle_ms / 1000
        self._proofs = proofs
        self._now_s = now_s
        self._room = Room(name, connections_max, now_s)
        #: connections that may go: {connection: when it was last heard}, the longest silent first
        self._strangers: OrderedDict[C, float] = OrderedDict()
        self._proven: dict[C, None] = {}
        #: connections that went
        self.gone = Refusals(name)

    @property
    def connections(self) -> list[C]:
        """All connections."""
        return [*self._strangers, *self._proven]

    def opened(self, connection: C) -> None:
        """Learn of a connection; another one may go for it."""
        problem = f"idle the longest of {self._room.limit()} (limits.connections_max)"
        while not self._fits(len(self._strangers)):
            goes = self._idlest() or connection
            self._let_go(goes, problem)
            if goes is connection:
                return
        self._strangers[connection] = self._now_s()

    def proved(self, connection: C) -> None:
        """A peer has proved that it is a broker."""
        if self._strangers.pop(connection, None) is not None:
            self._proven[connection] = None

    def touched(self, connection: C) -> None:
        """A peer has sent or read something."""
        if connection in self._strangers:
            self._strangers[connection] = self._now_s()
            self._strangers.move_to_end(connection)

    def closed(self, connection: C) -> None:
        """A connection is gone."""
        self._strangers.pop(connection, None)
        self._proven.pop(connection, None)
        self.forget(connection)

    # -- room --

    def has_room(self, coming: int) -> bool:
        """Say whether one more may be accepted with so many that are coming, or one may go for it."""
        if self._fits(len(self._strangers) + coming) or self._idlest() is not None:
            return True
        return self._room.is_left(self._room.limit())

    def _fits(self, strangers: int) -> bool:
        """Say whether there is room for one more besides so many that may go."""
        limit = self._room.limit()
        strangers_max = max(1, limit // 2) if self._proofs else limit
        return strangers < strangers_max and strangers + len(self._proven) < limit

    def no_files(self) -> None:
        """The system has no file left: let the idlest go, and for a while no others in."""
        for _ in range(self._room.ran_out(len(self._strangers) + len(self._proven))):
            if (connection := self._idlest()) is None:
                return
            self._let_go(connection, "idle the longest when no file was left to open")

    def _idlest(self) -> C | None:
        idle = next((each for each in self._strangers if each.is_idle()), None)
        if idle is not None:
            return idle
        for connection, heard_s in self._strangers.items():
            return connection if self._now_s() - heard_s >= SILENT_S_MIN else None
        return None

    def tick(self) -> None:
        """Look at what is unread and what is idle; call it every TICK_S."""
        for connection, before in list(self.unread.held.items()):
            unread = connection.unsent_bytes()
            if unread < before:
                self.touched(connection)
            self.unread.note(connection, unread)
        overdue_s = self._now_s() - self._idle_s
        overdue = []
        for connection, heard_s in self._strangers.items():
            if heard_s > overdue_s:
                break
            if connection.is_idle():
                overdue.append(connection)
        for connection in overdue:
            self._let_go(
                connection, f"idle for {self._idle_s * 1000:.0f} ms (limits.connections_max_idle_ms)"
            )

    # -- bytes --

    def answer_bytes_max(self) -> int:
        """Return how many bytes of records an answer may have that begins now."""
        return max(ANSWER_BYTES_MIN, (self.unread.bytes_max - self.unread.total_bytes) // _ANSWER_SHARE)

    def shed(self, holder: C, problem: str) -> None:
        """Count and log a connection that is dropped for what it holds."""
        self.gone.note(holder.peer, problem)

    def _let_go(self, connection: C, problem: str) -> None:
        # At once, so that the next one that is asked for is another.
        self.closed(connection)
        self.shed(connection, problem)
        connection.drop()
