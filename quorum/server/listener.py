"""The listening socket of the client port.

Accepts connections and hands each to the front end; decides nothing about them. The socket is bound by
whoever starts the node, so that free ports can be found without a race. Soft state only.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from quorum.server.frontend import Frontend

#: Connections that the system may hold before they are accepted: a storm of reconnecting clients fits.
BACKLOG: Final = 1024


class ClientListener:
    """Accepts clients."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._server: asyncio.Server | None = None

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a bound socket; it belongs to the listener from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._frontend.new_connection, sock=bound, backlog=BACKLOG)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients reach."""
        assert self._server is not None
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    async def stop(self) -> None:
        """Stop listening and close every connection; what is queued for it leaves if it is read soon."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._frontend.stop()
