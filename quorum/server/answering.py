"""How requests are answered, in ZooKeeper's order: from an outcome, or from the state as it is then.

Order contract. Replies leave in the order of the requests. A run (consecutive writes of one chunk) waits for
its outcome; everything behind it waits with it, and is answered before the next run's outcome: in the same
turn if a next run is under way, which is why only so much may stand before one (AHEAD_MAX). Whatever
leaves is queued in one list: an event before any reply that could show its change, the reply that arms a
watch before that watch can fire, because a read is answered and its watch armed in one step.

How bytes become requests is the business of connection.py; what a command results in, which watches fire and
who else is connected is the host's. Soft state only.

Source: zookeeper design, "Ordering"; architecture, "Life of a write".
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from itertools import chain
from typing import Any, Final

from quorum.core.codes import OK, OP_SYNC, SESSION_MOVED, UNIMPLEMENTED
from quorum.core.machine import CONFIG_PATH
from quorum.core.results import RunOutcome
from quorum.core.watches import branch_bytes, watch_bytes
from quorum.server.greeting import GreetingStream, Host, Run
from quorum.server.operations import ANSWERS, weight
from quorum.server.reads import answer_get_data, answer_set_watches
from quorum.server.reconfig import begin_change
from quorum.server.stream import OPEN, Phase
from quorum.wire.errors import WireError
from quorum.wire.protocol import XID_PING, OpCode
from quorum.wire.replies import (
    REPLY_HEAD,
    REPLY_HEADER_BYTES,
    encode_header,
    encode_outcome,
    encode_path,
    encode_sync,
)
from quorum.wire.requests import Command, SetWatches, watches_of

log = logging.getLogger("quorate.server")

#: replies to reads in one turn after which a connection lets others run
TURN_BYTES_MAX: Final = 1024 * 1024
#: how long one connection is answered in one turn: counting a million nodes takes longer than a read
TURN_MS_MAX: Final = 5.0

_pack_head: Final = REPLY_HEAD.pack
_STAT_REPLY_BYTES: Final = REPLY_HEADER_BYTES + 68
#: header zxid of the reply to an operation that is not served
_NO_ZXID: Final = -1

_PING: Final = int(OpCode.PING)
SETS_WATCHES: Final = (int(OpCode.SET_WATCHES), int(OpCode.SET_WATCHES2))
_RECONFIG: Final = int(OpCode.RECONFIG)
_AUTH: Final = int(OpCode.AUTH)
#: stands for a request that is not taken, its body is the error; no frame can hold this number
UNDECODABLE: Final = -(1 << 32)


class AnsweringStream(GreetingStream):
    """A client connection as far as it answers."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        #: while a change of members is under way only pings are answered
        self._reconfiguring = False
        #: whole frames that wait for the change; stalled when there are BEHIND_CHANGE_BYTES_MAX of them
        self._behind = bytearray()
        #: weight of what waits in `_pending` besides runs
        self._ahead = 0
        #: entries "auth" of the access lists in the runs of `_pending`
        self._auth_entries = 0

    def _received_bytes(self) -> int:
        """Return how many bytes wait to be taken apart, or for a change of members."""
        return len(self._received) + len(self._behind)

    def drop(self) -> None:
        """End the connection at once, with all that it has not sent and not read."""
        self._behind.clear()
        super().drop()

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

    def _took_bytes(self) -> None:
        """It is there: its session is not silent."""
        if self.phase is OPEN and not self.read_only:
            self._host.replica.sessions.touch(self.session_id)

    def forget(self) -> None:
        """Nothing that is awaited can be answered."""
        super().forget()
        self._ahead = self._auth_entries = 0

    def _room(self) -> int:
        """Return how many more requests may be under way; each "auth" in an access list counts as one."""
        return self._host.options.outstanding_requests_max - self.outstanding - self._auth_entries

    def _has_unanswered(self) -> bool:
        """Tell whether there are requests that wait for no run."""
        return bool(self._pending) and not isinstance(self._pending[0], Run)

    def _lacks_contact(self) -> bool:
        """Tell whether no leader is heard; then this connection proceeds once one is."""
        host = self._host
        now_ms = self.last_read_ms = host.now_ms()
        if self.read_only or host.silence_ms(now_ms) < self.contact_limit_ms:
            return False
        host.await_contact(self)
        return True

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

    def _submit(
        self, xids: list[int], commands: list[Command], units: int = 1, sync_path: str | None = None
    ) -> None:
        """Hand a run to the log; it takes so many units of `_room`."""
        count = len(xids)
        self._count(count)
        if self._host.replica.submit(self, self.session_id, self.nonce, self.identities, commands):
            self._pending.append(Run(xids, commands[-1][0], self.last_read_ms, units - count, sync_path))
            self.outstanding += count
            self._auth_entries += units - count
        elif self.phase is not Phase.FINISHED:
            self._malformed(WireError("requests", f"{count} writes", "no entry of the log can hold them"))

    def _answer(self, xid: int, op: int, body: Any) -> None:
        """Answer a request that needs no outcome from the state as it is now."""
        replica = self._host.replica
        answer = ANSWERS.get(op)
        if answer is not None:
            self._queue(answer(replica, self, xid, body))
        elif op == _PING:
            self._queue(_pack_head(REPLY_HEADER_BYTES, XID_PING, replica.machine.zxid, OK))
        elif op in SETS_WATCHES:
            self._rearm(xid, body)
        elif op == _RECONFIG:
            begin_change(self._host.replica, self.identities, body, partial(self._reconfigured, xid))
        elif op == UNDECODABLE:
            self._queue(encode_header(xid, replica.machine.zxid, body))
        elif op == _AUTH:
            self._queue(encode_header(xid, 0, body))
            if body != OK:
                self.finish()
        else:
            self._queue(encode_header(xid, _NO_ZXID, UNIMPLEMENTED))
            self.finish()

    def _rearm(self, xid: int, request: SetWatches | None) -> None:
        """Arm what a client had armed; None stands for more than any connection may have."""
        watches = watches_of(request) if request is not None else sys.maxsize
        if not self.may_watch(watches, 0) or request is None:
            # Client libraries do not look at the code of this reply: watches would be lost silently.
            log.info(
                "closed the connection of %s: its setWatches goes beyond watches_per_connection_max = %d",
                self.address,
                self._host.options.watches_per_connection_max,
            )
            self.finish()
            return
        size = sum(map(watch_bytes, chain.from_iterable(request[1:])))
        size += sum(map(branch_bytes, request.recursive))
        if not self.may_watch(0, size):
            return
        for frame in answer_set_watches(self._host.replica, self, xid, request):
            self._queue(frame)

    def may_watch(self, watches: int, size: int) -> bool:
        """Tell whether the connection may have so many more watches of so many bytes; counts a refusal."""
        host = self._host
        options, table = host.options, host.replica.watches
        if table.count_of(self) + watches > options.watches_per_connection_max:
            host.counters.watches_refused += 1
            return False
        return table.total_bytes + size <= options.watch_bytes_total_max or host.shedder.make_room(self, size)

    def _reconfigured(self, xid: int, err: int | None) -> None:
        """Answer a change of members; one whose outcome is not known (None) ends the connection."""
        if self.phase is not OPEN:
            return
        replica = self._host.replica
        if err is None:
            self.finish()
        elif err == OK:
            self._queue(answer_get_data(replica, self, xid, (CONFIG_PATH, False)))
        else:
            self._queue(encode_header(xid, replica.machine.zxid, err))
        self._reconfiguring = False
        self._received[:0] = self._behind
        self._behind.clear()
        self._note_received()
        self._stalled = True
        replica.sessions.touch(self.session_id)
        self._host.proceed_soon(self)

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
        self._auth_entries -= run.auth_entries
        latency_ms = host.turn_ms() - run.started_ms
        host.counters.answered(count, latency_ms)
        host.counters.commits.add(latency_ms, count)
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
        if self._stalled and 2 * self._room() > host.options.outstanding_requests_max:
            host.resuming[self] = None
        if self.phase is Phase.LEAVING and not pending:
            self.finish()
