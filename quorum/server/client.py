"""A client connection as all others see it: whose it is, where in its life, and what it has counted.

It has the bytes (stream.py) and a reader, which takes them apart: first the handshake (greeting.py), then the
answer to a word (speaking.py) or the requests (requests.py), whose pipeline (answering.py) keeps their
order.
`MOVES` of phases.py says which phase follows which. Soft state only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from quorum.core.results import Event, RunOutcome
from quorum.server.auth import by_connecting
from quorum.server.contact import Contact
from quorum.server.counters import Waits
from quorum.server.phases import MOVES, OPEN, Move, Phase
from quorum.server.replica_view import ReplicaView
from quorum.server.shedding import ClientShedder
from quorum.server.stream import ClientStream, StreamHost
from quorum.wire.errors import WireError

log = logging.getLogger("quorate.server")


class Reader(Protocol):
    """What a client's bytes mean, and what becomes of them."""

    def take(self, data: bytes) -> None:
        """Read what came; what cannot be read yet is handed back to the stream."""

    def proceed(self) -> None:
        """Read on, or answer on, if that is allowed again."""

    def deliver(self, outcome: RunOutcome) -> None:
        """Take the outcome of the oldest run that was submitted."""

    def forget(self) -> None:
        """Nothing that is awaited can be answered."""

    def forget_outcomes(self) -> None:
        """Besides, what was submitted has outcomes that will not be known."""


class Host(StreamHost, Protocol):
    """What all connections of a node share."""

    replica: ReplicaView
    contact: Contact
    #: {the four bytes that a connection may begin with: the word that they are}
    words: dict[bytes, str]

    @property
    def shedder(self) -> ClientShedder:
        """The bounds of all connections together."""

    def now_ms(self) -> float:
        """The monotonic clock."""

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def await_contact(self, connection: ClientConnection) -> None:
        """Let a connection read on once a leader is heard."""

    def fire(self, zxid: int, events: list[Event]) -> None:
        """Queue the events of a transaction to all watchers, and act on its session notices."""

    def opened(self, connection: ClientConnection) -> bool:
        """Register a connection; false if its address has too many."""

    def bound(self, connection: ClientConnection) -> None:
        """Learn that a connection has a session now, or is served with reads alone."""

    def expect(self, connection: ClientConnection) -> None:
        """Give a connection handshake_timeout_ms from now to go on, or to take what it was sent."""

    def closed(self, connection: ClientConnection) -> None:
        """Learn that a connection is gone."""

    def answer_word(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        """Hand the answer to a four-letter word over, now or later."""


class ClientConnection:
    """A client connection."""

    #: the handshake, and then what follows it
    reader: Reader

    def __init__(self, host: Host) -> None:
        self._host = host
        self.stream = ClientStream(host, self)
        self.phase = Phase.GREETING
        #: 0 until it has one
        self.session_id = 0
        #: names this connection in the log: what an older one of the session submits takes no effect
        self.nonce = 0
        #: [[scheme, id], …] that the client has proven
        self.identities: list[list[str]] | None = None
        #: after so long without a leader its requests wait, and after so long it ends
        self.contact_limit_ms = self.silence_limit_ms = float("inf")
        #: whether it is served by a node without a quorum
        self.read_only = False
        self.timeout_ms = 0
        #: when it got its session
        self.established_ms = 0.0
        #: when it was last heard
        self.last_read_ms = 0.0
        self.requests_received = 0
        #: requests that wait for an outcome, their own or an earlier one; bounded by outstanding_requests_max
        self.outstanding = 0
        #: (xid, operation, header zxid) of the last request that was answered; None: there was none
        self.last_request: tuple[int, int, int] | None = None
        self.waits = Waits()

    def move(self, move: Move) -> None:
        """Go to the phase that follows."""
        self.phase = MOVES[self.phase, move]

    def read_with(self, reader: Reader) -> None:
        """Hand what comes from now on to another reader."""
        self.reader = reader
        self.stream.reader = reader.take

    # -- what its stream calls --

    def opened(self) -> bool:
        """Begin; false if its address has too many."""
        x509_super_user = self._host.options.x509_super_user
        self.identities = by_connecting(self.stream.host_name, self.stream.subject, x509_super_user)
        if self._host.opened(self):
            return True
        self.move(Move.ENDED)
        return False

    def took_bytes(self) -> None:
        """It is there: its session is not silent."""
        if (self.phase is OPEN or self.phase is Phase.CHANGING) and not self.read_only:
            self._host.replica.sessions.touch(self.session_id)

    def proceed(self) -> None:
        """Read on, if that is allowed again."""
        self.reader.proceed()

    def lost(self) -> None:
        """The transport is gone."""
        self.move(Move.LOST)
        self.reader.forget()
        self._host.closed(self)

    # -- what its readers and its host call --

    def lacks_contact(self) -> bool:
        """Tell whether no leader is heard; then this connection proceeds once one is."""
        host = self._host
        now_ms = self.last_read_ms = host.now_ms()
        if self.read_only or host.contact.silence_ms(now_ms) < self.contact_limit_ms:
            return False
        host.await_contact(self)
        return True

    def may_watch(self, watches: int, size: int) -> bool:
        """Tell whether the connection may have so many more watches of so many bytes; counts a refusal."""
        host = self._host
        options, table = host.options, host.replica.watches
        if table.count_of(self) + watches > options.watches_per_connection_max:
            host.counters.watches_refused += 1
            return False
        limit = options.watch_bytes_total_max
        while table.total_bytes + size > limit:
            # The fattest connection goes for it, this one unless another holds as much as it would.
            goes, wanted = table.fattest(), table.bytes_of(self) + size
            if goes is None or goes is self or table.bytes_of(goes) < wanted:
                goes, held = self, wanted
            else:
                held = table.bytes_of(goes)
            host.shedder.drop(goes.stream, held, "bytes of watches", "watch_bytes_total_max", limit)
            table.remove_watcher(goes)
            if goes is self:
                return False
        return True

    def count(self, requests: int) -> None:
        """Count requests that were read."""
        self.requests_received += requests
        self._host.counters.requests_received += requests

    def reset_counts(self) -> None:
        """Begin to count again what the words say about this connection."""
        self.requests_received = self.stream.packets_sent = 0
        self.waits = Waits()

    def malformed(self, error: WireError) -> None:
        """End a connection whose bytes mean nothing; what came whole before them stays valid."""
        self._host.counters.malformed_frames += 1
        log.info("closed the connection of %s: %s", self.stream.address, error.message)
        self.finish()

    def finish(self) -> None:
        """Take no more requests, and close when what is queued has left: at the end of the turn."""
        if self.phase is not Phase.FINISHED and self.phase is not Phase.CLOSED:
            self.move(Move.ENDED)
            self._host.turn.closing[self.stream] = None
            self._host.expect(self)
