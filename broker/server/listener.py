"""A listening socket and its connections.

Decides how many connections there may be. What is served comes from outside; one connection knows nothing of
the others. Soft state only.
Source: control-plane design, "Broker" (limits).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from broker.server.connection import Connection, ListenerLimits
from broker.server.requests import Api
from controller.messages.scram import ScramServer

__all__ = ["Listener", "ListenerLimits"]

log = logging.getLogger("quorate.broker.server")

#: Connections that the system holds before they are accepted: a storm of reconnecting clients fits.
BACKLOG: Final = 1024


class Listener:
    """Accepts connections of one kind."""

    def __init__(
        self,
        name: str,
        api: Api,
        sasl: ScramServer | None,
        limits: ListenerLimits,
    ) -> None:
        """Listen to nothing yet; see `start` and `start_on`."""
        self._name = name
        self._api = api
        self._sasl = sasl
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        #: Connections that were refused since one was last let in.
        self._refused = 0

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        *,
        name: str,
        api: Api,
        sasl: ScramServer | None = None,
        limits: ListenerLimits | None = None,
    ) -> Listener:
        """Listen at an address (port 0: any free one).

        Args:
            host: an address of this machine.
            port: its port.
            name: for log lines: "client" or "broker".
            api: what is served.
            sasl: what a peer must prove first; None: nothing.
            limits: bounds; None: the defaults.

        Raises:
            OSError: the address cannot be used.
        """
        listener = cls(name, api, sasl, limits or ListenerLimits())
        loop = asyncio.get_running_loop()
        listener._server = await loop.create_server(listener._connection, host, port, backlog=BACKLOG)
        return listener

    @classmethod
    async def start_on(
        cls,
        bound: socket.socket,
        *,
        name: str,
        api: Api,
        sasl: ScramServer | None = None,
        limits: ListenerLimits | None = None,
    ) -> Listener:
        """Listen on a bound socket; it belongs to the listener from now on. Arguments as of `start`."""
        listener = cls(name, api, sasl, limits or ListenerLimits())
        loop = asyncio.get_running_loop()
        listener._server = await loop.create_server(listener._connection, sock=bound, backlog=BACKLOG)
        return listener

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened at."""
        assert self._server is not None
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    async def stop(self) -> None:
        """Stop listening, and end every connection with what it has begun."""
        if self._server is not None:
            self._server.close()
            self._server = None
        connections = list(self._connections)
        tasks = [task for connection in connections for task in connection.tasks]
        for connection in connections:
            connection.abort()
        # Each task has told its own story; here they only have to be over.
        await asyncio.gather(*tasks, return_exceptions=True)

    def _connection(self) -> Connection:
        return Connection(
            self._name, self._api, self._sasl, self._limits, self._opened, self._connections.discard
        )

    def _opened(self, connection: Connection) -> bool:
        limit = self._limits.connections_max
        if len(self._connections) >= limit:
            if self._refused == 0:
                log.warning(
                    "%s listener: connections are refused: %d are open (limits.connections_max)",
                    self._name,
                    limit,
                )
            self._refused += 1
            return False
        if self._refused:
            log.info("%s listener: %d connections were refused", self._name, self._refused)
            self._refused = 0
        self._connections.add(connection)
        return True
