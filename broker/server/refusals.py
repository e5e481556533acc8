"""Connections that a listener closed, for their peers' mistakes or its own: counted, logged within bounds.

Decides what is logged: the first refusal at once, those of the next second together in one line. So a peer
that fails again and again, or many of them, cannot fill the log. Faults of this broker likewise, each line
with the stack of the last one. Soft state only.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

log = logging.getLogger("quorate.broker.server")

#: between two lines
INTERVAL_S: Final = 1.0


class Refusals:
    """The refusals of one listener."""

    def __init__(self, name: str) -> None:
        """Begin with none.

        Args:
            name: the listener's name.
        """
        self._name = name
        #: since the start
        self.count = 0
        self._unlogged = 0
        #: peer, problem, and the error if it was a fault
        self._last: tuple[str, str, Exception | None] = ("", "", None)
        self._timer: asyncio.TimerHandle | None = None

    def note(self, peer: str, problem: str, error: Exception | None = None) -> None:
        """Count a connection that is closed, by an error or by its peer; log it now or with others."""
        self.count += 1
        self._last = (peer, problem, error)
        if self._timer is not None:
            self._unlogged += 1
            return
        self._log(f"closed the connection of {peer}: {problem}", error)
        self._wait()

    def stop(self) -> None:
        """Log what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._interval_ended)

    def _interval_ended(self) -> None:
        if self._tell():
            self._wait()

    def _tell(self) -> bool:
        """Log those that are not logged yet; returns whether there were any."""
        count, self._unlogged, self._timer = self._unlogged, 0, None
        if count:
            peer, problem, error = self._last
            self._log(f"closed {count} more connections, the last one of {peer}: {problem}", error)
        return count > 0

    def _log(self, told: str, error: Exception | None) -> None:
        level = logging.WARNING if error is None else logging.ERROR
        log.log(level, "%s listener: %s", self._name, told, exc_info=error)
