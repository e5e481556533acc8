"""Simulated ZooKeeper clients: the wire protocol over simulated links, and a history of all they did and saw.

Decides what a client does with its connection and session: handshake, pings, giving up a silent server,
reconnecting elsewhere with the session, setWatches, close. It follows ZooKeeper's own client: pings after a
quarter of the timeout without a request, a server is given up after two thirds of it without an answer, a
request whose connection ended is unknown and never repeated. On purpose, and now and then, a client does what
clients should not: it is silent beyond its timeout, leaves without a word, moves while its old connection
still sends, tries a wrong password. What is asked comes from workload.py; nothing is judged here but the
protocol itself (the order of replies).

What the world uses: `ClientFleet(scheduler, nodes)`, `start()`, `stop()`, `quiet`, `operations`,
`history()`. Per client one process of the history.

Source: ClientCnxn of ZooKeeper 3.9; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from struct import Struct
from typing import Any, Protocol

from quorum.wire.jute import STAT, STAT_BYTES, Stat
from quorum.wire.protocol import XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, OpCode
from quorum.wire.replies import (
    decode_children_stat,
    decode_connect_response,
    decode_data,
    decode_multi,
    decode_path,
    decode_path_stat,
    decode_watch_event,
)
from quorum.wire.requests import (
    PING_FRAME,
    ConnectRequest,
    SetWatches,
    encode_command,
    encode_connect,
    encode_read,
    encode_set_watches,
)
from tests.simulation.history import (
    History,
    Operation,
    Outcome,
    Recorder,
    SessionEvent,
    SessionStep,
    WatchEvent,
)
from tests.simulation.scheduler import Handle, Scheduler
from tests.simulation.workload import Request, Workload, command_of

CLIENTS = 8
#: how many of them only read
READERS = 3
TIMEOUTS_MS = (1000, 2000, 4000, 10_000)
THINK_MS = 230.0
PENDING_MAX = 40
BACKOFF_MS = (10.0, 250.0)
CONNECT_TIMEOUT_MS = 700.0
PING_AFTER = 1 / 4
GIVE_UP_AFTER = 2 / 3
#: chances, each time that a client thinks
SILENCE_CHANCE = 0.005
LEAVE_CHANCE = 0.01
CLOSE_CHANCE = 0.006
MOVE_CHANCE = 0.006
PROBE_CHANCE = 0.004

_HEADER = Struct(">iqi")
_READS = {
    "get": OpCode.GET_DATA,
    "exists": OpCode.EXISTS,
    "children": OpCode.GET_CHILDREN2,
}
_ARMED_BY = {"get": "data", "exists": "data", "children": "child"}
_NO_NODE = -101
#: {type of an event: the watches that it uses up}
_FIRES = {1: ("data", "exist"), 2: ("data", "exist", "child"), 3: ("data", "exist"), 4: ("child",)}
_NO_PASSWORD = bytes(16)


class ProtocolBroken(AssertionError):  # noqa: N818 - named as what was found
    """A server answered what no client could make sense of."""


class Link(Protocol):
    """The client's end of a connection."""

    def send(self, data: bytes) -> None:
        """Send bytes; they may never arrive."""

    def close(self) -> None:
        """Close; nothing is told any more."""


class Host(Protocol):
    """A node that can be connected to."""

    node_id: int

    def connect(self, end: Any, name: str = ...) -> Link:
        """Begin to connect; the end's link_up or link_down follows."""


class _State(Enum):
    AWAY = auto()  #: no connection
    CONNECTING = auto()
    GREETING = auto()  #: the handshake left
    OPEN = auto()
    CLOSING = auto()  #: the close of the session left
    DONE = auto()


class SimClient:
    """One client: at most one session at a time."""

    def __init__(
        self,
        process: int,
        scheduler: Scheduler,
        nodes: Mapping[int, Host],
        rng: random.Random,
        *,
        reads_only: bool = False,
    ) -> None:
        self.recorder = Recorder(process)
        self.workload = Workload(process, rng, reads_only=reads_only)
        self._process = process
        self._scheduler = scheduler
        self._nodes = nodes
        self._rng = rng
        self._state = _State.AWAY
        self._stopping = False
        self._link: Link | None = None
        self._node_id = 0
        #: numbers of connections: given so far, in use
        self._connections = 0
        self._connection = 0
        self._session_id = 0
        self._password = _NO_PASSWORD
        self._timeout_ms = rng.choice(TIMEOUTS_MS)
        self._last_zxid = 0
        self._asked_ms = 0.0
        self._sent_ms = 0.0
        self._received_ms = 0.0
        self._silent_until_ms = 0.0
        self._xid = 0
        #: requests without a reply, oldest first: (xid, operation, whether a create answers with a Stat)
        self._pending: deque[tuple[int, Operation, bool]] = deque()
        self._buffer = bytearray()
        #: {kind of watch: {path: None}}
        self._armed: dict[str, dict[str, None]] = {"data": {}, "exist": {}, "child": {}}
        #: a connection that the session left without closing it
        self._old_link: tuple[Link, int, int, int] | None = None
        self._wake: Handle | None = None

    # --- the fleet's calls

    def start(self) -> None:
        """Begin to live."""
        self._scheduler.at(self._rng.uniform(0.0, 100.0), self._connect)
        self._scheduler.at(self._think_ms(), self._think)
        self._tick()

    def stop(self) -> None:
        """Ask for nothing new; some close their session, the others keep it."""
        self._stopping = True

    @property
    def quiet(self) -> bool:
        """Whether everything is answered after `stop`, and nothing more will be asked but pings.

        From far away one ping or another of many clients is always on its way.
        """
        if self._state is _State.DONE:
            return True
        answered = all(xid == XID_PING for xid, *_ in self._pending)
        return self._state is _State.OPEN and answered and self._process % 2 == 0

    @property
    def session_id(self) -> int:
        """The session that it has, 0 for none."""
        return self._session_id

    # --- time

    def _think_ms(self) -> float:
        return self._rng.expovariate(1 / THINK_MS)

    def _think(self) -> None:
        if self._state is _State.DONE:
            return
        self._scheduler.at(self._think_ms(), self._think)
        if self._state is not _State.OPEN or self._is_silent():
            return
        if self._stopping:
            if self._process % 2 and not self._pending:
                self._close_session()
            return
        self._do_something()

    def _do_something(self) -> None:
        rng = self._rng
        drawn = rng.random()
        for chance, do in (
            (SILENCE_CHANCE, self._be_silent),
            (LEAVE_CHANCE, self._leave),
            (CLOSE_CHANCE, self._close_session),
            (MOVE_CHANCE, self._move),
            (PROBE_CHANCE, self._probe),
        ):
            drawn -= chance
            if drawn < 0.0:
                do()
                return
        drawn = rng.random()
        count = 1 if drawn < 0.7 else rng.randrange(2, 5) if drawn < 0.92 else rng.randrange(8, 20)
        requests: list[Request] = []
        while len(requests) < count:
            requests += self.workload.next()
        if len(self._pending) + len(requests) <= PENDING_MAX:
            self._ask(requests)

    def _is_silent(self) -> bool:
        return self._scheduler.now_ms < self._silent_until_ms

    def _tick(self) -> None:
        """Look at the clock: pings, and servers that do not answer."""
        if self._state is _State.DONE:
            return
        self._scheduler.at(self._timeout_ms / 8, self._tick)
        if self._is_silent():
            return
        now_ms = self._scheduler.now_ms
        if self._state in (_State.CONNECTING, _State.GREETING):
            if now_ms - self._asked_ms > CONNECT_TIMEOUT_MS:
                self._lose()
        elif self._state in (_State.OPEN, _State.CLOSING):
            if now_ms - self._received_ms > self._timeout_ms * GIVE_UP_AFTER:
                self._lose()
            elif now_ms - self._sent_ms > self._timeout_ms * PING_AFTER and self._state is _State.OPEN:
                operation = self._invoke("ping", "", None)
                self._pending.append((XID_PING, operation, False))
                self._send(PING_FRAME)

    # --- connections

    def _connect(self) -> None:
        if self._state is not _State.AWAY:
            return
        if self._is_silent():
            self._scheduler.at(self._silent_until_ms - self._scheduler.now_ms, self._connect)
            return
        others = [node_id for node_id in self._nodes if node_id != self._node_id or len(self._nodes) == 1]
        self._node_id = self._rng.choice(others)
        self._connections += 1
        self._connection = self._connections
        self._state = _State.CONNECTING
        self._asked_ms = self._scheduler.now_ms
        self._buffer.clear()
        self._xid = 0
        self._link = self._nodes[self._node_id].connect(
            _End(self, self._connection), f"client-{self._process}"
        )

    def listens(self, connection: int) -> bool:
        """Tell whether this is the connection that the client uses."""
        return self._link is not None and connection == self._connection

    def link_up(self) -> None:
        """The connection is there: shake hands."""
        assert self._link is not None
        self._state = _State.GREETING
        self._asked_ms = self._scheduler.now_ms
        request = ConnectRequest(
            0, self._last_zxid, self._timeout_ms, self._session_id, self._password, read_only=False
        )
        self._link.send(encode_connect(request))

    def link_data(self, data: bytes) -> None:
        """Bytes arrived."""
        self._buffer += data
        if self._is_silent():
            # The process does not run; its kernel keeps what comes.
            if self._wake is None:
                wait_ms = self._silent_until_ms - self._scheduler.now_ms
                self._wake = self._scheduler.at(wait_ms, self._awake)
            return
        self._read()

    def link_down(self) -> None:
        """The connection ended, or could not be made."""
        self._link = None
        self._lose()

    def _awake(self) -> None:
        self._wake = None
        if self._state in (_State.GREETING, _State.OPEN, _State.CLOSING):
            self._read()

    def _lose(self) -> None:
        """Give the connection up: what is unanswered is unknown. The session may live on."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        if self._state is _State.GREETING:
            self._step(SessionStep.DROPPED)
        elif self._state in (_State.OPEN, _State.CLOSING):
            self._step(SessionStep.LOST)
        if self._state is _State.CLOSING:
            self._forget_session()
        self._pending.clear()
        self._buffer.clear()
        if self._state is not _State.DONE:
            self._state = _State.AWAY
            self._scheduler.at(self._rng.uniform(*BACKOFF_MS), self._connect)

    def _step(self, step: SessionStep, *, password_right: bool = True) -> None:
        self.recorder.session(
            SessionEvent(
                self._scheduler.now_ms,
                step,
                self._session_id,
                self._connection,
                self._node_id,
                self._timeout_ms,
                self._asked_ms,
                password_right,
            )
        )

    def _forget_session(self) -> None:
        """The next connection asks for a new session."""
        self._session_id = 0
        self._password = _NO_PASSWORD
        self._last_zxid = 0
        self._old_link = None
        for paths in self._armed.values():
            paths.clear()
        if self._stopping:
            self._state = _State.DONE

    # --- what clients should not do

    def _be_silent(self) -> None:
        # Every second time until about when the leader counts the session out.
        share = self._rng.choice([self._rng.uniform(0.3, 2.2), self._rng.uniform(0.9, 1.2)])
        self._silent_until_ms = self._scheduler.now_ms + share * self._timeout_ms

    def _leave(self) -> None:
        """Connect to another node; what was sent still arrives."""
        self._lose()

    def _move(self) -> None:
        """Connect to another node and forget to close the old connection, which then sends once more."""
        if self._link is None:
            return
        self._old_link = (self._link, self._connection, self._node_id, self._xid)
        self._link = None
        self._lose()

    def _send_late(self) -> None:
        """The old connection sends a write after the session moved: it must take no effect."""
        if self._old_link is None:
            return
        (link, connection, node_id, xid), self._old_link = self._old_link, None
        kind, path, argument = self.workload.late_write()
        operation = self.recorder.invoke(
            self._scheduler.now_ms, self._session_id, connection, node_id, kind, path, argument
        )
        link.send(encode_command(xid + 1, command_of(kind, path, operation.argument, with_stat=False)))
        link.close()

    def _probe(self) -> None:
        """Try a wrong password on a connection of its own."""
        self._connections += 1
        node_id = self._rng.choice(list(self._nodes))
        step = SessionEvent(
            ms=0.0,
            step=SessionStep.DROPPED,
            session_id=self._session_id,
            connection=self._connections,
            node_id=node_id,
            timeout_ms=self._timeout_ms,
            asked_ms=0.0,
            password_right=False,
        )
        _Probe(self._scheduler, self.recorder, step).run(self._nodes[node_id])

    # --- requests

    def _close_session(self) -> None:
        self._ask([("close", "", None)])
        self._state = _State.CLOSING

    def _invoke(self, kind: str, path: str, argument: Any) -> Operation:
        return self.recorder.invoke(
            self._scheduler.now_ms,
            self._session_id,
            self._connection,
            self._node_id,
            kind,
            path,
            argument,
        )

    def _ask(self, requests: list[Request]) -> None:
        """Send requests in one piece."""
        frames: list[bytes] = []
        for kind, path, argument in requests:
            operation = self._invoke(kind, path, argument)
            self._xid += 1
            xid = self._xid
            with_stat = False
            read = _READS.get(kind)
            if read is not None:
                frames.append(encode_read(xid, read, path, argument))
            else:
                with_stat = self._rng.random() < 0.5
                frames.append(encode_command(xid, command_of(kind, path, argument, with_stat=with_stat)))
            self._pending.append((xid, operation, with_stat))
        self._send(b"".join(frames))

    def _send(self, data: bytes) -> None:
        assert self._link is not None
        self._sent_ms = self._scheduler.now_ms
        self._link.send(data)

    # --- replies

    def _read(self) -> None:
        """Take all whole frames."""
        buffer = self._buffer
        position, size = 0, len(buffer)
        while size - position >= 4:
            end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if end > size:
                break
            frame = bytes(buffer[position + 4 : end])
            position = end
            if self._state is _State.GREETING:
                self._greeted(frame)
            else:
                self._take(frame)
            if self._link is None:
                return
        del buffer[:position]

    def _greeted(self, frame: bytes) -> None:
        response = decode_connect_response(frame)
        now_ms = self._received_ms = self._sent_ms = self._scheduler.now_ms
        if response.session_id == 0:
            self._step(SessionStep.REFUSED)
            self._state = _State.AWAY
            self._forget_session()
            assert self._link is not None
            self._link.close()
            self._link = None
            if self._state is not _State.DONE:
                self._scheduler.at(self._rng.uniform(*BACKOFF_MS), self._connect)
            return
        resumed = self._session_id != 0
        if resumed and response.session_id != self._session_id:
            raise ProtocolBroken(f"session {self._session_id:#x} was resumed as {response} at {now_ms} ms")
        self._session_id = response.session_id
        self._password = response.password
        self._timeout_ms = response.session_timeout_ms
        self._state = _State.OPEN
        self._step(SessionStep.RESUMED if resumed else SessionStep.OPENED)
        if resumed:
            self._send_late()
            self._rearm()
        elif not self._stopping and not self.workload.reads_only:
            self._ask(self.workload.beginning())

    def _rearm(self) -> None:
        """Leave the watches again, at times in two requests."""
        lists = [list(paths) for paths in self._armed.values()]
        if not any(lists):
            return
        parts = [lists]
        if self._rng.random() < 0.2:
            parts = [[paths[place::2] for paths in lists] for place in (0, 1)]
        relative = self._last_zxid
        for data, exist, child in parts:
            argument = (relative, tuple(data), tuple(exist), tuple(child))
            self._pending.append((XID_SET_WATCHES, self._invoke("set_watches", "", argument), False))
            self._send(encode_set_watches(SetWatches(relative, data, exist, child)))

    def _take(self, frame: bytes) -> None:
        xid, zxid, err = _HEADER.unpack_from(frame)
        now_ms = self._received_ms = self._scheduler.now_ms
        self._last_zxid = max(self._last_zxid, zxid)
        if xid == XID_NOTIFICATION:
            event = decode_watch_event(frame)
            self.recorder.watch(
                WatchEvent(now_ms, self._session_id, self._connection, event.event_type, event.path, zxid)
            )
            for which in _FIRES.get(event.event_type, ()):
                self._armed[which].pop(event.path, None)
            return
        if not self._pending or self._pending[0][0] != xid:
            raise ProtocolBroken(f"a reply to xid {xid}; unanswered: {list(self._pending)[:3]}")
        _, operation, with_stat = self._pending.popleft()
        failure = None
        result: Any = None
        if not err:
            failure, result = self._result(operation, frame, with_stat=with_stat)
        outcome = Outcome.OK if not err and failure is None else Outcome.ERROR
        self.recorder.complete(operation, now_ms, outcome, err if failure is None else failure, zxid, result)
        if operation.kind in _ARMED_BY:
            self._learn(operation)
        elif operation.kind == "close":
            self._lose()

    def _result(self, operation: Operation, frame: bytes, *, with_stat: bool) -> tuple[int | None, Any]:
        """Return (error of a failed multi or None, result as history.py has it)."""
        match operation.kind:
            case "get":
                data, stat = decode_data(frame)
                return None, ((data or b"").decode(), stat)
            case "set" | "exists":
                return None, Stat._make(STAT.unpack(frame[-STAT_BYTES:]))
            case "children":
                names, stat = decode_children_stat(frame)
                return None, (tuple(names), stat)
            case "create":
                return None, decode_path_stat(frame) if with_stat else (decode_path(frame), None)
            case "multi":
                results = decode_multi(frame)
                errs = tuple(each.err for each in results)
                if any(errs):
                    return next(err for err in errs if err), errs
                return None, tuple((each.path, each.stat) for each in results)
        return None, None

    def _learn(self, operation: Operation) -> None:
        """Remember what a read showed, and which watch it armed."""
        kind, path, result = operation.kind, operation.path, operation.result
        if operation.outcome is Outcome.OK:
            self.workload.learn(path, result if kind == "exists" else result[1])
            if kind == "children":
                self.workload.learn_children(path, result[0])
            if operation.argument:
                self._armed[_ARMED_BY[kind]][path] = None
        elif operation.err == _NO_NODE:
            self.workload.learn(path, None)
            if operation.argument and kind == "exists":
                self._armed["exist"][path] = None


class _End:
    """A client's end of one connection; deaf once the client has gone on to another one."""

    __slots__ = ("_client", "_connection")

    def __init__(self, client: SimClient, connection: int) -> None:
        self._client = client
        self._connection = connection

    def link_up(self) -> None:
        """The connection is there."""
        if self._client.listens(self._connection):
            self._client.link_up()

    def link_data(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._client.listens(self._connection):
            self._client.link_data(data)

    def link_down(self) -> None:
        """The connection ended, or could not be made."""
        if self._client.listens(self._connection):
            self._client.link_down()


class _Probe:
    """A connection that tries a wrong password."""

    def __init__(self, scheduler: Scheduler, recorder: Recorder, step: SessionEvent) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._step = step
        self._link: Link | None = None
        self._buffer = b""

    def run(self, node: Host) -> None:
        """Connect."""
        self._link = node.connect(self, "probe")

    def link_up(self) -> None:
        """Ask for the session."""
        assert self._link is not None
        self._step = self._step._replace(asked_ms=self._scheduler.now_ms)
        step = self._step
        request = ConnectRequest(0, 0, step.timeout_ms, step.session_id, b"wrong password!!", read_only=False)
        self._link.send(encode_connect(request))

    def link_data(self, data: bytes) -> None:
        """Note the answer."""
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        response = decode_connect_response(self._buffer[4:])
        what = SessionStep.REFUSED if response.session_id == 0 else SessionStep.RESUMED
        self._recorder.session(self._step._replace(ms=self._scheduler.now_ms, step=what))
        assert self._link is not None
        self._link.close()

    def link_down(self) -> None:
        """Nothing was learned."""


class ClientFleet:
    """All clients of a world."""

    def __init__(
        self,
        scheduler: Scheduler,
        nodes: Mapping[int, Host],
        count: int = CLIENTS,
        readers: int | None = None,
    ) -> None:
        """Prepare; nothing happens before `start`.

        Args:
            scheduler: time and randomness.
            nodes: by id; nodes that are added later are connected to as well.
            count: of clients.
            readers: how many of them only read; READERS if None.
        """
        readers = READERS if readers is None else readers
        self.clients = [
            SimClient(
                process,
                scheduler,
                nodes,
                scheduler.rng(f"client-{process}"),
                reads_only=process > count - readers,
            )
            for process in range(1, count + 1)
        ]

    def start(self) -> None:
        """Let all begin."""
        for client in self.clients:
            client.start()

    def stop(self) -> None:
        """Let all come to an end: every second one closes its session, the others keep it alive."""
        for client in self.clients:
            client.stop()

    @property
    def quiet(self) -> bool:
        """Whether all have come to an end."""
        return all(client.quiet for client in self.clients)

    @property
    def sessions(self) -> set[int]:
        """The sessions that somebody keeps."""
        return {client.session_id for client in self.clients if client.session_id}

    @property
    def operations(self) -> int:
        """How many operations were asked for."""
        return sum(len(client.recorder.history.operations) for client in self.clients)

    def history(self) -> History:
        """Return what all of them did and saw."""
        return History(client.recorder.history for client in self.clients)
