"""The listening sockets of clients, plain and by TLS.

Accepts connections and hands each to the front end, as long as there is room for it: `connections_max` keeps
files free for the journal and the peers, and where the system has none left all the same, idle clients go.
The socket is bound before the node starts, so that free ports can be found without a race.
Soft state only.
"""

from __future__ import annotations

import socket

from quorum.platform.accepting import Acceptor
from quorum.platform.tls import TlsPort
from quorum.server.frontend import Frontend


class ClientListener:
    """Accepts clients."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._acceptors: list[Acceptor] = []

    def start_on(self, bound: socket.socket, tls: TlsPort | None = None) -> None:
        """Listen on a bound socket; it belongs to the listener from now on."""
        frontend = self._frontend
        acceptor = Acceptor(
            bound, lambda: frontend.new_connection().stream, frontend.has_room, frontend.no_files, tls
        )
        self._acceptors.append(acceptor)
        acceptor.start()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports that clients reach."""
        return [each.address for each in self._acceptors]

    async def stop(self) -> None:
        """Stop listening and close every connection; what is queued for it leaves if it is read soon."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors.clear()
        await self._frontend.stop()
