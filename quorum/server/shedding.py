"""What all clients of a node may hold together, and which of them goes when it is too much.

Bounds of the whole node, on top of those of a connection: bytes received and not taken apart yet, bytes that
nobody reads (quorum/platform/budgets.py), bytes of watches, and connections. The fattest connection goes when
a budget of bytes is exceeded. When the system has no file left, those go that are idle the longest, first
those without a session. Decides nothing about requests. Soft state only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from quorum.platform.accepting import Room
from quorum.platform.budgets import Budgets, ByteBudget, Holder
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView

log = logging.getLogger("quorate.server")

#: refused requests are logged once in so long
REFUSALS_INTERVAL_MS: Final = 1000.0


class Sheddable(Holder, Protocol):
    """The bytes of a connection."""

    #: host:port of the peer
    address: str


class Client(Protocol):
    """A connection, as far as it matters for who goes."""

    @property
    def stream(self) -> Sheddable:
        """Its bytes."""

    #: 0 without a session
    session_id: int
    #: when it was last heard
    last_read_ms: float


class ClientShedder(Budgets[Sheddable]):
    """The bounds of all connections of a node."""

    def __init__(
        self,
        options: ServerOptions,
        counters: Counters,
        connections: Collection[Client],
        now_ms: Callable[[], float],
    ) -> None:
        """Watch over connections.

        Args:
            options: the limits. counters: gets what is shed. connections: all of them, kept by the owner.
            now_ms: a monotonic clock.
        """
        self._options = options
        self._counters = counters
        self._connections = connections
        self.replica: ReplicaView
        super().__init__(
            ByteBudget(
                "received bytes that are no whole request yet",
                "received_bytes_total_max",
                options.received_bytes_total_max,
            ),
            ByteBudget(
                "bytes of replies that are not read", "unread_bytes_total_max", options.unread_bytes_total_max
            ),
        )
        self._room = Room("client", options.connections_max, lambda: now_ms() / 1000)
        #: requests refused since the last line of the log, and the last of them
        self._refused = 0
        self._last_refusal = ("", "")
        self._refusals_logged_ms = float("-inf")

    # -- connections --

    def has_room(self, coming: int) -> bool:
        """Tell whether one more connection may be accepted when so many are coming already."""
        return self._room.is_left(len(self._connections) + coming)

    def no_files(self) -> None:
        """The system has no file left: let the idlest connections go, and for a while no others in."""
        for connection in self._idlest(self._room.ran_out(len(self._connections))):
            self._counters.connections_shed += 1
            connection.stream.drop()

    def _idlest(self, count: int) -> list[Client]:
        """Return the idlest: those without a session, the oldest first, then those silent the longest."""

        def idleness(connection: Client) -> tuple[bool, float]:
            return connection.session_id != 0, connection.last_read_ms

        return sorted(self._connections, key=idleness)[:count]

    # -- bytes --

    def shed(self, holder: Sheddable, problem: str) -> None:
        """Count and log a connection that is dropped for what it holds."""
        self._counters.connections_shed += 1
        log.warning("dropped the connection of %s: %s", holder.address, problem)

    def make_room(self, asker: Client, size: int) -> bool:
        """Make room for watches of so many bytes; false if the asker had to go for it."""
        watches = self.replica.watches
        limit = self._options.watch_bytes_total_max
        while watches.total_bytes + size > limit:
            fattest = watches.fattest()
            wanted = watches.bytes_of(asker) + size
            if fattest is None or fattest is asker or watches.bytes_of(fattest) < wanted:
                self.drop(asker.stream, wanted, "bytes of watches", "watch_bytes_total_max", limit)
                watches.remove_watcher(asker)
                return False
            held = watches.bytes_of(fattest)
            self.drop(fattest.stream, held, "bytes of watches", "watch_bytes_total_max", limit)
            watches.remove_watcher(fattest)
        return True

    # -- refusals --

    def refused(self, address: str, reason: str) -> None:
        """Note a request that could not be decoded; `tick` tells of it."""
        self._refused += 1
        self._last_refusal = (address, reason)

    def tick(self, now_ms: float) -> None:
        """Look at what is unread, and log what was refused, at most once in REFUSALS_INTERVAL_MS."""
        self.look_at_unread()
        if self._refused and now_ms - self._refusals_logged_ms >= REFUSALS_INTERVAL_MS:
            address, reason = self._last_refusal
            log.info("refused %d requests, the last one of %s: %s", self._refused, address, reason)
            self._refused = 0
            self._refusals_logged_ms = now_ms
