"""What all clients of a node may hold together, and who goes when it is too much.

Bounds of the whole node, beside those of a connection: bytes received and not taken apart yet, bytes that
nobody reads, bytes of watches, and connections. The fattest connection goes when a budget of bytes is
exceeded: many small clients never pay for a large one. When the system has no file left, those go that are
idle the longest, first those without a session. Decides nothing about requests. Soft state only.

A budget is judged at the end of a turn, never while connections are iterated over. What waits unread is noted
when it is written and looked at again at each tick and before anybody is dropped for it, so a stale number
costs nobody the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quorum.platform.accepting import Room
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView

if TYPE_CHECKING:
    from quorum.server.greeting import GreetingStream
    from quorum.server.stream import ClientStream

log = logging.getLogger("quorate.server")

#: unread bytes of a connection that are not counted: a few, until its peer's next read
UNREAD_NOTED_BYTES_MIN: Final = 4096
#: refused requests are logged once in so long
REFUSALS_INTERVAL_MS: Final = 1000.0


class ByteBudget:
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
        self.held: dict[ClientStream, int] = {}

    def note(self, stream: ClientStream, size: int) -> None:
        """Learn how much a connection holds now."""
        self.total_bytes += size - self.held.pop(stream, 0)
        if size:
            self.held[stream] = size


class Shedder:
    """The bounds of all connections of a node."""

    def __init__(
        self,
        options: ServerOptions,
        counters: Counters,
        streams: dict[ClientStream, None],
        now_ms: Callable[[], float],
    ) -> None:
        """Watch over connections.

        Args:
            options: the limits. counters: gets what is shed. streams: every connection, kept by the owner.
            now_ms: a monotonic clock.
        """
        self._options = options
        self._counters = counters
        self._streams = streams
        self.replica: ReplicaView
        self.received = ByteBudget(
            "received bytes that are no whole request yet",
            "received_bytes_total_max",
            options.received_bytes_total_max,
        )
        self.unread = ByteBudget(
            "bytes of replies that are not read", "unread_bytes_total_max", options.unread_bytes_total_max
        )
        self._room = Room("client", options.connections_max, lambda: now_ms() / 1000)
        #: requests refused since the last line of the log, and the last of them
        self._refused = 0
        self._last_refusal = ("", "")
        self._refusals_logged_ms = float("-inf")

    # -- connections --

    def has_room(self, coming: int) -> bool:
        """Tell whether one more connection may be accepted beside so many that are coming."""
        return self._room.is_left(len(self._streams) + coming)

    def no_files(self) -> None:
        """The system has no file left: let the idlest connections go, and for a while no others in."""
        for stream in self._idlest(self._room.ran_out(len(self._streams))):
            self._counters.connections_shed += 1
            stream.drop()

    def _idlest(self, count: int) -> list[ClientStream]:
        """Return who says least: who has no session, the oldest first, then who was silent the longest."""

        def idleness(stream: ClientStream) -> tuple[bool, float]:
            return stream.has_session(), stream.last_read_ms

        return sorted(self._streams, key=idleness)[:count]

    # -- bytes --

    def settle(self) -> None:
        """Drop the fattest connections while a budget of bytes is exceeded; at the end of a turn."""
        if self.received.total_bytes > self.received.bytes_max:
            self._shed_fattest(self.received)
        if self.unread.total_bytes > self.unread.bytes_max:
            self.look_at_unread()
            self._shed_fattest(self.unread)

    def may_write(self, stream: ClientStream, size: int) -> bool:
        """Make room for a large reply that is about to leave; false if its own connection had to go for it.

        What an aborted transport holds is free only in the loop's next turn: dropping what is not written yet
        bounds what replies of one turn cost. So the asker goes unless another one holds twice as much.
        """
        budget = self.unread
        if budget.total_bytes + size > budget.bytes_max:
            self.look_at_unread()
        while budget.total_bytes + size > budget.bytes_max:
            wanted = budget.held.get(stream, 0) + size
            fattest = max(budget.held, key=budget.held.__getitem__, default=stream)
            if fattest is stream or budget.held[fattest] < 2 * wanted:
                self._drop(stream, wanted, budget.what, budget.setting, budget.bytes_max)
                budget.note(stream, 0)
                return False
            self._drop(fattest, budget.held[fattest], budget.what, budget.setting, budget.bytes_max)
            budget.note(fattest, 0)
        return True

    def _shed_fattest(self, budget: ByteBudget) -> None:
        while budget.total_bytes > budget.bytes_max:
            stream = max(budget.held, key=budget.held.__getitem__)
            self._drop(stream, budget.held[stream], budget.what, budget.setting, budget.bytes_max)
            # What it holds goes when its transport does, at once.
            budget.note(stream, 0)

    def look_at_unread(self) -> None:
        """See how much of what was noted is still unread."""
        for stream in list(self.unread.held):
            self.unread.note(stream, stream.unsent_bytes())

    def make_room(self, asker: GreetingStream, size: int) -> bool:
        """Make room for watches of so many bytes; false if the asker had to go for it."""
        watches = self.replica.watches
        limit = self._options.watch_bytes_total_max
        while watches.total_bytes + size > limit:
            fattest = watches.fattest()
            wanted = watches.bytes_of(asker) + size
            if fattest is None or fattest is asker or watches.bytes_of(fattest) < wanted:
                self._drop(asker, wanted, "bytes of watches", "watch_bytes_total_max", limit)
                watches.remove_watcher(asker)
                return False
            held = watches.bytes_of(fattest)
            self._drop(fattest, held, "bytes of watches", "watch_bytes_total_max", limit)
            watches.remove_watcher(fattest)
        return True

    def _drop(self, stream: ClientStream, held: int, what: str, setting: str, limit: int) -> None:
        self._counters.connections_shed += 1
        log.warning(
            "dropped the connection of %s: all clients together hold too many %s (%s = %d), it holds %d",
            stream.address,
            what,
            setting,
            limit,
            held,
        )
        stream.drop()

    def forget(self, stream: ClientStream) -> None:
        """A connection is gone, and what it held with it."""
        self.received.note(stream, 0)
        self.unread.note(stream, 0)

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
