"""The listening socket of the client port.

Accepts connections and hands each to the front end; decides nothing about them. Takes an address, or a
socket that was bound before, so that a launcher can find free ports without a race.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from quorum.errors import AddressInUseError
from quorum.server.frontend import Frontend

#: Connections that the system may hold before they are accepted: a storm of reconnecting clients fits.
BACKLOG: Final = 1024


class ClientListener:
    """Accepts clients."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen on an address; port 0 takes any.

        Raises:
            AddressInUseError: the address is taken, or cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                self._frontend.new_connection, host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as error:
            raise AddressInUseError(
                f"listen.client = {host}:{port}: {error.strerror or error}",
                "stop what listens there, or configure another address",
            ) from error

    async def start_on(self, bound: socket.socket) -> None:
        """Listen on a socket that is bound already; it belongs to the listener from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._frontend.new_connection, sock=bound, backlog=BACKLOG)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that clients reach."""
        assert self._server is not None
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    async def stop(self) -> None:
        """Stop listening, then close every connection after what is queued for it."""
        if self._server is not None:
            self._server.close()
        self._frontend.close()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
