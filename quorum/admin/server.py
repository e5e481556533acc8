"""The listening socket of the admin port.

Decides how many connections are held, and how they begin and end; the application decides what they get.
When too many are open the oldest makes room, so that idle ones never keep a health check out. Soft state
only.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from quorum.errors import QuorateError
from quorum.platform.accepting import Acceptor
from quorum.platform.listening import Listen, bind
from quorum.platform.tls import TlsPort

#: Connections that are held at once.
CONNECTIONS_MAX: Final = 256
#: Seconds that a connection may idle, also before its first request.
IDLE_TIMEOUT_S: Final = 30.0
#: Seconds that a request under way may take when the server stops.
_STOP_TIMEOUT_S: Final = 1.0
#: of a request's line, which may hold two texts of any letters
_LINE_BYTES_MAX: Final = 64 * 1024
_HEADER_BYTES_MAX: Final = 8190
_HEADERS_MAX: Final = 64


class _WithoutStacks(logging.LoggerAdapter[logging.Logger]):
    """Says in one line what a peer sent wrong; the stack of the parser that noticed tells nobody anything."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Put the error after the message in place of its stack."""
        error = kwargs.pop("exc_info", None)
        if error is True:
            error = sys.exc_info()[1]
        elif isinstance(error, tuple):
            error = error[1]
        # What a peer sent may look like a format.
        return (f"{msg}: {str(error).replace('%', '%%')}" if error else msg), kwargs


_QUIET_LOG: Final = _WithoutStacks(logging.getLogger("quorate.admin"))


_CONNECTION: Final[Mapping[str, Any]] = {
    "access_log": None,
    "logger": _QUIET_LOG,
    "keepalive_timeout": IDLE_TIMEOUT_S,
    "max_line_size": _LINE_BYTES_MAX,
    "max_field_size": _HEADER_BYTES_MAX,
    "max_headers": _HEADERS_MAX,
}


class AdminServer:
    """Serves an application on one socket, on the running loop."""

    def __init__(
        self,
        app: web.Application,
        listen: Listen,
        tls: TlsPort | None = None,
        handler: type[RequestHandler] = RequestHandler,
    ) -> None:
        """Nothing is bound before `start`.

        Args:
            app: what build_app returned; served once.
            listen: (host, port), or a bound socket, whose ownership passes to the server.
            tls: how connections become TLS; None: they stay plain.
            handler: of one connection: answers what is no HTTP.
        """
        self._listen = listen
        self._tls = tls
        self._handler = handler
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=_STOP_TIMEOUT_S)
        self._acceptor: Acceptor | None = None

    async def start(self) -> None:
        """Bind and serve."""
        listener = bind("listen.admin", self._listen)
        await self._runner.setup()
        self._acceptor = Acceptor(listener, self._accept, lambda _: True, tls=self._tls)
        self._acceptor.start()

    async def stop(self) -> None:
        """Close the socket, let requests under way end for a second, and close every connection."""
        if self._acceptor is not None:
            self._acceptor.stop()
            self._acceptor = None
        await self._runner.cleanup()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that the server listens on; only while it serves."""
        if self._acceptor is None:
            raise QuorateError("the admin server does not listen", "await start() first")
        return self._acceptor.address

    def _accept(self) -> RequestHandler:
        server = self._runner.server
        assert server is not None
        open_connections = server.connections
        if len(open_connections) >= CONNECTIONS_MAX:
            open_connections[0].force_close()
        return self._handler(server, loop=asyncio.get_running_loop(), **_CONNECTION)
