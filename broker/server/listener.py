"""A listening socket and its connections.

Decides how many connections there may be: at most half of the files that this process may open for clients, a
quarter for brokers; the others are for logs. Who goes when there are more is decided by the shedder. What is
served comes from outside; one connection knows nothing of the others. Soft state only.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Sequence

from broker.config.principals import MappingRule
from broker.server.audit import RequestAudit
from broker.server.connection import ListenerConnection, Shared
from broker.server.refusals import Refusals
from broker.server.requests import Api
from broker.server.shedding import TICK_S, ListenerLimits, Shedder
from broker.server.turns import Turns
from controller.wire.apis import ApiKey
from controller.wire.scram import SaslServer
from quorum.platform.accepting import Acceptor
from quorum.platform.addresses import Addresses
from quorum.platform.audit import AuditLog
from quorum.platform.histogram import Histogram
from quorum.platform.open_files import connections_within, open_files_max
from quorum.platform.tls import TlsPort


class Listener:
    """Accepts connections of one kind."""

    def __init__(
        self,
        bound: socket.socket,
        *,
        name: str,
        api: Api,
        sasl: SaslServer | None = None,
        limits: ListenerLimits | None = None,
        tls: TlsPort | None = None,
        rules: Sequence[MappingRule] = (MappingRule(),),
        admits: frozenset[str] | None = None,
        reauth_ms: int = 0,
        audit: AuditLog | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        """Listen on a bound socket, which belongs to the listener from now on.

        Args:
            bound: to an address.
            name: for log lines: "client", "ssl" or "broker".
            api: what is served.
            sasl: what a peer must prove first; None: nothing.
            limits: bounds; None: the defaults.
            tls: how connections become TLS; None: they stay plain.
            rules: how certificates name principals.
            admits: principals of the certificates that are taken; None: none is looked at.
            reauth_ms: for how long a user's proof holds; 0: for ever.
            audit: where proofs that failed are noted; None: nowhere.
            addresses: counts connections, those of other listeners as well; None: only these.
        """
        self.name = name
        limits = limits or ListenerLimits()
        files = open_files_max()
        of_peers = sasl is not None and not sasl.names_users
        share = connections_within(files, files) // (2 if of_peers else 1)
        self._shedder: Shedder[ListenerConnection] = Shedder(
            name, limits, max(1, min(limits.connections_max, share)), proofs=of_peers
        )
        self._shared = Shared(
            *(api, sasl, limits, Refusals(name), Refusals(name), self._shedder, Turns()),
            times=defaultdict(Histogram),
            rules=rules,
            admits=admits,
            reauth_ms=reauth_ms,
            audit=None if audit is None else RequestAudit(audit),
            addresses=addresses or Addresses(),
            crowd=Refusals(name),
        )
        self._acceptor = Acceptor(
            bound,
            lambda: ListenerConnection(self._shared),
            self._shedder.has_room,
            self._shedder.no_files,
            tls,
        )
        self._acceptor.start()
        self._look()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened at."""
        return self._acceptor.address

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._shedder.connections)

    @property
    def refused_count(self) -> int:
        """Connections that were closed because of what their peers did."""
        return self._shared.refusals.count

    @property
    def crowd_count(self) -> int:
        """Connections that were closed because their addresses had as many as they may."""
        return self._shared.crowd.count

    @property
    def shed_count(self) -> int:
        """Connections that went for what all of them held together, or for their silence."""
        return self._shedder.gone.count

    def held_bytes(self) -> dict[str, int]:
        """Return {"received", "unread": bytes that all connections hold}."""
        return {
            "received": self._shedder.received.total_bytes,
            "unread": self._shedder.unread.total_bytes,
        }

    def times(self) -> dict[str, Histogram]:
        """Return {name of an API: how long its requests took}."""
        return {ApiKey(key).name: found for key, found in self._shared.times.items()}

    async def stop(self) -> None:
        """Stop listening, and end every connection with what it has begun."""
        self._acceptor.stop()
        self._tick.cancel()
        connections = self._shedder.connections
        tasks = [task for connection in connections for task in connection.tasks]
        for connection in connections:
            connection.abort()
        # Each task has told its own story; here they only have to be over.
        await asyncio.gather(*tasks, return_exceptions=True)
        for told in (self._shared.refusals, self._shared.failures, self._shared.crowd, self._shedder.gone):
            told.stop()

    def _look(self) -> None:
        self._shedder.tick()
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._look)
