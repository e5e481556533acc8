"""The requests of one client connection: bytes in, runs of commands, reads and refusals out.

The pipeline (answering.py) tells in which order their replies leave. What a command results in, which watches
fire and which others are connected is the host's. Soft state only.

Only pings do not wait for a change of members, which may take seconds: clients match their replies by the xid
alone, before those of requests (ClientCnxn.SendThread.readResponse of ZooKeeper,
ConnectionHandler._read_socket of kazoo).

Source: docs/concepts/guarantees.md, "Sessions and watches", "Reads"; ARCHITECTURE.md, "Life of a write".
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Any, Final

from quorum.config.sasl_users import SCHEMES
from quorum.core.codes import (
    MARSHALLING_ERROR,
    NOT_READ_ONLY,
    OK,
    OP_CLOSE_SESSION,
    OP_SYNC,
    SASL_REQUIRED,
    UNIMPLEMENTED,
)
from quorum.server.answering import SETS_WATCHES, TURN_BYTES_MAX, TURN_MS_MAX, UNDECODABLE, Pipeline
from quorum.server.auth import OWN_SCHEME, SaslExchange, asked_for, authenticate, lacks
from quorum.server.client import ClientConnection, Host
from quorum.server.handshake import is_local
from quorum.server.operations import CHANGING, READ_DECODERS, RUN_DECODERS, RUNS
from quorum.server.phases import OPEN, Move, Phase
from quorum.server.sasl import claimed
from quorum.wire.errors import FrameTooLargeError, WireError
from quorum.wire.jute import INT
from quorum.wire.operations import AHEAD_MAX, WITH_ACCESS_LISTS, extra_units
from quorum.wire.protocol import OpCode
from quorum.wire.replies import encode_header
from quorum.wire.requests import (
    REQUEST_HEAD,
    REQUEST_HEADER_BYTES,
    Command,
    decode_auth,
    decode_reconfig,
    decode_sasl,
    decode_set_watches,
    decode_set_watches2,
    decode_sync,
)

log = logging.getLogger("quorate.server")

_unpack_head: Final = REQUEST_HEAD.unpack_from
_unpack_int: Final = INT.unpack_from
_unpack_xid_op: Final = Struct(">ii").unpack_from
_HEAD_BYTES: Final = REQUEST_HEAD.size
#: bytes of requests after a change of members above which the peer is not read, and so its pings neither
HELD_BACK_BYTES_MAX: Final = 1024 * 1024

_PING: Final = int(OpCode.PING)
_RECONFIG: Final = int(OpCode.RECONFIG)
_AUTH: Final = int(OpCode.AUTH)
_SASL: Final = int(OpCode.SASL)


class Requests:
    """What takes the requests of a client connection apart."""

    def __init__(self, host: Host, connection: ClientConnection) -> None:
        self._host = host
        self._connection = connection
        self._stream = connection.stream
        self._pipeline = Pipeline(host, connection)
        options = host.options
        #: whether it must prove who it is before anything else
        self._lacks_proof = lacks(options.required_schemes, connection.identities)
        self._is_own = False
        self._sasl = None if options.sasl_users is None else SaslExchange(options, connection.stream.address)
        self.deliver = self._pipeline.deliver
        self.forget = self._pipeline.forget
        self.forget_outcomes = self._pipeline.forget_audited

    def proceed(self) -> None:
        """Read on, if that is allowed again; what waits for nothing but a turn is answered before."""
        connection, stream, pipeline = self._connection, self._stream, self._pipeline
        if stream.blocked:
            return
        if pipeline.has_unanswered():
            if connection.lacks_contact():
                return
            self._host.replica.sessions.touch(connection.session_id)
            pipeline.go_on()
            if pipeline.has_unanswered():
                stream.settle()
                return
        if stream.stalled and (connection.phase is OPEN or connection.phase is Phase.CHANGING):
            self.take(stream.take_kept())
            stream.update_reading()
        stream.settle()

    def take(self, data: bytes) -> None:
        """Read whole requests, hand the writes on and answer what can be answered."""
        connection = self._connection
        if connection.phase is not OPEN and connection.phase is not Phase.CHANGING:
            return
        if connection.lacks_contact():
            self._stream.stall(data, 0)
            return
        if connection.phase is Phase.CHANGING:
            self._receive_pings(data, 0)
        else:
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        connection, pipeline = self._connection, self._pipeline
        length_max = self._host.options.frame_bytes_max
        xids: list[int] = []
        commands: list[Command] = []
        units = requests = 0
        position, end = 0, len(data)
        decoders = {} if connection.read_only or self._lacks_proof else RUN_DECODERS
        while end - position >= _HEAD_BYTES:
            length, xid, op = _unpack_head(data, position)
            after = position + 4 + length
            if after > end or length < REQUEST_HEADER_BYTES or length > length_max:
                break
            if units >= pipeline.room or (pipeline.ahead >= AHEAD_MAX and op in RUNS):
                self._stream.stalled = True
                break
            requests += 1
            decode = decoders.get(op)
            error: WireError | None = None
            if decode is not None:
                try:
                    command = decode(data, position + _HEAD_BYTES, after)[0]
                except WireError as problem:
                    error = problem
                else:
                    commands.append(command)
                    xids.append(xid)
                    units += 1 + extra_units(command) if op in WITH_ACCESS_LISTS else 1
                    position = after
                    continue
            if xids:
                pipeline.submit(xids, commands, units)
                xids, commands, units = [], [], 0
                if connection.phase is Phase.FINISHED:
                    break
            if error is None:
                self._receive_other(xid, op, data, position + _HEAD_BYTES, after)
            else:
                self._receive_undecodable(xid, op, error)
            position = after
            if self._must_yield():
                break
        if xids:
            pipeline.submit(xids, commands, units)
        pipeline.count(requests)
        if position and not connection.read_only:
            self._host.replica.sessions.touch(connection.session_id)
        if connection.phase is OPEN:
            self._keep_rest(data, position)
        elif connection.phase is Phase.CHANGING:
            self._receive_pings(data, position)

    def _receive_pings(self, data: bytes, position: int) -> None:
        """Answer pings while a change of members is under way; what else is there waits for it."""
        host = self._host
        host.replica.sessions.touch(self._connection.session_id)
        length_max = host.options.frame_bytes_max
        held_back = self._stream.held_back
        end, needed = len(data), 4
        while end - position >= 4:
            length = _unpack_int(data, position)[0]
            if not REQUEST_HEADER_BYTES <= length <= length_max:
                # Its turn to be refused comes after the change.
                self._stream.stalled = True
                break
            needed = 4 + length
            after = position + needed
            if after > end:
                break
            xid, op = _unpack_xid_op(data, position + 4)
            if op == _PING:
                self._pipeline.answer_ping(xid)
            else:
                held_back += data[position:after]
            position, needed = after, 4
        if len(held_back) >= HELD_BACK_BYTES_MAX:
            self._stream.stalled = True
        self._stream.keep(data, position, needed)

    def _receive_other(self, xid: int, op: int, data: bytes, start: int, after: int) -> None:
        """Take a request other than a plain write."""
        connection = self._connection
        if self._lacks_proof and op not in (_AUTH, _SASL):
            schemes = " or ".join(self._host.options.required_schemes)
            log.warning("closed the connection of %s: it proved nothing by %s", self._stream.address, schemes)
            connection.move(Move.LAST_READ)
            self._note_refusal(xid, schemes)
            self._pipeline.take_in(xid, _AUTH, SASL_REQUIRED)
            return
        try:
            body: Any = None
            decode = READ_DECODERS.get(op)
            if decode is not None:
                body = decode(data, start, after)
            elif connection.read_only and self._refuse_change(xid, op):
                return
            elif op == OP_SYNC:
                command = decode_sync(data, start, after)[0]
                self._pipeline.submit([xid], [command], sync_path=command[1])
                return
            elif op == OP_CLOSE_SESSION:
                connection.move(Move.LAST_READ)
                self._pipeline.submit([xid], [[OP_CLOSE_SESSION]])
                return
            elif op in SETS_WATCHES:
                decode = decode_set_watches if op == SETS_WATCHES[0] else decode_set_watches2
                body = decode(data, start, after, self._host.options.watches_per_connection_max)
            elif op == _RECONFIG:
                body = decode_reconfig(data, start, after)
                connection.move(Move.CHANGE_ASKED)
            elif op == _AUTH:
                body = self._authenticate(xid, *decode_auth(data, start, after))
            elif op == _SASL:
                body = self._take_token(xid, decode_sasl(data, start, after))
            elif op != _PING:
                log.info("refused operation %d of %s: it is not served", op, self._stream.address)
                connection.move(Move.LAST_READ)
            self._pipeline.take_in(xid, op, body)
        except WireError as error:
            self._receive_undecodable(xid, op, error)

    def _receive_undecodable(self, xid: int, op: int, error: WireError) -> None:
        """Refuse a whole frame whose body means nothing, in its turn; the length tells where the next begins.

        Only credentials end the connection, as in ZooKeeper: what follows may rely on them.
        """
        if op in (_AUTH, _SASL):
            self._connection.malformed(error)
            return
        if op in SETS_WATCHES and isinstance(error, FrameTooLargeError):
            self._pipeline.take_in(xid, op, None)
            return
        self._host.counters.malformed_frames += 1
        self._host.shedder.refused(self._stream.address, error.message)
        err = error.err if isinstance(error, FrameTooLargeError) else MARSHALLING_ERROR
        self._pipeline.take_in(xid, UNDECODABLE, err)

    def _refuse_change(self, xid: int, op: int) -> bool:
        """Answer what a connection that may only read cannot have; returns whether it was that.

        Its session ends with a closeSession if it is this node's own; others are not this node's to end.
        """
        closes = op == OP_CLOSE_SESSION
        if op not in CHANGING and not closes:
            return False
        connection = self._connection
        ends = closes and is_local(connection.session_id)
        self._stream.queue(encode_header(xid, self._host.replica.machine.zxid, OK if ends else NOT_READ_ONLY))
        self._host.counters.answered(1, 0.0)
        if ends:
            connection.finish()
        return True

    def _must_yield(self) -> bool:
        """Tell whether reading must stop here: it was the last request, or others have waited long enough."""
        connection, host = self._connection, self._host
        if connection.phase is not OPEN:
            return True
        if self._pipeline.ends_long:
            self._stream.stalled = True
            return True
        if self._stream.out_bytes < TURN_BYTES_MAX and host.now_ms() - connection.last_read_ms < TURN_MS_MAX:
            return False
        self._stream.stalled = True
        host.turn.proceed_soon(connection)
        return True

    def _authenticate(self, xid: int, scheme: str, credentials: bytes) -> int:
        """Note what a client proves; it counts for what follows. Returns the code of the answer."""
        connection, options = self._connection, self._host.options
        if scheme == OWN_SCHEME and (caller := asked_for(options.own_proof, credentials)) is not None:
            self._is_own, self._lacks_proof = True, False
            # By TLS it shows the node's certificate, which is no proof of whom it asks for.
            connection.identities = [each for each in connection.identities or () if each[0] == "ip"] + caller
            return OK
        connection.identities, err = authenticate(
            connection.identities, scheme, credentials, options.super_digest
        )
        self._find_lack()
        if err != OK:
            connection.move(Move.LAST_READ)
            # What calls itself a scheme may be anything.
            self._note_refusal(xid, scheme if scheme in SCHEMES else "another scheme")
        return err

    def _take_token(self, xid: int, token: bytes) -> tuple[int, bytes | None]:
        """Take a token of SASL; what it proves counts for what follows. Returns code and token to answer."""
        connection, err, answer = self._connection, UNIMPLEMENTED, None
        if self._sasl is not None:
            connection.identities, answer, err = self._sasl.take(connection.identities, token)
            self._find_lack()
        if err != OK:
            connection.move(Move.LAST_READ)
            self._note_refusal(xid, "sasl", claimed(token))
        return err, answer

    def _note_refusal(self, xid: int, scheme: str, name: str = "") -> None:
        if (audit := self._host.options.audit) is not None:
            audit.proof(self._connection, xid, scheme, name)

    def _find_lack(self) -> None:
        required = self._host.options.required_schemes
        self._lacks_proof = not self._is_own and lacks(required, self._connection.identities)

    def _keep_rest(self, data: bytes, position: int) -> None:
        """Keep what was not read: the beginning of a frame, or whole ones if this connection is stalled."""
        host = self._host
        if self._connection.outstanding and host.replica.saturated():
            self._stream.stalled = True
            host.turn.held[self._connection] = None
        if self._stream.stalled:
            self._stream.keep(data, position, 0)
            return
        remaining = len(data) - position
        if remaining >= 4:
            length = _unpack_int(data, position)[0]
            limit = host.options.frame_bytes_max
            if not REQUEST_HEADER_BYTES <= length <= limit:
                problem = f"from {REQUEST_HEADER_BYTES} to {limit} bytes are allowed"
                self._connection.malformed(WireError("frame.length", length, problem))
                return
            self._stream.keep(data, position, 4 + length)
        elif remaining:
            self._stream.keep(data, position, 4)
