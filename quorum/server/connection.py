"""One client connection: requests in, replies and events out, in ZooKeeper's order.

Decides how received bytes become runs of commands, reads and refusals, and in which order their replies
leave. What a command results in, which watches fire and who else is connected is its host's. Soft state only.

Order contract. Replies leave in the order of the requests. A run (consecutive writes of one chunk) waits for
its outcome; everything behind it waits with it, and is answered before the next run's outcome: in the same
turn if a next run is under way, which is why only so much may stand before one (AHEAD_MAX). Whatever
leaves is queued in one list: an event before any reply that could show its change, the reply that arms a
watch before that watch can fire, because a read is answered and its watch armed in one step. Only pings do
not wait for a change of members, which may take seconds: clients match their replies by the xid alone, before
those of requests (ClientCnxn.SendThread.readResponse of ZooKeeper, ConnectionHandler._read_socket of kazoo).

Source: zookeeper design, "Handshake and sessions", "Ordering"; architecture, "Life of a write".
"""

from __future__ import annotations

import logging
from functools import partial
from struct import Struct
from typing import Any, Final

from quorum.core.codes import MARSHALLING_ERROR, OK, OP_CLOSE_SESSION, OP_SYNC, SESSION_MOVED, UNIMPLEMENTED
from quorum.core.machine import CONFIG_PATH
from quorum.core.results import RunOutcome
from quorum.server.auth import authenticate
from quorum.server.greeting import GreetingStream, Run
from quorum.server.handshake import is_local
from quorum.server.host import Host
from quorum.server.lookups import LOOKUPS
from quorum.server.operations import AHEAD_MAX, CHANGING, RUN_DECODERS, RUNS, weight
from quorum.server.reads import ANSWERS, answer_get_data, answer_set_watches
from quorum.server.reconfig import begin_change
from quorum.server.stream import OPEN, Phase
from quorum.wire.errors import RequestTooLargeError, WireError
from quorum.wire.jute import INT
from quorum.wire.lookups import SetWatches2, decode_set_watches2, watches_of
from quorum.wire.protocol import XID_PING, ErrorCode, OpCode
from quorum.wire.replies import (
    REPLY_HEAD,
    REPLY_HEADER_BYTES,
    encode_header,
    encode_outcome,
    encode_path,
    encode_sync,
)
from quorum.wire.requests import (
    COMMAND_DECODERS,
    REQUEST_HEAD,
    REQUEST_HEADER_BYTES,
    Command,
    SetWatches,
    decode_auth,
    decode_read,
    decode_reconfig,
    decode_set_watches,
)

log = logging.getLogger("quorate.server")

#: replies to reads in one turn after which a connection lets others run
TURN_BYTES_MAX: Final = 1024 * 1024
#: how long one connection is answered in one turn: counting a million nodes takes longer than a read
TURN_MS_MAX: Final = 5.0

_unpack_head: Final = REQUEST_HEAD.unpack_from
_unpack_int: Final = INT.unpack_from
_unpack_xid_op: Final = Struct(">ii").unpack_from
_pack_head: Final = REPLY_HEAD.pack
_HEAD_BYTES: Final = REQUEST_HEAD.size
_STAT_REPLY_BYTES: Final = REPLY_HEADER_BYTES + 68
#: bytes of requests behind a change of members above which the peer is not read, and so its pings neither
BEHIND_CHANGE_BYTES_MAX: Final = 1024 * 1024
#: header zxid of the reply to an operation that is not served
_NO_ZXID: Final = -1

_decode_sync: Final = COMMAND_DECODERS[OP_SYNC]
_PING: Final = int(OpCode.PING)
_SET_WATCHES: Final = int(OpCode.SET_WATCHES)
_SET_WATCHES2: Final = int(OpCode.SET_WATCHES2)
_RECONFIG: Final = int(OpCode.RECONFIG)
_AUTH: Final = int(OpCode.AUTH)
#: stands for a request that is not taken, its body is the error; no frame can hold this number
_UNDECODABLE: Final = -(1 << 32)
_NOT_READ_ONLY: Final = int(ErrorCode.NOT_READ_ONLY)


class Connection(GreetingStream):
    """A client connection."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        #: while a change of members is under way only pings are answered
        self._reconfiguring = False
        #: whole frames that wait for the change; stalled when there are BEHIND_CHANGE_BYTES_MAX of them
        self._behind = bytearray()
        #: weight of what waits in `_pending` besides runs
        self._ahead = 0

    # -- requests --

    def proceed(self) -> None:
        """Read on, if that is allowed again; what waits for nothing but a turn is answered before."""
        if self._has_unanswered():
            if self._blocked or self._lacks_contact():
                return
            self._host.replica.sessions.touch(self.session_id)
            self._go_on()
            if self._has_unanswered() or self.phase is not OPEN:
                self.settle()
                return
        super().proceed()

    def forget(self) -> None:
        """Nothing that is awaited can be answered."""
        super().forget()
        self._ahead = 0

    def _has_unanswered(self) -> bool:
        """Tell whether there are requests that wait for no run."""
        return bool(self._pending) and not isinstance(self._pending[0], Run)

    def _receive(self, data: bytes) -> None:
        """Read whole requests, hand the writes on and answer what can be answered."""
        if self._hold(data):
            return
        host = self._host
        length_max = host.options.frame_bytes_max
        outstanding_max = host.options.outstanding_requests_max
        room = outstanding_max - self.outstanding
        xids: list[int] = []
        commands: list[Command] = []
        position, end = 0, len(data)
        decoders = RUN_DECODERS if not self.read_only else {}
        while end - position >= _HEAD_BYTES:
            length, xid, op = _unpack_head(data, position)
            after = position + 4 + length
            if after > end or length < REQUEST_HEADER_BYTES or length > length_max:
                break
            if room <= 0 or (self._ahead >= AHEAD_MAX and op in RUNS):
                self._stalled = True
                break
            decode = decoders.get(op)
            try:
                if decode is not None:
                    commands.append(decode(data, position + _HEAD_BYTES, after)[0])
                    xids.append(xid)
                    room -= 1
                    position = after
                    continue
                if xids:
                    self._submit(xids, commands)
                    xids, commands = [], []
                    if self.phase is Phase.FINISHED:
                        return
                self._receive_other(xid, op, data, position + _HEAD_BYTES, after)
            except WireError as error:
                if xids:
                    self._submit(xids, commands)
                    xids, commands = [], []
                    if self.phase is Phase.FINISHED:
                        return
                self._receive_undecodable(xid, op, error)
            position = after
            if self._must_yield():
                break
            room = outstanding_max - self.outstanding
        if xids:
            self._submit(xids, commands)
        if position and not self.read_only:
            host.replica.sessions.touch(self.session_id)
        if self.phase is OPEN:
            self._keep_rest(data, position)

    def _hold(self, data: bytes) -> bool:
        """Keep what came while no leader is heard, all but pings while a change of members is under way."""
        if self._lacks_contact():
            self._stalled = True
            self._keep(data, 0, 0)
            self._update_reading()
            return True
        if self._reconfiguring:
            self._receive_pings(data, 0)
        return self._reconfiguring

    def _lacks_contact(self) -> bool:
        """Tell whether no leader is heard; then this connection proceeds once one is."""
        host = self._host
        now_ms = self.last_read_ms = host.now_ms()
        if self.read_only or host.silence_ms(now_ms) < self.contact_limit_ms:
            return False
        host.await_contact(self)
        return True

    def _receive_pings(self, data: bytes, position: int) -> None:
        """Answer pings while a change of members is under way; what else is there waits for it."""
        host = self._host
        host.replica.sessions.touch(self.session_id)
        length_max = host.options.frame_bytes_max
        behind = self._behind
        end, needed = len(data), 4
        while end - position >= 4:
            length = _unpack_int(data, position)[0]
            if not REQUEST_HEADER_BYTES <= length <= length_max:
                # Its turn to be refused comes behind the change.
                self._stalled = True
                break
            needed = 4 + length
            after = position + needed
            if after > end:
                break
            xid, op = _unpack_xid_op(data, position + 4)
            if op == _PING:
                self._count(1)
                self._answer(xid, op, None)
                host.counters.answered(1, 0.0)
            else:
                behind += data[position:after]
            position, needed = after, 4
        if len(behind) >= BEHIND_CHANGE_BYTES_MAX:
            self._stalled = True
        if position < end or self._stalled:
            self._keep(data, position, needed)
            self._update_reading()

    def _receive_other(self, xid: int, op: int, data: bytes, start: int, after: int) -> None:
        """Take a request that is no plain write."""
        body: Any = None
        if op in ANSWERS:
            body = decode_read(data, start, after)
        elif self.read_only and self._refuse_change(xid, op):
            return
        elif op in LOOKUPS:
            body = LOOKUPS[op].decode(data, start, after)
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
        elif op == _SET_WATCHES2:
            body = decode_set_watches2(data, start, after)
        elif op == _RECONFIG:
            body = decode_reconfig(data, start, after)
            self._reconfiguring = True
        elif op == _AUTH:
            body = self._authenticate(*decode_auth(data, start, after))
        elif op != _PING:
            log.info("refused operation %d of %s: it is not served", op, self.address)
            self.phase = Phase.LEAVING
        self._take_in(xid, op, body)

    def _receive_undecodable(self, xid: int, op: int, error: WireError) -> None:
        """Refuse a whole frame whose body means nothing, in its turn; the length tells where the next begins.

        Only credentials end the connection, as in ZooKeeper: what comes behind them may rely on them.
        """
        if op == _AUTH:
            self._malformed(error)
            return
        self._host.counters.malformed_frames += 1
        log.info("refused a request of %s: %s", self.address, error.message)
        err = error.err if isinstance(error, RequestTooLargeError) else MARSHALLING_ERROR
        self._take_in(xid, _UNDECODABLE, err)

    def _take_in(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome, now or behind the runs that are under way."""
        self._count(1)
        if self._pending:
            units = weight(op, body, self._host.replica.machine.tree)
            self._pending.append((xid, op, body, units))
            self.outstanding += 1
            self._ahead += units
        else:
            self._answer(xid, op, body)
            self._host.counters.answered(1, 0.0)
            self.last_request = (xid, op, self._host.replica.machine.zxid)

    def _refuse_change(self, xid: int, op: int) -> bool:
        """Answer what a connection that may only read cannot have; returns whether it was that.

        Its session ends with a closeSession if it is this node's own; others are not this node's to end.
        """
        closes = op == OP_CLOSE_SESSION
        if op not in CHANGING and not closes:
            return False
        self._count(1)
        ends = closes and is_local(self.session_id)
        self._queue(encode_header(xid, self._host.replica.machine.zxid, OK if ends else _NOT_READ_ONLY))
        self._host.counters.answered(1, 0.0)
        if ends:
            self.finish()
        return True

    def _must_yield(self) -> bool:
        """Tell whether reading must stop here: it was the last request, or others have waited long enough."""
        if self.phase is not OPEN or self._reconfiguring:
            return True
        host = self._host
        if self._out_bytes < TURN_BYTES_MAX and host.now_ms() - self.last_read_ms < TURN_MS_MAX:
            return False
        self._stalled = True
        host.proceed_soon(self)
        return True

    def _submit(self, xids: list[int], commands: list[Command], sync_path: str | None = None) -> None:
        """Hand a run to the log."""
        count = len(xids)
        self._count(count)
        if self._host.replica.submit(self, self.session_id, self.nonce, self.identities, commands):
            self._pending.append(Run(xids, commands[-1][0], self.last_read_ms, sync_path))
            self.outstanding += count
        elif self.phase is not Phase.FINISHED:
            self._malformed(WireError("requests", f"{count} writes", "no entry of the log can hold them"))

    def _answer(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome from the state as it is now."""
        replica = self._host.replica
        answer = ANSWERS.get(op)
        if answer is not None:
            path, watch = body
            self._queue(answer(replica, self, xid, path, watch=watch))
        elif op in LOOKUPS:
            self._queue(LOOKUPS[op].answer(replica, self, xid, body))
        elif op == _PING:
            self._queue(_pack_head(REPLY_HEADER_BYTES, XID_PING, replica.machine.zxid, OK))
        elif op in (_SET_WATCHES, _SET_WATCHES2):
            self._rearm(xid, body)
        elif op == _RECONFIG:
            begin_change(self._host.replica, self.identities, body, partial(self._reconfigured, xid))
        elif op == _UNDECODABLE:
            self._queue(encode_header(xid, replica.machine.zxid, body))
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
        self._received[:0] = self._behind
        self._behind.clear()
        self._stalled = True
        replica.sessions.touch(self.session_id)
        self._host.proceed_soon(self)

    def _rearm(self, xid: int, request: SetWatches | SetWatches2) -> None:
        if not self.may_watch(watches_of(request)):
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
        if self._reconfiguring:
            self._receive_pings(data, position)
            return
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
            elif run.op == OP_SYNC:
                out.append(encode_sync(xid, zxid, run.sync_path))
            else:
                out.append(encode_outcome(xid, zxid, value))
        count = len(run.xids)
        self.outstanding -= count
        latency_ms = host.turn_ms() - run.started_ms
        host.counters.answered(count, latency_ms)
        self.waits.waited(count, latency_ms)
        if outcome.results:
            self.last_request = (run.xids[-1], run.op, outcome.results[-1].zxid)
        self._go_on()

    def _go_on(self) -> None:
        """Answer what waited for a run, in portions if no next one is under way; read on if there is room."""
        host = self._host
        pending = self._pending
        until_ms = 0.0
        while pending:
            if self.phase is Phase.FINISHED:
                # No reply may overtake the one that is not given any more, not even that of a later write.
                self.forget()
                break
            head = pending[0]
            if isinstance(head, Run):
                break
            now_ms = host.now_ms()
            until_ms = until_ms or now_ms + TURN_MS_MAX
            if now_ms >= until_ms or self._out_bytes >= TURN_BYTES_MAX:
                if not any(isinstance(behind, Run) for behind in pending):
                    # No outcome can come before: nothing is read, and so nothing handed to the log.
                    self._stalled = True
                    self._update_reading()
                    host.proceed_soon(self)
                    return
                until_ms = now_ms + TURN_MS_MAX
            pending.popleft()
            xid, op, body, units = head
            self.outstanding -= 1
            self._ahead -= units
            host.counters.answered(1, 0.0)
            self._answer(xid, op, body)
            self.last_request = (xid, op, host.replica.machine.zxid)
        if self._stalled and 2 * self.outstanding < host.options.outstanding_requests_max:
            host.resuming[self] = None
        if self.phase is Phase.LEAVING and not pending:
            self.finish()
