"""The bytes that all clients of a node may hold together, on top of the bounds of each connection.

Two budgets: bytes received and not taken apart yet, and bytes that nobody reads (quorum/platform/budgets.py);
the fattest connection goes when one is exceeded. Also logs refused requests, at a bounded rate. Decides
nothing about requests. Soft state only.
"""

from __future__ import annotations

import logging
from typing import Final

from quorum.platform.budgets import Budgets, ByteBudget
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.stream import ClientStream

log = logging.getLogger("quorate.server")

#: refused requests are logged once in so long
REFUSALS_INTERVAL_MS: Final = 1000.0


class ClientShedder(Budgets[ClientStream]):
    """The bounds of all connections of a node."""

    def __init__(self, options: ServerOptions, counters: Counters) -> None:
        """Begin with nothing held; `counters` get what is shed."""
        self._counters = counters
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
        #: requests refused since the last line of the log, and the last of them
        self._refused = 0
        self._last_refusal = ("", "")
        self._refusals_logged_ms = float("-inf")

    def shed(self, holder: ClientStream, problem: str) -> None:
        """Count and log a connection that is dropped for what it holds."""
        self._counters.connections_shed += 1
        log.warning("dropped the connection of %s: %s", holder.address, problem)

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
