"""The first packet of a client connection, and what becomes of it.

Decides between a four-letter word and a handshake, hands a handshake to the log and acts on its outcome. A
connection that may only read is open at once: its session is this node's own affair (handshake.py). What
follows the handshake is read by requests.py. Soft state only.

Source: docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import logging
from typing import Any, Final

from quorum.core.codes import OK, OP_CREATE_SESSION, SESSION_EXPIRED
from quorum.core.results import RunOutcome
from quorum.platform.audit import DENIED, FAILED
from quorum.platform.tls import FIRST_BYTE
from quorum.server.client import ClientConnection, Host
from quorum.server.handshake import (
    Drop,
    ReadOnly,
    Refuse,
    Submit,
    judge_handshake,
    local_session_id,
    password_of,
)
from quorum.server.phases import Move, Phase
from quorum.server.requests import Requests
from quorum.server.speaking import Speech
from quorum.wire.errors import WireError
from quorum.wire.jute import INT
from quorum.wire.replies import REFUSED_SESSION, ConnectResponse, encode_connect_response
from quorum.wire.requests import CONNECT_BYTES_MIN, ConnectRequest, decode_connect

log = logging.getLogger("quorate.server")

#: longest handshake: a password has 16 bytes, no client sends much more
CONNECT_BYTES_MAX: Final = 1024

_unpack_int: Final = INT.unpack_from


class Greeting:
    """A client connection up to its session."""

    def __init__(self, host: Host, connection: ClientConnection) -> None:
        self._host = host
        self._connection = connection
        #: the handshake whose outcome is awaited
        self._request: ConnectRequest | None = None

    def take(self, data: bytes) -> None:
        """Read the first packet: a word of four letters, or a ConnectRequest."""
        connection = self._connection
        if connection.phase is not Phase.GREETING:
            return
        if len(data) < 4:
            connection.stream.keep(data, 0, 4)
            return
        word = self._host.words.get(data[:4])
        if word is not None:
            connection.count(1)
            Speech(self._host, connection, word)
            return
        length = _unpack_int(data)[0]
        if not CONNECT_BYTES_MIN <= length <= CONNECT_BYTES_MAX:
            problem = f"from {CONNECT_BYTES_MIN} to {CONNECT_BYTES_MAX} bytes are allowed"
            if data.startswith(FIRST_BYTE):
                problem = "it speaks TLS, and this port is plain"
            connection.malformed(WireError("connect.length", length, problem))
        elif len(data) < 4 + length:
            connection.stream.keep(data, 0, 4 + length)
        else:
            try:
                request = decode_connect(data, 4, 4 + length)
            except WireError as error:
                connection.malformed(error)
                return
            connection.count(1)
            # What follows is read in a turn of its own, once there is a session.
            connection.stream.stall(data, 4 + length)
            self._judge(request)

    def _judge(self, request: ConnectRequest) -> None:
        """Hand a handshake to the log, or turn the client away."""
        host, connection = self._host, self._connection
        replica = host.replica
        address = connection.stream.address
        match judge_handshake(request, replica.machine, host.options, serving=host.serving()):
            case Drop(reason):
                host.counters.handshakes_refused += 1
                log.info("closed the connection of %s before its session: %s", address, reason)
                connection.finish()
            case Refuse(reason):
                log.info("refused to resume a session for %s: %s", address, reason)
                self._refuse(request, DENIED)
            case ReadOnly(session_id, timeout_ms):
                connection.read_only = True
                self._open(session_id or local_session_id(replica.next_nonce()), timeout_ms, read_only=True)
                host.turn.proceed_soon(connection)
            case Submit(session_id, command):
                connection.move(Move.HANDSHAKE_SUBMITTED)
                self._request = request
                connection.nonce = replica.next_nonce()
                replica.submit(connection, session_id, connection.nonce, None, [command])

    def proceed(self) -> None:
        """Nothing waits but the handshake."""

    def forget(self) -> None:
        """The outcome of the handshake will not be known."""
        self._request = None

    def forget_outcomes(self) -> None:
        """Nothing was written."""

    def deliver(self, outcome: RunOutcome) -> None:
        """Act on the outcome of a handshake."""
        host, connection, request = self._host, self._connection, self._request
        for result in outcome.results:
            if result.events is not None:
                host.fire(result.zxid, result.events)
        if request is None or connection.phase is not Phase.BINDING:
            return
        result = outcome.results[0]
        if result.err == SESSION_EXPIRED:
            address = connection.stream.address
            log.info("refused to resume session 0x%x for %s: it is over", request.session_id, address)
            self._refuse(request, FAILED)
        elif result.err != OK:
            connection.finish()
        else:
            value: Any = result.value
            session_id, timeout_ms = value if request.session_id == 0 else (request.session_id, value)
            self._open(session_id, timeout_ms, read_only=None if request.read_only is None else False)
            host.turn.resuming[connection] = None

    def _open(self, session_id: int, timeout_ms: int, *, read_only: bool | None) -> None:
        """Give the connection its session, and its bytes to the requests."""
        host, connection = self._host, self._connection
        machine = host.replica.machine
        connection.session_id = session_id
        connection.timeout_ms = timeout_ms
        connection.established_ms = host.now_ms()
        connection.last_request = (0, OP_CREATE_SESSION, machine.zxid)
        connection.move(Move.SESSION_GRANTED)
        connection.read_with(Requests(host, connection))
        host.bound(connection)
        password = password_of(machine.session_key, session_id)
        granted = ConnectResponse(0, timeout_ms, session_id, password, read_only)
        connection.stream.queue(encode_connect_response(granted))
        if (audit := host.options.audit) is not None:
            is_new = self._request is None or self._request.session_id == 0
            audit.session(connection, "createSession" if is_new else "resumeSession")

    def _refuse(self, request: ConnectRequest, outcome: str) -> None:
        refusal = REFUSED_SESSION
        if request.read_only is not None:
            refusal = refusal._replace(read_only=False)
        if (audit := self._host.options.audit) is not None:
            audit.session(self._connection, "resumeSession", outcome)
        self._connection.stream.queue(encode_connect_response(refusal))
        self._connection.finish()
