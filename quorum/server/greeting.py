"""The first packet of a client connection, and what becomes of it.

Decides between a four-letter word and a handshake, hands a handshake to the log and acts on its outcome. A
connection that may only read is open at once: its session is this node's own affair (handshake.py). What
comes behind the handshake is the business of answering.py and connection.py. Soft state only.

Source: zookeeper design, "Handshake and sessions".
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from typing import Any, Final, Protocol

from quorum.core.codes import OK, OP_CREATE_SESSION, SESSION_EXPIRED
from quorum.core.results import Event, Result
from quorum.server.counters import Waits
from quorum.server.handshake import (
    Drop,
    ReadOnly,
    Refuse,
    Submit,
    judge_handshake,
    local_session_id,
    password_of,
)
from quorum.server.replica_view import ReplicaView
from quorum.server.speaking import SpeakingHost, SpeakingStream
from quorum.server.stream import OPEN, ClientStream, Phase
from quorum.wire.errors import WireError
from quorum.wire.jute import INT
from quorum.wire.replies import REFUSED_SESSION, ConnectResponse, encode_connect_response
from quorum.wire.requests import CONNECT_BYTES_MIN, ConnectRequest, decode_connect

log = logging.getLogger("quorate.server")

#: longest handshake: a password has 16 bytes, no client sends much more
CONNECT_BYTES_MAX: Final = 1024

_unpack_int: Final = INT.unpack_from


class Run:
    """Consecutive writes whose outcome is awaited."""

    __slots__ = ("auth_entries", "op", "started_ms", "sync_path", "xids")

    def __init__(
        self,
        xids: list[int],
        op: int,
        started_ms: float,
        auth_entries: int = 0,
        sync_path: str | None = None,
    ) -> None:
        self.xids = xids
        #: the operation of the last of them
        self.op = op
        self.started_ms = started_ms
        #: how many entries "auth" stand in their access lists
        self.auth_entries = auth_entries
        #: the path to repeat in the reply, if this is a sync (which is always alone)
        self.sync_path = sync_path


#: what waits behind a run: (xid, operation, its decoded body, its weight)
Waiting = tuple[int, int, Any, int]


class Host(SpeakingHost, Protocol):
    """What all connections share, as one sees it that has a session or gets one, and its requests."""

    replica: ReplicaView
    #: {the four bytes that a connection may begin with: the word that they are}
    words: dict[bytes, str]
    #: connections that may read on at the end of the turn
    resuming: dict[ClientStream, None]
    #: connections that wait until the node is no longer saturated
    held: dict[ClientStream, None]

    def turn_ms(self) -> float:
        """The clock at the first outcome of this turn."""

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def silence_ms(self, now_ms: float) -> float:
        """Milliseconds for which no contact to a leader was seen."""

    def await_contact(self, connection: GreetingStream) -> None:
        """Let a connection read on once a leader is heard."""

    def fire(self, zxid: int, events: list[Event]) -> None:
        """Queue the events of a transaction to all who watch, and act on its session notices."""

    def bound(self, connection: GreetingStream, timeout_ms: int) -> None:
        """Learn that a connection has a session now."""

    def opened_read_only(self, connection: GreetingStream) -> None:
        """Learn that a connection is served with reads alone."""


class GreetingStream(SpeakingStream):
    """A client connection up to its session."""

    _host: Host

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.session_id = 0
        self.nonce = 0
        #: whether this node had no quorum when the client came: it may read, and the log knows nothing of it
        self.read_only = False
        #: [[scheme, id], …] that the client has proven; its address is the first
        self.identities: list[list[str]] | None = None
        #: silence of the leader after which nothing is answered, and after which this connection ends
        self.contact_limit_ms = self.silence_limit_ms = float("inf")
        self.requests_received = 0
        #: (xid, operation, zxid) of the last request that was answered; None: there was none
        self.last_request: tuple[int, int, int] | None = None
        self.waits = Waits()
        self.timeout_ms = 0
        #: when it got its session
        self.established_ms = 0.0
        #: requests in `_pending`; bounded by outstanding_requests_max, with the entries "auth" in them
        self.outstanding = 0
        #: runs in the order in which they were submitted, and between them what waits for the run before
        self._pending: deque[Run | Waiting] = deque()
        self._handshake: ConnectRequest | None = None

    @abstractmethod
    def _receive(self, data: bytes) -> None:
        """Read whole requests, hand the writes on and answer what can be answered."""

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Begin (called by the event loop)."""
        super().connection_made(base)
        self.identities = [["ip", self.host_name]]

    def take(self, data: bytes) -> None:
        """Read what came."""
        if self.phase is OPEN:
            self._receive(data)
        elif self.phase is Phase.GREETING:
            self._greet(data)
        elif self.phase is Phase.BINDING:
            # Reading is paused; this was under way.
            self._keep(data, 0, 0)

    def forget(self) -> None:
        """Nothing that is awaited can be answered."""
        self._pending.clear()
        self.outstanding = 0

    def has_session(self) -> bool:
        """Tell whether the client has a session."""
        return self.session_id != 0

    # -- greeting --

    def _greet(self, data: bytes) -> None:
        """Read the first packet: a word of four letters, or a ConnectRequest."""
        if len(data) < 4:
            self._keep(data, 0, 4)
            return
        host = self._host
        word = host.words.get(data[:4])
        if word is not None:
            self._count(1)
            self._ask_word(word)
            return
        length = _unpack_int(data)[0]
        if not CONNECT_BYTES_MIN <= length <= CONNECT_BYTES_MAX:
            problem = f"from {CONNECT_BYTES_MIN} to {CONNECT_BYTES_MAX} bytes are allowed"
            self._malformed(WireError("connect.length", length, problem))
        elif len(data) < 4 + length:
            self._keep(data, 0, 4 + length)
        else:
            try:
                request = decode_connect(data, 4, 4 + length)
            except WireError as error:
                self._malformed(error)
                return
            self._count(1)
            self._bind(request)
            if self.phase is Phase.BINDING or self._stalled:
                self._keep(data, 4 + length, 0)
                self._update_reading()

    def _bind(self, request: ConnectRequest) -> None:
        """Hand a handshake to the log, or turn the client away."""
        host = self._host
        replica = host.replica
        match judge_handshake(request, replica.machine, host.options, serving=host.serving()):
            case Drop(reason):
                host.counters.handshakes_refused += 1
                log.info("closed the connection of %s before its session: %s", self.address, reason)
                self.finish()
            case Refuse(reason):
                log.info("refused to resume a session for %s: %s", self.address, reason)
                self._refuse_session(request)
            case ReadOnly(session_id, timeout_ms):
                self._open_read_only(session_id or local_session_id(replica.next_nonce()), timeout_ms)
            case Submit(session_id, command):
                self.phase = Phase.BINDING
                self._handshake = request
                self.nonce = replica.next_nonce()
                self._update_reading()
                self._pending.append(Run([0], OP_CREATE_SESSION, host.now_ms()))
                replica.submit(self, session_id, self.nonce, None, [command])

    def _open_read_only(self, session_id: int, timeout_ms: int) -> None:
        """Serve a client that is content with reads from a node without a quorum."""
        host = self._host
        self.phase = OPEN
        self.read_only = True
        self.session_id = session_id
        self._note_session(timeout_ms)
        host.opened_read_only(self)
        password = password_of(host.replica.machine.session_key, session_id)
        self._queue(encode_connect_response(ConnectResponse(0, timeout_ms, session_id, password, True)))
        # As behind any handshake: what the client sent with it is read in a turn of its own.
        self._stalled = True
        host.proceed_soon(self)

    def _note_session(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.established_ms = self._host.now_ms()
        self.last_request = (0, OP_CREATE_SESSION, self._host.replica.machine.zxid)

    def reset_counts(self) -> None:
        """Begin to count again what is told about this connection."""
        self.requests_received = self.packets_sent = 0
        self.waits = Waits()

    def _refuse_session(self, request: ConnectRequest) -> None:
        refusal = REFUSED_SESSION
        if request.read_only is not None:
            refusal = refusal._replace(read_only=False)
        self._queue(encode_connect_response(refusal))
        self.finish()

    def _conclude_binding(self, result: Result) -> None:
        """Act on the outcome of a handshake."""
        request = self._handshake
        assert request is not None
        self._handshake = None
        if result.err != OK:
            if result.err == SESSION_EXPIRED:
                log.info(
                    "refused to resume session 0x%x for %s: it is over", request.session_id, self.address
                )
                self._refuse_session(request)
            else:
                self.finish()
            return
        host = self._host
        created = request.session_id == 0
        value: Any = result.value
        self.session_id, timeout_ms = value if created else (request.session_id, value)
        self._note_session(timeout_ms)
        self.phase = OPEN
        host.bound(self, timeout_ms)
        password = password_of(host.replica.machine.session_key, self.session_id)
        read_only = None if request.read_only is None else False
        self._queue(
            encode_connect_response(ConnectResponse(0, timeout_ms, self.session_id, password, read_only))
        )
        # What the client sent behind its handshake is read at the end of the turn, as any other request.
        self._stalled = True
        host.resuming[self] = None

    def _count(self, requests: int) -> None:
        self.requests_received += requests
        self._host.counters.requests_received += requests

    def _malformed(self, error: WireError) -> None:
        """End a connection whose bytes mean nothing; what came whole before them stays valid."""
        self._host.counters.malformed_frames += 1
        log.info("closed the connection of %s: %s", self.address, error.message)
        self.finish()
