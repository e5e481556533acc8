"""A listening socket and its connections.

Decides how many connections there may be: at most half of the files that this process may open, the others
are for logs; then accepting pauses. When the system has no file left, connections that wait for nothing go.
What is served comes from outside; one connection knows nothing of the others. Soft state only.
Source: control-plane design, "Broker" (limits).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict

from broker.server.connection import Connection, ListenerLimits
from broker.server.refusals import Refusals
from broker.server.requests import Api
from broker.server.turns import Turns
from broker.wire.apis import ApiKey
from controller.messages.scram import ScramServer
from quorum.platform.accepting import Acceptor, Room
from quorum.platform.histogram import Histogram
from quorum.platform.listening import bind
from quorum.platform.open_files import connections_within, open_files_max

__all__ = ["Listener", "ListenerLimits"]


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
        self._refusals = Refusals(name)
        self._failures = Refusals(name)
        self._turns = Turns()
        #: {api key: from the arrival of a request until its response}
        self._times: defaultdict[int, Histogram] = defaultdict(Histogram)
        self._acceptor: Acceptor | None = None
        #: in the order in which they were let in
        self._connections: dict[Connection, None] = {}
        files = open_files_max()
        connections_max = min(limits.connections_max, connections_within(files, files))
        self._room = Room(name, connections_max, time.monotonic)

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
            AddressInUseError: another process listens there.
            ConfigError: the address cannot be used.
        """
        listener = cls(name, api, sasl, limits or ListenerLimits())
        listener._listen(bind(f"listen.{name}", (host, port)))
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
        listener._listen(bound)
        return listener

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened at."""
        assert self._acceptor is not None
        return self._acceptor.address

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def refused_count(self) -> int:
        """Connections that were closed because of what their peers did."""
        return self._refusals.count

    def times(self) -> dict[str, Histogram]:
        """Return {name of an API: how long its requests took}."""
        return {ApiKey(key).name: found for key, found in self._times.items()}

    async def stop(self) -> None:
        """Stop listening, and end every connection with what it has begun."""
        if self._acceptor is not None:
            self._acceptor.stop()
            self._acceptor = None
        connections = list(self._connections)
        tasks = [task for connection in connections for task in connection.tasks]
        for connection in connections:
            connection.abort()
        # Each task has told its own story; here they only have to be over.
        await asyncio.gather(*tasks, return_exceptions=True)
        self._refusals.stop()
        self._failures.stop()

    def _listen(self, bound: socket.socket) -> None:
        self._acceptor = Acceptor(bound, self._connection, self._has_room, self._no_files)
        self._acceptor.start()

    def _connection(self) -> Connection:
        return Connection(
            self._api,
            self._sasl,
            self._limits,
            self._refusals,
            self._failures,
            self._turns,
            self._times,
            self._opened,
            self._closed,
        )

    def _has_room(self, coming: int) -> bool:
        return self._room.is_left(len(self._connections) + coming)

    def _no_files(self) -> None:
        idle = [each for each in self._connections if each.is_idle()]
        for connection in idle[: self._room.ran_out(len(self._connections))]:
            connection.abort()

    def _opened(self, connection: Connection) -> None:
        self._connections[connection] = None

    def _closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
