"""How requests are answered, in ZooKeeper's order: from an outcome, or from the state as it is then.

Order contract. Replies leave in the order of the requests. A run (consecutive writes of one chunk) waits for
its outcome; everything after it waits with it, and is answered before the next run's outcome: in the same
turn if a next run is under way, which is why only so much may stand before one (AHEAD_MAX). A long answer
(LONG_UNITS_MIN) is the last that is read until it has had its turn among those of all connections. Whatever
leaves is queued in one list: an event before any reply that could show its change, the reply that arms a
watch before that watch can fire, because a read is answered and its watch armed in one step.

How bytes become requests is the business of requests.py; what a command results in, which watches fire and
which others are connected is the host's. Soft state only.

Source: docs/concepts/guarantees.md, "Reads"; ARCHITECTURE.md, "Life of a write".
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from quorum.core.codes import OK, OP_SYNC, SESSION_MOVED, UNIMPLEMENTED
from quorum.core.machine import CONFIG_PATH
from quorum.core.rearm import rearm
from quorum.core.results import RunOutcome
from quorum.core.watches import branch_bytes, watch_bytes
from quorum.server.audit import Submitted
from quorum.server.client import ClientConnection, Host
from quorum.server.operations import ANSWERS, LONG_UNITS_MIN, WEIGHTS
from quorum.server.phases import Move, Phase
from quorum.server.reads import answer_get_data
from quorum.server.reconfig import begin_change
from quorum.wire.errors import WireError
from quorum.wire.protocol import XID_PING, OpCode
from quorum.wire.replies import (
    REPLY_HEAD,
    REPLY_HEADER_BYTES,
    encode_header,
    encode_outcome,
    encode_path,
    encode_sasl,
    encode_sync,
    encode_watch_event,
)
from quorum.wire.requests import Command, SetWatches, watches_of

log = logging.getLogger("quorate.server")

#: replies to reads in one turn after which a connection lets others run
TURN_BYTES_MAX: Final = 1024 * 1024
#: how long one connection is answered in one turn: counting a million nodes takes longer than a read
TURN_MS_MAX: Final = 5.0

_pack_head: Final = REPLY_HEAD.pack
_STAT_REPLY_BYTES: Final = REPLY_HEADER_BYTES + 68
#: header zxid of the reply to an operation that is not served, and of an event that was missed meanwhile
_NO_ZXID: Final = -1

_PING: Final = int(OpCode.PING)
SETS_WATCHES: Final = (int(OpCode.SET_WATCHES), int(OpCode.SET_WATCHES2))
_GET_DATA: Final = int(OpCode.GET_DATA)
_RECONFIG: Final = int(OpCode.RECONFIG)
_AUTH: Final = int(OpCode.AUTH)
_SASL: Final = int(OpCode.SASL)
#: marks a request that is not taken, its body is the error; no frame can hold this number
UNDECODABLE: Final = -(1 << 32)


class Run(NamedTuple):
    """Consecutive writes whose outcome is awaited."""

    xids: list[int]
    #: the operation of the last of them
    op: int
    started_ms: float
    #: as how many requests more they count
    extra_units: int = 0
    #: the path to repeat in the reply, if this is a sync (which is always alone)
    sync_path: str | None = None


#: what waits for a run: (xid, operation, its decoded body, its weight)
Waiting = tuple[int, int, Any, int]


class Pipeline:
    """The requests of a client connection that have no reply yet."""

    def __init__(self, host: Host, connection: ClientConnection) -> None:
        self._host = host
        self._connection = connection
        self._stream = connection.stream
        #: runs in the order in which they were submitted, and between them what waits for the run before
        self._pending: deque[Run | Waiting] = deque()
        #: weight of what waits in `_pending` besides runs; at most AHEAD_MAX before the next run
        self.ahead = 0
        #: whether the last of `_pending` takes long; then nothing is read, and so no run comes after it
        self.ends_long = False
        #: how many more requests may be under way; some count as several (extra_units)
        self.room = host.options.outstanding_requests_max
        #: what is audited of the runs under way, also once nobody awaits their outcome; else empty
        self._audited: deque[Submitted] = deque()
        #: answers from the state that are not counted yet, and the last of them: (xid, operation)
        self._answered = 0
        self._last = (0, 0)

    def forget(self) -> None:
        """Nothing that is awaited can be answered."""
        self._pending.clear()
        self._connection.outstanding = self.ahead = 0
        self.room = self._host.options.outstanding_requests_max
        self.ends_long = False

    def forget_audited(self) -> None:
        """The outcomes of the runs under way will not be known."""
        while self._audited:
            self._audit(None)

    def _audit(self, outcome: RunOutcome | None) -> None:
        if (audit := self._host.options.audit) is not None:
            audit.wrote(self._connection, self._audited.popleft(), outcome)

    def has_unanswered(self) -> bool:
        """Tell whether there are requests that wait for no run."""
        return bool(self._pending) and not isinstance(self._pending[0], Run)

    def take_in(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome, now, after the runs that are under way or in its turn."""
        # Data never takes long, it only holds memory while it waits.
        weigh = WEIGHTS.get(op) if self._pending or op != _GET_DATA else None
        units = 1 if weigh is None else weigh(self._host.replica, self._connection, body)
        self.ends_long = units >= LONG_UNITS_MIN
        if self._pending or self.ends_long:
            self._pending.append((xid, op, body, units))
            self._connection.outstanding += 1
            self.room -= 1
            self.ahead += units
            if len(self._pending) == 1:
                self._wait_for_turn()
        else:
            self._answer(xid, op, body)
            self._answered += 1
            self._last = (xid, op)

    def count(self, requests: int) -> None:
        """Count so many requests as read, and the answers since the last time."""
        self._connection.count(requests)
        if self._answered:
            self._connection.last_request = (*self._last, self._host.replica.machine.zxid)
            self._host.counters.answered(self._answered, 0.0)
            self._answered = 0

    def answer_ping(self, xid: int) -> None:
        """Answer a ping before what came earlier."""
        self._connection.count(1)
        self._answer(xid, _PING, None)
        self._host.counters.answered(1, 0.0)

    def submit(
        self, xids: list[int], commands: list[Command], units: int = 1, sync_path: str | None = None
    ) -> None:
        """Hand a run to the log; it takes so many units of `room`."""
        count = len(xids)
        connection = self._connection
        if self._host.replica.submit(
            connection, connection.session_id, connection.nonce, connection.identities, commands
        ):
            self._pending.append(
                Run(xids, commands[-1][0], connection.last_read_ms, units - count, sync_path)
            )
            connection.outstanding += count
            self.room -= units
            if self._host.options.audit is not None:
                self._audited.append(Submitted.of(connection.identities, xids, commands))
        elif connection.phase is not Phase.FINISHED:
            problem = "no entry of the log can hold them"
            connection.malformed(WireError("requests", f"{count} writes", problem))

    def _answer(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome from the state as it is now."""
        replica = self._host.replica
        answer = ANSWERS.get(op)
        if answer is not None:
            reply = answer(replica, self._connection, xid, body)
            self._stream.queue(reply)
            if (audit := self._host.options.audit) is not None:
                audit.answered(replica.machine, self._connection, xid, op, body, reply)
        elif op == _PING:
            self._stream.queue(_pack_head(REPLY_HEADER_BYTES, XID_PING, replica.machine.zxid, OK))
        elif op in SETS_WATCHES:
            self._rearm(xid, body)
        elif op == _RECONFIG:
            begin_change(replica, self._connection.identities, body, partial(self._reconfigured, xid))
        elif op == UNDECODABLE:
            self._stream.queue(encode_header(xid, replica.machine.zxid, body))
        elif op == _AUTH:
            self._stream.queue(encode_header(xid, 0, body))
            if body != OK:
                self._connection.finish()
        elif op == _SASL:
            self._stream.queue(encode_sasl(xid, *body))
            if body[0] != OK:
                self._connection.finish()
        else:
            self._stream.queue(encode_header(xid, _NO_ZXID, UNIMPLEMENTED))
            self._connection.finish()

    def _rearm(self, xid: int, request: SetWatches | None) -> None:
        """Arm what a client had armed; None means more than any connection may have."""
        watches = watches_of(request) if request is not None else sys.maxsize
        if not self._connection.may_watch(watches, 0) or request is None:
            # Client libraries do not look at the code of this reply: watches would be lost silently.
            log.info(
                "closed the connection of %s: its setWatches goes beyond watches_per_connection_max = %d",
                self._stream.address,
                self._host.options.watches_per_connection_max,
            )
            self._connection.finish()
            return
        size = sum(map(watch_bytes, chain.from_iterable(request[1:])))
        size += sum(map(branch_bytes, request.recursive))
        if not self._connection.may_watch(0, size):
            return
        replica = self._host.replica
        for event_type, path in rearm(replica.machine, replica.watches, self._connection, *request):
            self._stream.queue(encode_watch_event(_NO_ZXID, event_type, path))
        self._stream.queue(encode_header(xid, replica.machine.zxid, OK))

    def _reconfigured(self, xid: int, err: int | None) -> None:
        """Answer a change of members; one whose outcome is not known (None) ends the connection."""
        connection, replica = self._connection, self._host.replica
        if (audit := self._host.options.audit) is not None:
            audit.reconfig(connection, xid, err)
        if connection.phase is not Phase.CHANGING:
            return
        if err is None:
            connection.finish()
            return
        connection.move(Move.CHANGE_ANSWERED)
        if err == OK:
            self._stream.queue(answer_get_data(replica, connection, xid, (CONFIG_PATH, False)))
        else:
            self._stream.queue(encode_header(xid, replica.machine.zxid, err))
        self._stream.end_change()
        replica.sessions.touch(connection.session_id)
        self._host.turn.proceed_soon(connection)

    # -- outcomes --

    def deliver(self, outcome: RunOutcome) -> None:
        """Take the outcome of the oldest run: queue its events, its replies, and what waited for it."""
        host, connection = self._host, self._connection
        pending = self._pending
        if self._audited:
            self._audit(outcome)
        if not pending:
            # This connection is gone or was given up; its watchers still hear of what it did.
            for result in outcome.results:
                if result.events is not None:
                    host.fire(result.zxid, result.events)
            return
        run = pending.popleft()
        assert isinstance(run, Run)
        out = self._stream.out
        host.turn.dirty[self._stream] = None
        for xid, (err, zxid, value, events) in zip(run.xids, outcome.results, strict=True):
            if events is not None:
                host.fire(zxid, events)
            if err:
                if err == SESSION_MOVED:
                    # The client has gone on elsewhere: nothing that it reads here may look like an answer.
                    connection.finish()
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
        connection.outstanding -= count
        self.room += count + run.extra_units
        latency_ms = host.turn.ms() - run.started_ms
        host.counters.answered(count, latency_ms)
        host.counters.commits.add(latency_ms, count)
        connection.waits.waited(count, latency_ms)
        if outcome.results:
            connection.last_request = (run.xids[-1], run.op, outcome.results[-1].zxid)
        self.go_on()

    def _wait_for_turn(self) -> None:
        """Read nothing until a long answer has had its turn; then go on."""
        self._stream.stalled = True
        self._stream.update_reading()
        self._host.turn.answer_long(self._connection, self._connection.proceed)

    def go_on(self) -> None:
        """Answer what waited for a run, in portions if no next one is under way; read on if there is room."""
        host, connection = self._host, self._connection
        pending = self._pending
        until_ms = 0.0
        while pending:
            if connection.phase is Phase.FINISHED:
                # No reply may overtake the one that is not given any more, not even that of a later write.
                self.forget()
                break
            head = pending[0]
            if isinstance(head, Run):
                break
            now_ms = host.now_ms()
            until_ms = until_ms or now_ms + TURN_MS_MAX
            if now_ms >= until_ms or self._stream.out_bytes >= TURN_BYTES_MAX:
                if not any(isinstance(later, Run) for later in pending):
                    # No outcome can come before: nothing is read, and so nothing handed to the log.
                    self._stream.stalled = True
                    self._stream.update_reading()
                    host.turn.proceed_soon(connection)
                    return
                until_ms = now_ms + TURN_MS_MAX
            xid, op, body, units = head
            if units >= LONG_UNITS_MIN:
                if host.turn.answering is not connection:
                    self._wait_for_turn()
                    return
                host.turn.answering = None
                self.ends_long = False
            pending.popleft()
            connection.outstanding -= 1
            self.room += 1
            self.ahead -= units
            self._answer(xid, op, body)
            self._answered += 1
            self._last = (xid, op)
        if self._answered:
            self.count(0)
        if (
            self._stream.stalled
            and connection not in host.turn.held
            and 2 * self.room > host.options.outstanding_requests_max
        ):
            host.turn.resuming[connection] = None
        if connection.phase is Phase.LEAVING and not pending:
            connection.finish()
