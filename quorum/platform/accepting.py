"""Accepts connections on a listening socket for as long as there is room for them.

Decides when accepting pauses: while as many connections are open as there may be, and for a while after the
system had no file left for one. What waits then stays in the system's queue, or its peer tries another
server; nothing of it costs this process memory or a file. Knows no protocol. Soft state only.

Not asyncio's own server: on a lack of files uvloop accepts and drops all that wait.
Source: accept(2); asyncio (`connect_accepted_socket`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from quorum.errors import NO_FILES_ERRNOS
from quorum.platform.tls import TlsPort

log = logging.getLogger("quorate.listener")

#: connections that the system may hold before they are accepted: a storm of reconnecting clients fits
BACKLOG: Final = 1024
#: connections accepted in one turn of the loop
ACCEPTS_PER_TURN_MAX: Final = 64
#: how often a pause looks for room
ROOM_INTERVAL_S: Final = 0.05
#: how long accepting pauses after the system had no file left
NO_FILES_PAUSE_S: Final = 1.0
#: besides files, what a system may lack for a socket
_SHORTAGES: Final = (*NO_FILES_ERRNOS, errno.ENOBUFS, errno.ENOMEM)


#: how many connections go at once when the system has no file left, and so many stay free then
SHED_CONNECTIONS: Final = 16
#: how long fewer connections are let in after that, and how long a full port is not reported again
FEWER_S: Final = 60.0


class Room:
    """How many connections there may be on a port."""

    def __init__(self, port: str, connections_max: int, now_s: Callable[[], float]) -> None:
        """Have room for so many.

        Args:
            port: its name, for the log. connections_max: 0 for any number. now_s: a monotonic clock.
        """
        self._port = port
        self._connections_max = connections_max
        self._now_s = now_s
        #: what there may be until then, because files ran out
        self._fewer = 0
        self._fewer_until_s = float("-inf")
        self._logged_until_s = float("-inf")

    def limit(self) -> int:
        """Return how many connections there may be now; 0: any number."""
        if self._fewer_until_s <= self._now_s():
            return self._connections_max
        return min(self._connections_max or self._fewer, self._fewer)

    def is_left(self, count: int) -> bool:
        """Tell whether one more may come to so many; logs a port that is full."""
        limit = self.limit()
        if limit == 0 or count < limit:
            return True
        now_s = self._now_s()
        if self._logged_until_s <= now_s:
            self._logged_until_s = now_s + FEWER_S
            log.warning(
                "accepting pauses on the %s port: at most %d connections may be open", self._port, limit
            )
        return False

    def ran_out(self, count: int) -> int:
        """No file is left: have room for fewer for a while; returns how many of `count` must go."""
        self._fewer = max(1, count - SHED_CONNECTIONS)
        self._fewer_until_s = self._now_s() + FEWER_S
        log.warning(
            "no file is left to open: %d connections on the %s port go, at most %d are open for %g s",
            count - self._fewer,
            self._port,
            self._fewer,
            FEWER_S,
        )
        return count - self._fewer


class Acceptor:
    """Accepts on one socket."""

    def __init__(
        self,
        bound: socket.socket,
        factory: Callable[[], asyncio.BaseProtocol],
        has_room: Callable[[int], bool],
        on_shortage: Callable[[], None] = lambda: None,
        tls: TlsPort | None = None,
    ) -> None:
        """Accept nothing yet; see `start`.

        Args:
            bound: a bound, non-blocking socket; it belongs to the acceptor from now on.
            factory: makes the protocol of a connection.
            has_room: tells whether one more may be open with so many that were accepted and not made yet.
            on_shortage: called when the system had no file left for a connection.
            tls: how connections become TLS; None: they stay plain.
        """
        self._bound = bound
        self._factory = factory
        self._has_room = has_room
        self._on_shortage = on_shortage
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._making: set[asyncio.Task[None]] = set()
        #: accepted, and their task has not begun
        self._waiting: set[socket.socket] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened at."""
        name = self._bound.getsockname()
        return name[0], name[1]

    def start(self) -> None:
        """Begin to accept."""
        self._bound.listen(BACKLOG)
        self._loop.add_reader(self._bound, self._accept)

    def stop(self) -> None:
        """Accept nobody any more; what waits is refused. What was accepted is the owner's to close."""
        if self._stopped:
            return
        self._stopped = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._bound)
        for task in self._making:
            task.cancel()
        # Cancelled so, a task closes nothing.
        for accepted in self._waiting:
            accepted.close()
        self._bound.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if not self._has_room(len(self._making)):
                self._wait(ROOM_INTERVAL_S)
                return
            try:
                accepted, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                log.warning("accepting pauses for %g s: %s", NO_FILES_PAUSE_S, error.strerror)
                self._wait(NO_FILES_PAUSE_S)
                self._on_shortage()
                return
            accepted.setblocking(False)
            self._waiting.add(accepted)
            task = self._loop.create_task(self._make(accepted))
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _make(self, accepted: socket.socket) -> None:
        self._waiting.discard(accepted)
        if self._tls is not None:
            await self._tls.open(self._factory, accepted)
            return
        try:
            await self._loop.connect_accepted_socket(self._factory, accepted)
        except OSError as error:
            # Its peer has gone already.
            log.info("a connection ended while it was accepted: %s", error)
            accepted.close()

    def _wait(self, pause_s: float) -> None:
        self._loop.remove_reader(self._bound)
        self._pause = self._loop.call_later(pause_s, self._look)

    def _look(self) -> None:
        if not self._has_room(len(self._making)):
            self._pause = self._loop.call_later(ROOM_INTERVAL_S, self._look)
            return
        self._pause = None
        self._loop.add_reader(self._bound, self._accept)
