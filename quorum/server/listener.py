"""The listening socket of the client port.

Accepts connections and hands each to the front end, as long as there is room for it: `connections_max` keeps
files free for the journal and the peers, and where the system has none left all the same, idle clients go.
The socket is bound before the node starts, so that free ports can be found without a race.
Soft state only.
"""

from __future__ import annotations

import socket

from quorum.platform.accepting import Acceptor
from quorum.server.frontend import Frontend


class ClientListener:
    """Accepts clients."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._acceptor: Acceptor | None = None

    def start_on(self, bound: socket.socket) -> None:
        """Listen on a bound socket; it belongs to the listener from now on."""
        frontend = self._frontend
        self._acceptor = Acceptor(
            bound, lambda: frontend.new_connection().stream, frontend.has_room, frontend.no_files
        )
        self._acceptor.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients reach."""
        assert self._acceptor is not None
        return self._acceptor.address

    async def stop(self) -> None:
        """Stop listening and close every connection; what is queued for it leaves if it is read soon."""
        if self._acceptor is not None:
            self._acceptor.stop()
            self._acceptor = None
        await self._frontend.stop()
