"""One client connection: requests in, replies and events out, in ZooKeeper's order.

Decides how received bytes become runs of commands, reads and refusals, and in which order their replies
leave. What a command results in, which watches fire and who else is connected is its host's. Soft state only.

Order contract. Replies leave in the order of the requests. A run (consecutive writes of one chunk) waits for
its outcome; everything behind it waits with it, and is answered before the next run's outcome. Whatever
leaves is queued in one list: an event before any reply that could show its change, the reply that arms a
watch before that watch can fire, because a read is answered and its watch armed in one step.

Source: zookeeper design, "Handshake and sessions", "Ordering"; architecture, "Life of a write".
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Any, Final

from quorum.core.codes import OK, OP_CLOSE_SESSION, OP_SYNC, SESSION_EXPIRED, SESSION_MOVED, UNIMPLEMENTED
from quorum.core.machine import CONFIG_PATH
from quorum.core.results import Result, RunOutcome
from quorum.server.auth import authenticate
from quorum.server.handshake import Drop, Refuse, judge_handshake, password_of
from quorum.server.host import Host
from quorum.server.reads import ANSWERS, answer_get_data, answer_set_watches
from quorum.server.reconfig import begin_change
from quorum.server.stream import OPEN, ClientStream, Phase
from quorum.wire.errors import WireError
from quorum.wire.jute import INT
from quorum.wire.protocol import XID_PING, OpCode
from quorum.wire.replies import (
    REFUSED_SESSION,
    REPLY_HEAD,
    REPLY_HEADER_BYTES,
    ConnectResponse,
    encode_connect_response,
    encode_header,
    encode_multi,
    encode_path,
    encode_path_stat,
)
from quorum.wire.requests import (
    COMMAND_DECODERS,
    CONNECT_BYTES_MIN,
    REQUEST_HEAD,
    REQUEST_HEADER_BYTES,
    Command,
    ConnectRequest,
    SetWatches,
    decode_auth,
    decode_connect,
    decode_read,
    decode_reconfig,
    decode_set_watches,
)

log = logging.getLogger("quorate.server")

#: replies to reads in one turn after which a connection lets others run
TURN_BYTES_MAX: Final = 1024 * 1024

_unpack_head: Final = REQUEST_HEAD.unpack_from
_unpack_int: Final = INT.unpack_from
_pack_head: Final = REPLY_HEAD.pack
_HEAD_BYTES: Final = REQUEST_HEAD.size
_STAT_REPLY_BYTES: Final = REPLY_HEADER_BYTES + 68
#: header zxid of the reply to an operation that is not served
_NO_ZXID: Final = -1

#: plain writes; sync and closeSession make runs of their own
_RUN_DECODERS: Final = {op: decoder for op, decoder in COMMAND_DECODERS.items() if op != OP_SYNC}
_decode_sync: Final = COMMAND_DECODERS[OP_SYNC]
_PING: Final = int(OpCode.PING)
_SET_WATCHES: Final = int(OpCode.SET_WATCHES)
_RECONFIG: Final = int(OpCode.RECONFIG)
_AUTH: Final = int(OpCode.AUTH)


class Run:
    """Consecutive writes whose outcome is awaited."""

    __slots__ = ("started_ms", "sync_path", "xids")

    def __init__(self, xids: list[int], started_ms: float, sync_path: str | None = None) -> None:
        self.xids = xids
        self.started_ms = started_ms
        #: the path to repeat in the reply, if this is a sync (which is always alone)
        self.sync_path = sync_path


#: what waits behind a run: (xid, operation, its decoded body)
Waiting = tuple[int, int, Any]


class Connection(ClientStream):
    """A client connection."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.session_id = 0
        self.nonce = 0
        #: [[scheme, id], …] that the client has proven
        self.identities: list[list[str]] | None = None
        #: silence of the leader after which nothing is answered, and after which this connection ends
        self.contact_limit_ms = self.silence_limit_ms = float("inf")
        self.requests_received = 0
        #: requests in `_pending`; bounded by outstanding_requests_max
        self.outstanding = 0
        #: runs in the order in which they were submitted, and between them what waits for the run before
        self._pending: deque[Run | Waiting] = deque()
        self._handshake: ConnectRequest | None = None
        #: when the chunk that is being read came
        self._chunk_ms = 0.0
        #: while a change of members is under way nothing behind it is read
        self._reconfiguring = False

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
            self._queue(host.answer_word(word))
            self.finish()
            return
        length = _unpack_int(data)[0]
        limit = host.options.frame_bytes_max
        if not CONNECT_BYTES_MIN <= length <= limit:
            problem = f"from {CONNECT_BYTES_MIN} to {limit} bytes are allowed"
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
            if self.phase is Phase.BINDING:
                self._keep(data, 4 + length, 0)

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
            case (session_id, command):
                self.phase = Phase.BINDING
                self._handshake = request
                self.nonce = replica.next_nonce()
                self._update_reading()
                self._pending.append(Run([0], host.now_ms()))
                replica.submit(self, session_id, self.nonce, None, [command])

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

    # -- requests --

    def _receive(self, data: bytes) -> None:
        """Read whole requests, hand the writes on and answer what can be answered."""
        host = self._host
        now_ms = self._chunk_ms = host.now_ms()
        if host.silence_ms(now_ms) >= self.contact_limit_ms:
            self._stalled = True
            host.await_contact(self)
            self._keep_rest(data, 0)
            return
        length_max = host.options.frame_bytes_max
        outstanding_max = host.options.outstanding_requests_max
        room = outstanding_max - self.outstanding
        xids: list[int] = []
        commands: list[Command] = []
        position, end = 0, len(data)
        refused: WireError | None = None
        try:
            while end - position >= _HEAD_BYTES:
                length, xid, op = _unpack_head(data, position)
                after = position + 4 + length
                if after > end or length < REQUEST_HEADER_BYTES or length > length_max:
                    break
                if room <= 0:
                    self._stalled = True
                    break
                decode = _RUN_DECODERS.get(op)
                if decode is not None:
                    commands.append(decode(data, position + _HEAD_BYTES, after)[0])
                    xids.append(xid)
                    room -= 1
                    position = after
                    continue
                if xids:
                    self._submit(xids, commands)
                    xids, commands = [], []
                self._receive_other(xid, op, data, position + _HEAD_BYTES, after)
                position = after
                if self._must_yield():
                    break
                room = outstanding_max - self.outstanding
        except WireError as error:
            refused = error
        if xids:
            self._submit(xids, commands)
        if position:
            host.replica.sessions.touch(self.session_id)
        if refused is not None:
            self._malformed(refused)
        elif self.phase is OPEN:
            self._keep_rest(data, position)

    def _receive_other(self, xid: int, op: int, data: bytes, start: int, after: int) -> None:
        """Take a request that is no plain write."""
        body: Any = None
        if op in ANSWERS:
            body = decode_read(data, start, after)
        elif op == OP_SYNC:
            command = _decode_sync(data, start, after)[0]
            self._submit([xid], [command], command[1])
            return
        elif op == OP_CLOSE_SESSION:
            self.phase = Phase.LEAVING
            self._submit([xid], [[OP_CLOSE_SESSION]])
            return
        elif op == _SET_WATCHES:
            body = decode_set_watches(data, start, after)
        elif op == _RECONFIG:
            body = decode_reconfig(data, start, after)
            self._reconfiguring = self._stalled = True
        elif op == _AUTH:
            body = self._authenticate(*decode_auth(data, start, after))
        elif op != _PING:
            log.info("refused operation %d of %s: it is not served", op, self.address)
            self.phase = Phase.LEAVING
        self._count(1)
        if self._pending:
            self._pending.append((xid, op, body))
            self.outstanding += 1
        else:
            self._answer(xid, op, body)
            self._host.counters.answered(1, 0.0)

    def _must_yield(self) -> bool:
        """Tell whether reading must stop here: it was the last request, or others have waited long enough."""
        if self.phase is not OPEN or self._reconfiguring:
            return True
        if self._out_bytes < TURN_BYTES_MAX:
            return False
        self._stalled = True
        self._host.proceed_soon(self)
        return True

    def _submit(self, xids: list[int], commands: list[Command], sync_path: str | None = None) -> None:
        """Hand a run to the log."""
        self._pending.append(Run(xids, self._chunk_ms, sync_path))
        count = len(xids)
        self.outstanding += count
        self._count(count)
        self._host.replica.submit(self, self.session_id, self.nonce, self.identities, commands)

    def _count(self, requests: int) -> None:
        self.requests_received += requests
        self._host.counters.requests_received += requests

    def _answer(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome from the state as it is now."""
        replica = self._host.replica
        answer = ANSWERS.get(op)
        if answer is not None:
            path, watch = body
            self._queue(answer(replica, self, xid, path, watch=watch))
        elif op == _PING:
            self._queue(_pack_head(REPLY_HEADER_BYTES, XID_PING, replica.machine.zxid, OK))
        elif op == _SET_WATCHES:
            self._rearm(xid, body)
        elif op == _RECONFIG:
            begin_change(self._host.replica, self.identities, body, partial(self._reconfigured, xid))
        elif op == _AUTH:
            self._queue(encode_header(xid, 0, body))
            if body != OK:
                self.finish()
        else:
            self._queue(encode_header(xid, _NO_ZXID, UNIMPLEMENTED))
            self.finish()

    def _authenticate(self, scheme: str, credentials: bytes) -> int:
        """Note what a client proves; it counts for what comes behind it. Returns the code of the answer."""
        super_digest = self._host.options.super_digest
        self.identities, err = authenticate(self.identities, scheme, credentials, super_digest)
        if err != OK:
            self.phase = Phase.LEAVING
        return err

    def _reconfigured(self, xid: int, err: int | None) -> None:
        """Answer a change of members; one whose outcome is not known (None) ends the connection."""
        if self.phase is not OPEN:
            return
        replica = self._host.replica
        if err is None:
            self.finish()
        elif err == OK:
            self._queue(answer_get_data(replica, self, xid, CONFIG_PATH, watch=False))
        else:
            self._queue(encode_header(xid, replica.machine.zxid, err))
        self._reconfiguring = False
        replica.sessions.touch(self.session_id)
        self._host.proceed_soon(self)

    def proceed(self) -> None:
        """Read on, if that is allowed again."""
        if not self._reconfiguring:
            super().proceed()

    def _rearm(self, xid: int, request: SetWatches) -> None:
        if not self.may_watch(len(request.data) + len(request.exist) + len(request.child)):
            # Client libraries do not look at the code of this reply: watches would be lost silently.
            log.info(
                "closed the connection of %s: its setWatches goes beyond watches_per_connection_max = %d",
                self.address,
                self._host.options.watches_per_connection_max,
            )
            self.finish()
            return
        for frame in answer_set_watches(self._host.replica, self, xid, request):
            self._queue(frame)

    def may_watch(self, watches: int) -> bool:
        """Tell whether the connection may have so many more watches; counts a refusal."""
        host = self._host
        if host.replica.watches.count_of(self) + watches <= host.options.watches_per_connection_max:
            return True
        host.counters.watches_refused += 1
        return False

    def _keep_rest(self, data: bytes, position: int) -> None:
        """Keep what was not read: the beginning of a frame, or whole ones if this connection is stalled."""
        host = self._host
        if self._pending and host.replica.saturated():
            self._stalled = True
            host.held[self] = None
        if self._stalled:
            self._keep(data, position, 0)
            self._update_reading()
            return
        remaining = len(data) - position
        if remaining >= 4:
            length = _unpack_int(data, position)[0]
            limit = host.options.frame_bytes_max
            if not REQUEST_HEADER_BYTES <= length <= limit:
                problem = f"from {REQUEST_HEADER_BYTES} to {limit} bytes are allowed"
                self._malformed(WireError("frame.length", length, problem))
                return
            self._keep(data, position, 4 + length)
        elif remaining:
            self._keep(data, position, 4)

    def _malformed(self, error: WireError) -> None:
        """End a connection whose bytes mean nothing; what came whole before them stays valid."""
        self._host.counters.malformed_frames += 1
        log.info("closed the connection of %s: %s", self.address, error.message)
        self.finish()

    # -- outcomes --

    def deliver(self, outcome: RunOutcome) -> None:
        """Take the outcome of the oldest run: queue its events, its replies, and what waited behind it."""
        host = self._host
        pending = self._pending
        if not pending:
            # This connection is gone or was given up; whoever watches still hears of what it did.
            for result in outcome.results:
                if result.events is not None:
                    host.fire(result.zxid, result.events)
            return
        run = pending.popleft()
        assert isinstance(run, Run)
        if self._handshake is not None:
            result = outcome.results[0]
            if result.events is not None:
                host.fire(result.zxid, result.events)
            if self.phase is Phase.BINDING:
                self._conclude_binding(result)
            return
        out = self._out
        host.dirty[self] = None
        for xid, (err, zxid, value, events) in zip(run.xids, outcome.results, strict=True):
            if events is not None:
                host.fire(zxid, events)
            if err:
                if err == SESSION_MOVED:
                    # The client has gone on elsewhere: nothing that it reads here may look like an answer.
                    self.finish()
                    continue
                out.append(_pack_head(REPLY_HEADER_BYTES, xid, zxid, err))
            elif type(value) is bytes:
                out.append(_pack_head(_STAT_REPLY_BYTES, xid, zxid, 0) + value)
            elif type(value) is str:
                out.append(encode_path(xid, zxid, value))
            elif run.sync_path is not None:
                out.append(encode_path(xid, zxid, run.sync_path))
            else:
                out.append(_encode_rare(xid, zxid, value))
        count = len(run.xids)
        self.outstanding -= count
        host.counters.answered(count, host.turn_ms() - run.started_ms)
        self._go_on()

    def _go_on(self) -> None:
        """Answer what waited for the run that was delivered, and read on below half of the limit."""
        host = self._host
        pending = self._pending
        while pending:
            head = pending[0]
            if isinstance(head, Run):
                break
            if self.phase is Phase.FINISHED:
                # No reply may overtake the one that is not given any more.
                self.forget()
                break
            pending.popleft()
            self.outstanding -= 1
            host.counters.answered(1, 0.0)
            self._answer(*head)
        if self._stalled and 2 * self.outstanding < host.options.outstanding_requests_max:
            host.resuming[self] = None
        if self.phase is Phase.LEAVING and not pending:
            self.finish()


def _encode_rare(xid: int, zxid: int, value: Any) -> bytes:
    """Encode the outcome of delete, closeSession, create2 or multi."""
    if value is None:
        return encode_header(xid, zxid, OK)
    if type(value) is list:
        return encode_multi(xid, zxid, value)
    path, stat = value
    return encode_path_stat(xid, zxid, path, stat)
