"""Clients of the node itself, for what operators write and read linearizably over HTTP.

A request of HTTP becomes one of ZooKeeper's protocol on the node's own client port, so access lists, limits
and the order of commits are those of every client. Only what all clients must prove is not asked of it: it
shows that it is of the same process, and has no identity then but its address and the one that the caller of
the admin port has proved. Decides how long the session of an identity's requests lives: it begins with the
first and ends when none came for a while. Soft state only.

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

#: (scheme, id), as access lists have it
Identity = tuple[str, str]
Proof = Callable[[Identity | None], bytes]


class _Lent:
    """The client of one identity, and who uses it."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.starting = asyncio.Lock()
        self.users = 0
        self.idle: asyncio.TimerHandle | None = None


class Gateway:
    """The clients of an admin port, on the node's loop: one for each identity that asks."""

    def __init__(self, hosts: str, proof: Proof, tls: MakeContext | None = None) -> None:
        """Connect to nothing yet.

        Args:
            hosts: of the node's client port.
            proof: returns what the client of an identity proves; None: of nobody.
            tls: makes the context of each connection; None: plain.
        """
        self._hosts = hosts
        self._proof = proof
        self._tls = tls
        #: {identity: its client}; as many as the admin port knows callers
        self._lent: dict[Identity | None, _Lent] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def client(self, identity: Identity | None = None) -> AsyncIterator[Client]:
        """Lend a client for a request.

        Args:
            identity: (scheme, id) that the caller counts as in access lists; None: none but its address.
        """
        lent = self._lent.setdefault(identity, _Lent())
        if lent.idle is not None:
            lent.idle.cancel()
            lent.idle = None
        lent.users += 1
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                async with lent.starting:
                    if lent.client is None:
                        lent.client = Client(self._hosts, tls=self._tls)
                        await lent.client.start()
                        await lent.client.add_auth("node", self._proof(identity))
                yield lent.client
        except (TimeoutError, SessionExpiredError, ClientClosedError, NoServerError):
            # The next request has another one.
            self._let_go(lent)
            raise
        finally:
            lent.users -= 1
            if not lent.users:
                lent.idle = asyncio.get_running_loop().call_later(IDLE_S, self._end, identity)

    def _end(self, identity: Identity | None) -> None:
        if (lent := self._lent.pop(identity, None)) is not None:
            self._let_go(lent)

    def _let_go(self, lent: _Lent) -> None:
        client, lent.client = lent.client, None
        if client is not None:
            closing = asyncio.ensure_future(client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End the sessions."""
        for lent in self._lent.values():
            if lent.idle is not None:
                lent.idle.cancel()
            self._let_go(lent)
        self._lent.clear()
        await asyncio.gather(*self._closing, return_exceptions=True)
