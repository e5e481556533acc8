"""Plays a stream on one system and writes down everything that comes back.

The order is fixed: one step after the other, and a session that has not seen all writes of the others first
pings until the replies name the newest of them, or syncs, so that what it reads and which events it has got
do not depend on how quick a node is. A connection is opened when its node has applied them, as a session of
the checker's own sees. Nothing is judged here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tests.conformance.differential.link import (
    REPLY_DEADLINE_S,
    SESSION_TIMEOUT_MS,
    Link,
    LostError,
    Side,
    open_link,
    refused,
)
from tests.conformance.differential.steps import (
    FIRST,
    SEEN,
    Break,
    Greet,
    Leave,
    Pending,
    Quiet,
    Reconnect,
    Send,
    Step,
    Stream,
)
from tests.conformance.differential.wire import (
    XID_AUTH,
    XID_EVENT,
    XID_PING,
    XID_SET_WATCHES,
    Connected,
    Event,
    Op,
    Reply,
    Request,
    connect_frame,
    decode_connected,
    decode_event,
    decode_reply,
    request_frame,
    xid_of,
)

OPEN_ACL: Final = ((31, "world", "anyone"),)
#: A follower's session that waits does so by a sync each so many times. A leader answers a sync like a read.
SYNC_EVERY: Final = 3
_PING: Final = Request(Op.PING)
OUTCOME_CHANGED: Final = "an outcome changed after it had been seen"

WRITES: Final = frozenset(
    {
        *(Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL, Op.DELETE, Op.SET_DATA, Op.SET_ACL),
        *(Op.MULTI, Op.CLOSE_SESSION),
    }
)
_XIDS: Final = {
    Op.PING: XID_PING,
    Op.AUTH: XID_AUTH,
    Op.SET_WATCHES: XID_SET_WATCHES,
    Op.SET_WATCHES2: XID_SET_WATCHES,
}


class Note(NamedTuple):
    """Something that came back: a Reply, an Event, a Connected, or a word."""

    session: int
    #: the operation that it answers; 0 for all else
    op: int
    what: Reply | Event | Connected | str
    #: the operations inside the one that it answers
    parts: tuple[int, ...] = ()


@dataclass
class Transcript:
    """What a system answered to a stream."""

    root: str
    #: the zxid of the transaction that made the root
    first_zxid: int = 0
    #: [step: what came back]; the last one is the end of the stream
    notes: list[list[Note]] = field(default_factory=list)
    #: {session id: its name}
    names: dict[int, str] = field(default_factory=dict)
    #: {session id: its password}
    passwords: dict[int, bytes] = field(default_factory=dict)
    #: transactions that closed a session: the order of their events is nobody's promise
    closing_zxids: set[int] = field(default_factory=set)


@dataclass
class Live:
    """A session as its client knows it."""

    number: int
    node: int
    link: Link
    session_id: int
    password: bytes
    seen_zxid: int = 0
    last_xid: int = 0
    #: how many of the stream's writes it has surely seen
    writes_seen: int = -1


class Player:
    """One stream on one system."""

    def __init__(self, side: Side, stream: Stream, root: str) -> None:
        self._side = side
        self._stream = stream
        self._script = Transcript(root)
        self._live: dict[int, Live] = {}
        self._notes: list[Note] = []
        self._writes = 0
        self._waits = 0
        #: the newest transaction that any session of the stream is known to have seen
        self._newest_zxid = 0
        #: [(path, whether it was there)] of writes whose outcome was unknown
        self._outcomes: list[tuple[str, bool]] = []

    async def play(self) -> Transcript:
        """Play all steps."""
        try:
            root = self._script.root
            # a parent of its own, so that no other stream counts in the root's sequence numbers
            paths = (root.rpartition("/")[0], root)
            made = await self._side.observers[0].ask(
                *(Request(Op.CREATE, (path, b"", OPEN_ACL, 0)) for path in paths)
            )
            if any(reply.err for reply in made):
                raise LostError(f"{self._side.name}: {root} cannot be made: {made}")
            self._script.first_zxid = self._newest_zxid = made[1].zxid
            for step in self._stream.steps:
                self._notes = []
                await self._play(step)
                self._script.notes.append(self._notes)
            self._notes = []
            await self._end()
            self._script.notes.append(self._notes)
        finally:
            for live in self._live.values():
                live.link.drop()
        return self._script

    async def _play(self, step: Step) -> None:
        match step:
            case Send(session, requests):
                live = await self._session(session)
                if live is not None:
                    await self._exchange(live, requests)
            case Reconnect(session, node, behind):
                live = await self._session(session)
                if live is not None:
                    await self._resume(live, node, behind)
            case Pending():
                await self._pend(step)
            case Break():
                await self._break(step)
            case Leave(session, behind):
                live = await self._session(session)
                if live is not None:
                    await self._leave(live, behind)
            case Greet():
                await self._greet(step)
            case Quiet():
                await self._quiet()

    async def _quiet(self) -> None:
        for number in sorted(self._live):
            await self._session(number, certainly=True)

    async def _end(self) -> None:
        """Have every event arrive, look again at what was unknown, and close every session."""
        await self._quiet()
        paths = [path for path, _ in self._outcomes]
        if paths and await self._are_there(paths) != [was_there for _, was_there in self._outcomes]:
            self._note(0, OUTCOME_CHANGED)
        for number in sorted(self._live):
            live = await self._session(number)
            if live is not None:
                await self._leave(live, ())

    # -- sessions --

    def _note(
        self, session: int, what: Reply | Event | Connected | str, op: int = 0, parts: tuple[int, ...] = ()
    ) -> None:
        self._notes.append(Note(session, op, what, parts))

    async def _session(self, number: int, *, certainly: bool = False) -> Live | None:
        """Return a session that has seen all writes, opened or resumed where it must be.

        Args:
            number: which.
            certainly: ask the node even if the session has seen all writes.
        """
        live: Live | None = self._live.get(number)
        if live is None:
            homes = self._stream.homes
            live = await self._connect(number, homes[number % len(homes)], None, ())
        elif live.link.closed:
            live = await self._connect(number, live.node, live, ())
        elif certainly or live.writes_seen < self._writes:
            self._waits += 1
            by_sync = live.node != 0 and self._waits % SYNC_EVERY == 0
            caught_up = self._sync(live) if by_sync else self._catch_up(live)
            return live if await caught_up else None
        return live

    async def _sync(self, live: Live) -> bool:
        """Sync, and see that the node has all writes then; False if the link ended."""
        wanted = self._newest_zxid
        if not await self._exchange(live, (Request(Op.SYNC, ("/",)),)):
            return False
        reply = self._notes[-1].what
        if isinstance(reply, Reply) and reply.zxid < wanted:
            self._note(live.number, "a sync was answered before the node had all writes", Op.SYNC)
        return True

    async def _catch_up(self, live: Live) -> bool:
        """Ping until a session has seen all writes; only the last reply is noted. False if the link ended."""
        wanted, deadline_s = self._newest_zxid, time.monotonic() + REPLY_DEADLINE_S
        while True:
            live.link.send(request_frame(XID_PING, _PING))
            reply = await self._next_reply(live, Op.PING)
            if reply is None:
                return False
            if reply.zxid >= wanted:
                break
            if time.monotonic() > deadline_s:
                self._note(live.number, "does not see the newest write")
                break
        self._note(live.number, reply, Op.PING)
        live.writes_seen = self._writes
        return True

    async def _connect(
        self, number: int, node: int, former: Live | None, behind: tuple[Request, ...]
    ) -> Live | None:
        """Open a session, or resume `former`; sends `behind` with the handshake."""
        await self._side.observers[node].reach(self._newest_zxid)
        link = await open_link(self._side.ports[node])
        if former is None:
            # its reply names the transaction that made the session
            behind = (_PING,)
        session_id, password = (former.session_id, former.password) if former else (0, bytes(16))
        seen_zxid = former.seen_zxid if former else 0
        live = Live(number, node, link, session_id, password, seen_zxid, former.last_xid if former else 0)
        sent = [self._fill(request, live) for request in behind]
        xids = [self._next_xid(live, request.op) for request in sent]
        packet = connect_frame(seen_zxid, SESSION_TIMEOUT_MS, session_id, password)
        link.send(packet + b"".join(map(request_frame, xids, sent)))
        answer = await link.next()
        if answer is None:
            self._note(number, "closed in the handshake")
            self._live.pop(number, None)
            return None
        connected = decode_connected(answer)
        if not session_id and connected.session_id:
            self._writes += 1
            names = self._script.names
            names[connected.session_id] = f"session {number}.{len(names)}"
            self._script.passwords[connected.session_id] = connected.password
        self._note(number, connected)
        if refused(connected):
            self._live.pop(number, None)
            link.drop()
            return None
        live.session_id, live.password = connected.session_id, connected.password
        live.writes_seen = self._writes
        self._live[number] = live
        await self._collect(live, sent)
        return live

    async def _resume(self, live: Live, node: int, behind: tuple[Request, ...]) -> Live | None:
        live.link.drop()
        return await self._connect(live.number, node, live, behind)

    # -- requests --

    def _fill(self, request: Request, live: Live) -> Request:
        """Put the root into paths and the zxid into a setWatches."""
        root = self._script.root

        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return root + value[1:] if value.startswith("~") else value
            if isinstance(value, Request):
                return Request(value.op, fill(value.args), value.raw)
            if isinstance(value, tuple):
                return tuple(map(fill, value))
            return value

        args = fill(request.args)
        if request.op in (Op.SET_WATCHES, Op.SET_WATCHES2) and request.raw is None:
            zxids = {SEEN: live.seen_zxid, FIRST: self._script.first_zxid}
            args = (zxids.get(args[0], args[0]), *args[1:])
        return Request(request.op, args, request.raw)

    @staticmethod
    def _next_xid(live: Live, op: int) -> int:
        fixed = _XIDS.get(Op(op))
        if fixed is not None:
            return fixed
        live.last_xid += 1
        return live.last_xid

    async def _exchange(self, live: Live, requests: tuple[Request, ...]) -> bool:
        """Send requests in one packet and take what comes; False if the connection ended."""
        sent = [self._fill(request, live) for request in requests]
        frames = [request_frame(self._next_xid(live, request.op), request) for request in sent]
        live.link.send(b"".join(frames))
        return await self._collect(live, sent)

    async def _collect(self, live: Live, sent: list[Request]) -> bool:
        """Take the replies to requests, and the events between them; False if the connection ended."""
        for request in sent:
            if request.op in WRITES:
                self._writes += 1
            if not await self._take_reply(live, request.op, parts_of(request)):
                return False
        live.writes_seen = self._writes
        if any(request.op in (Op.SET_ACL, Op.CLOSE_SESSION) for request in sent):
            # Until ZooKeeper's leader has applied it, it judges writes by the old list, and counts a closed
            # session's ephemerals among the children of a node that is to be deleted.
            await self._side.observers[0].reach(self._newest_zxid)
        return True

    async def _take_reply(self, live: Live, op: int, parts: tuple[int, ...] = ()) -> bool:
        """Note events up to a reply, and the reply; False if the connection ended."""
        reply = await self._next_reply(live, op)
        if reply is None:
            return False
        if op == Op.CLOSE_SESSION:
            self._script.closing_zxids.add(reply.zxid)
        self._note(live.number, reply, op, parts)
        return True

    async def _next_reply(self, live: Live, op: int) -> Reply | None:
        """Note events up to a reply, and return it; None, which is noted, if the connection ended."""
        while True:
            try:
                data = await live.link.next()
            except TimeoutError:
                self._note(live.number, "no reply", op)
                live.link.drop()
                return None
            if data is None:
                self._note(live.number, "closed", op)
                return None
            event = decode_event(data) if xid_of(data) == XID_EVENT else None
            came = event or decode_reply(data, op)
            live.seen_zxid = max(live.seen_zxid, came.zxid)
            self._newest_zxid = max(self._newest_zxid, came.zxid)
            if isinstance(came, Reply):
                return came
            self._note(live.number, came)

    async def _leave(self, live: Live, behind: tuple[Request, ...]) -> None:
        """Close a session; what is behind it must have no effect, and its replies are nobody's promise."""
        close = Request(Op.CLOSE_SESSION)
        sent = [close, *(self._fill(request, live) for request in behind)]
        xids = [self._next_xid(live, request.op) for request in sent]
        live.link.send(b"".join(map(request_frame, xids, sent)))
        await self._collect(live, [close])
        try:
            while not live.link.closed:
                await live.link.next()
        except TimeoutError:
            self._note(live.number, "stays open after closeSession")
        live.link.drop()
        del self._live[live.number]

    # -- trouble --

    async def _are_there(self, paths: list[str]) -> list[bool]:
        """Look at nodes, the one that was created last first.

        So a create that is still under way in ZooKeeper, and takes effect between two looks, leaves a prefix.
        """
        looks = (Request(Op.EXISTS, (path, False)) for path in reversed(paths))
        _, *replies = await self._side.observers[1].ask(Request(Op.SYNC, ("/",)), *looks)
        self._newest_zxid = max((self._newest_zxid, *(reply.zxid for reply in replies)))
        return [reply.err == 0 for reply in reversed(replies)]

    async def _pend(self, step: Pending) -> None:
        """Drop a connection whose writes were not answered."""
        live = await self._session(step.session)
        if live is None:
            return
        marker = self._script.root + step.marker[1:]
        home = Request(Op.CREATE, (marker, b"", OPEN_ACL, 0))
        await self._exchange(live, (home,))
        paths = [f"{marker}/{index}" for index in range(4)] if not step.settled else []
        creates = tuple(Request(Op.CREATE, (path, b"", OPEN_ACL, 0)) for path in paths)
        last = (Request(Op.CREATE, (f"{marker}/end", b"", OPEN_ACL, 0)),)
        requests = (*step.requests, *creates, *last)
        sent = [self._fill(request, live) for request in requests]
        frames = [request_frame(self._next_xid(live, request.op), request) for request in sent]
        live.link.send(b"".join(frames))
        self._writes += len(sent)
        if step.settled:
            deadline_s = time.monotonic() + REPLY_DEADLINE_S
            while not all(await self._are_there([f"{marker}/end"])):
                if live.link.closed or time.monotonic() > deadline_s:
                    self._note(step.session, "the last of the pending writes does not take effect")
                    break
        if await self._resume(live, step.node, ()) is None or step.settled:
            return
        paths.append(f"{marker}/end")
        there = await self._are_there(paths)
        self._outcomes += zip(paths, there, strict=True)
        if there != sorted(there, reverse=True):
            self._note(step.session, f"not a prefix of the pending writes took effect: {there}")

    async def _break(self, step: Break) -> None:
        """Send something odd; note whether the connection lives on, and resume."""
        live = await self._session(step.session)
        if live is None:
            return
        seen_zxid = live.seen_zxid
        live.link.send(step.payload)
        if await self._take_reply(live, step.op):
            live.link.send(request_frame(XID_PING, Request(Op.PING)))
            while (data := await live.link.next()) is not None:
                if xid_of(data) == XID_PING:
                    self._note(live.number, "stays open")
                    break
            else:
                self._note(live.number, "closed")
        # where only one of the two answers, the clients would know different zxids from here on
        live.seen_zxid = seen_zxid
        await self._resume(live, live.node, ())

    async def _greet(self, step: Greet) -> None:
        """Try a handshake on a connection of its own."""
        live = await self._session(step.session)
        if live is None:
            return
        await self._side.observers[step.node].reach(self._newest_zxid)
        link = await open_link(self._side.ports[step.node])
        link.send(handshake(step.kind, live))
        answer = await link.next()
        if answer is None:
            self._note(step.session, "closed in the handshake")
            return
        connected = decode_connected(answer)
        if connected.session_id not in (0, live.session_id):
            self._script.names[connected.session_id] = f"guest {len(self._script.names)}"
        self._note(step.session, connected)
        if refused(connected):
            while not link.closed:
                await link.next()
            self._note(step.session, "closed")
            # ZooKeeper has closed the session's own connection as well, if that was on the same server
            await self._resume(live, live.node, ())
        else:
            self._writes += 2
            link.send(request_frame(1, Request(Op.CLOSE_SESSION)))
            closed = await link.next()
            if closed is not None:
                self._newest_zxid = max(self._newest_zxid, decode_reply(closed, Op.CLOSE_SESSION).zxid)
        link.drop()


def parts_of(request: Request) -> tuple[int, ...]:
    """Return the operations inside a multi."""
    if request.op not in (Op.MULTI, Op.MULTI_READ) or request.raw is not None:
        return ()
    return tuple(part.op for part in request.args[0])


def handshake(kind: str, live: Live) -> bytes:
    """Encode an odd handshake."""
    wrong = bytes(byte ^ 0x55 for byte in live.password)
    match kind:
        case "wrong-password":
            return connect_frame(0, SESSION_TIMEOUT_MS, live.session_id, wrong)
        case "wrong-password-no-read-only":
            return connect_frame(0, SESSION_TIMEOUT_MS, live.session_id, wrong, None)
        case "short-password":
            return connect_frame(0, SESSION_TIMEOUT_MS, live.session_id, live.password[:8])
        case "unknown-session":
            return connect_frame(0, SESSION_TIMEOUT_MS, live.session_id ^ 0x5A0000000000, live.password)
        case "future-zxid":
            return connect_frame(2**62, SESSION_TIMEOUT_MS, 0, bytes(16))
        case "no-read-only":
            return connect_frame(0, SESSION_TIMEOUT_MS, 0, bytes(16), None)
        case "read-only":
            return connect_frame(0, SESSION_TIMEOUT_MS, 0, bytes(16), True)
        case "empty-password":
            return connect_frame(0, SESSION_TIMEOUT_MS, 0, b"")
        case "huge-timeout":
            return connect_frame(0, 2**31 - 1, 0, bytes(16))
        case "small-timeout":
            return connect_frame(0, 1, 0, bytes(16))
        case _:
            raise ValueError(f"kind: {kind!r}: there is no such handshake")
