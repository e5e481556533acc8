"""A client of the node itself, for what operators write and read linearizably over HTTP.

A request of HTTP becomes one of ZooKeeper's protocol on the node's own client port, so access lists, limits
and the order of commits are those of every client. Only what all clients must prove is not asked of it: it
shows that it is of the same process, and has no identity then but its address. Decides how long the session
of these requests lives: it begins with the first and ends when none came for a while. Soft state only.

Source: quorum.client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from quorum.client import Client, ClientClosedError, NoServerError, SessionExpiredError
from quorum.platform.tls import MakeContext

#: how long the session outlives its last request
IDLE_S: Final = 10.0
#: for a request, its session's begin included
REQUEST_TIMEOUT_S: Final = 10.0


class Gateway:
    """The client of an admin port, on the node's loop."""

    def __init__(self, hosts: str, proof: Callable[[], bytes], tls: MakeContext | None = None) -> None:
        """Connect to nothing yet.

        Args:
            hosts: of the node's client port. proof: returns ServerOptions.own_proof.
            tls: makes the context of each connection; None: plain.
        """
        self._hosts = hosts
        self._proof = proof
        self._tls = tls
        self._client: Client | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Lend the client for a request."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._users += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                async with self._starting:
                    if self._client is None:
                        self._client = Client(self._hosts, tls=self._tls)
                        await self._client.start()
                        await self._client.add_auth("node", self._proof())
                yield self._client
        except (TimeoutError, SessionExpiredError, ClientClosedError, NoServerError):
            # The next request has another one.
            self._let_go()
            raise
        finally:
            self._users -= 1
            if not self._users and self._client is not None:
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._let_go)

    def _let_go(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            closing = asyncio.ensure_future(client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End the session."""
        if self._idle is not None:
            self._idle.cancel()
        self._let_go()
        await asyncio.gather(*self._closing, return_exceptions=True)
