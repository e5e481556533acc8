"""A client of the simulated quorum, with the operations of `quorum.client.Client` that brokers use.

Requests of one session leave and are answered in order; while no node is connected they wait. What was sent
on a connection that broke has an unknown outcome. A session that is over stays over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from quorum.client import (
    ANY_VERSION,
    Client,
    ClientClosedError,
    ClientState,
    ConnectionLossError,
    CreateMode,
    EventType,
    MultiFailedError,
    NoWatchError,
    OperationResult,
    ReadOutcome,
    SessionExpiredError,
    Stat,
    Transaction,
    WatchCallback,
    WatchEvent,
    WatchType,
)
from quorum.client.errors import server_error
from quorum.client.watches import WatchCause, WatchRegistry
from quorum.core import queries
from quorum.core.codes import (
    OP_CLOSE_SESSION,
    OP_CREATE,
    OP_CREATE2,
    OP_DELETE,
    OP_ERROR,
    OP_MULTI,
    OP_SET_DATA,
    OP_SYNC,
    RUNTIME_INCONSISTENCY,
    SESSION_EXPIRED,
)
from quorum.core.results import Result
from quorum.core.watches import WatchCause as ServerKind
from quorum.wire.jute import STAT
from tests.simulation.control_plane.link import Link
from tests.simulation.control_plane.process import Process
from tests.simulation.control_plane.quorum import Quorum

RECONNECT_MS = (5.0, 200.0)
_SERVER_KINDS = {
    WatchCause.DATA: ServerKind.DATA,
    WatchCause.EXIST: ServerKind.EXIST,
    WatchCause.CHILD: ServerKind.CHILD,
    WatchCause.PERSISTENT: ServerKind.PERSISTENT,
    WatchCause.RECURSIVE: ServerKind.RECURSIVE,
}
_OVER = (ClientState.LOST, ClientState.CLOSED)


def stat_from(packed: bytes) -> Stat:
    """Return a Stat from its 68 bytes."""
    return Stat(*STAT.unpack_from(packed))


class _Pending(NamedTuple):
    """A request that was not answered yet."""

    label: str
    #: what happens at the node
    run: Callable[[Link], None]
    future: asyncio.Future[Any]
    writes: bool


class SimClient:
    """One session."""

    def __init__(self, quorum: Quorum, process: Process, timeout_ms: int) -> None:
        """Belong to a process; start() connects."""
        self.process = process
        self.timeout_ms = timeout_ms
        #: as the shipped client names it
        self.session_timeout_ms = timeout_ms
        self.state = ClientState.CONNECTING
        self.session_id = 0
        self.link: Link | None = None
        #: of one way, drawn anew for each message
        self.delay_ms = (0.1, 1.5)
        #: whether the quorum can be reached
        self.is_cut = False
        self._quorum = quorum
        self._rng = process.scheduler.rng("clients")
        self._listeners: list[Callable[[ClientState], object]] = []
        self._watches = WatchRegistry()
        self._waiting: deque[_Pending] = deque()
        self._sent: deque[_Pending] = deque()
        self._seen_zxid = 0

    # -- the session -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and return once there is a session."""
        self._dial()
        opened = asyncio.Event()
        self.add_listener(lambda _: opened.set())
        await opened.wait()

    @property
    def shipped(self) -> Client:
        """This client, as the shipped code names it."""
        return cast("Client", self)

    def add_listener(self, listener: Callable[[ClientState], object]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[ClientState], object]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _become(self, state: ClientState) -> None:
        self.state = state
        for listener in list(self._listeners):
            listener(state)

    def _dial(self) -> None:
        if self.state in _OVER or self.link is not None:
            return
        if self.is_cut:
            self.process.post(self._rng.uniform(*RECONNECT_MS), self._dial)
            return
        node = self._rng.choice(self._quorum.nodes)
        link = self.link = Link(self, self._quorum, self.process.scheduler, node.number)
        link.send(lambda: self._quorum.open_link(link, self.session_id, self.timeout_ms))

    def take_session(self, session_id: int) -> None:
        """The handshake is over."""
        if not session_id:
            self._finish(ClientState.LOST)
            return
        self.session_id = session_id
        link, seen = self.link, self._seen_zxid
        assert link is not None
        for part in self._watches.rearm_requests():
            link.send(partial(self._quorum.rearm, link, seen, *part))
        self._become(ClientState.CONNECTED)
        self._pump()

    def take_event(self, event_type: int, path: str, zxid: int) -> None:
        """A watch fired."""
        self._seen_zxid = max(self._seen_zxid, zxid)
        event = WatchEvent(EventType(event_type), path, zxid)
        for callback in self._watches.fire(event):
            callback(event)

    def lose(self, link: Link) -> None:
        """Notice that a connection is gone."""
        if self.link is not link or self.state in _OVER:
            return
        self.link = None
        if self.state is ClientState.CONNECTED:
            self._become(ClientState.SUSPENDED)
        sent, self._sent = self._sent, deque()
        for pending in sent:
            _fail(pending, ConnectionLossError(pending.label, "the connection broke", sent=True))
        self.process.post(self._rng.uniform(*RECONNECT_MS), self._dial)

    def _finish(self, state: ClientState) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.end()
        self._become(state)
        lost, self._waiting, self._sent = [*self._sent, *self._waiting], deque(), deque()
        for pending in lost:
            over = SessionExpiredError() if state is ClientState.LOST else ClientClosedError()
            _fail(pending, over)
        for callback, event in self._watches.lose_all():
            callback(event)

    async def close(self) -> None:
        """End the session, if it can still be said."""
        if self.state is ClientState.CONNECTED:
            try:
                await self._write("close", "", [OP_CLOSE_SESSION])
            except (ConnectionLossError, SessionExpiredError):
                pass
        if self.state not in _OVER:
            self._finish(ClientState.CLOSED)

    # -- requests --------------------------------------------------------------------------------------------

    async def _call(self, label: str, run: Callable[[Link], None], *, writes: bool = False) -> Any:
        if self.state in _OVER or not self.process.is_alive:
            raise SessionExpiredError() if self.state is ClientState.LOST else ClientClosedError()
        pending = _Pending(label, run, self.process.loop.create_future(), writes)
        self._waiting.append(pending)
        self._pump()
        try:
            return await pending.future
        except asyncio.CancelledError:
            if pending in self._waiting:
                self._waiting.remove(pending)
            raise

    def _pump(self) -> None:
        link = self.link
        while link is not None and self.state is ClientState.CONNECTED and self._waiting:
            pending = self._waiting.popleft()
            self._sent.append(pending)
            link.send(partial(_at_node, link, pending))

    def _settle(self, result: Any) -> None:
        """Answer the oldest request."""
        pending = self._sent.popleft()
        if pending.future.done():
            return
        if isinstance(result, Exception):
            pending.future.set_exception(result)
        else:
            pending.future.set_result(result)

    async def _write(self, label: str, path: str, command: list[Any]) -> Any:
        """Commit a command; returns the value of its result."""

        def run(link: Link) -> None:
            def answer(result: Result) -> None:
                link.reply(lambda: self._take_result(result, path, creating=command[0] == OP_CREATE))
                link.applied()

            self._quorum.commit(link.number, link.session_id, link.nonce, command, answer)

        return await self._call(f"{label} {path}", run, writes=True)

    def _take_result(self, result: Result, path: str, *, creating: bool) -> None:
        if result.err == SESSION_EXPIRED:
            self._finish(ClientState.LOST)
            return
        self._seen_zxid = max(self._seen_zxid, result.zxid)
        self._settle(server_error(result.err, path, creating=creating) if result.err else result.value)

    async def _read(
        self,
        label: str,
        path: str,
        query: Callable[[Any], Any],
        watch: WatchCallback | None = None,
        kind: WatchCause = WatchCause.DATA,
    ) -> Any:
        def run(link: Link) -> None:
            node = self._quorum.nodes[link.number - 1]
            if link.session_id not in node.machine.sessions:
                link.reply(lambda: self._finish(ClientState.LOST))
                return
            found = query(node.machine)
            armed = kind
            if watch is not None:
                if found == -101:
                    armed = WatchCause.EXIST
                if found != -101 or label == "exists":
                    node.watches.add(_SERVER_KINDS[armed], path, link)
            zxid = node.machine.zxid
            link.reply(lambda: self._take_read(found, path, watch, armed, zxid, label))

        return await self._call(f"{label} {path}", run)

    def _take_read(
        self, found: Any, path: str, watch: WatchCallback | None, armed: WatchCause, zxid: int, label: str
    ) -> None:
        self._seen_zxid = max(self._seen_zxid, zxid)
        is_missing = isinstance(found, int) and found < 0
        if watch is not None and (not is_missing or label == "exists"):
            self._watches.arm(armed, path, watch)
        if is_missing and label != "exists":
            self._settle(server_error(found, path))
        else:
            self._settle(found)

    # -- operations ------------------------------------------------------------------------------------------

    async def create(
        self, path: str, data: bytes | None = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> str:
        created: str = await self._write("create", path, [OP_CREATE, path, data, None, int(mode)])
        return created

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write("delete", path, [OP_DELETE, path, version])

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return stat_from(await self._write("set", path, [OP_SET_DATA, path, data, version]))

    async def sync(self, path: str = "/") -> str:
        await self._write("sync", path, [OP_SYNC, path])
        return path

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        commands = [list(each) for each in transaction.commands]
        items = await self._write("multi", str(commands[0][1]), [OP_MULTI, commands])
        results: list[OperationResult] = []
        for index, (op, err, value) in enumerate(items):
            if op == OP_ERROR:
                if err not in (0, RUNTIME_INCONSISTENCY):
                    path = str(commands[index][1])
                    creating = commands[index][0] in (OP_CREATE, OP_CREATE2)
                    raise MultiFailedError(index, server_error(err, path, creating=creating))
            elif isinstance(value, tuple):
                results.append(OperationResult(value[0], stat_from(value[1])))
            elif isinstance(value, bytes):
                results.append(OperationResult(None, stat_from(value)))
            else:
                results.append(OperationResult(value, None))
        return results

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        found = await self._read("exists", path, lambda machine: queries.exists(machine, path), watch)
        return None if isinstance(found, int) else stat_from(found)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes | None, Stat]:
        data, stat = await self._read("get", path, lambda machine: queries.get_data(machine, path), watch)
        return data, stat_from(stat)

    async def get_children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        names: list[str] = await self._read(
            "get_children", path, lambda machine: queries.get_children(machine, path), watch, WatchCause.CHILD
        )
        return names

    async def read_all(self, paths: Sequence[str]) -> list[ReadOutcome]:
        wanted = tuple(paths)
        if not wanted:
            return []
        found = await self._read(
            "read_all", wanted[0], lambda machine: [queries.get_data(machine, path) for path in wanted]
        )
        return [
            server_error(each, path) if isinstance(each, int) else (each[0], stat_from(each[1]))
            for path, each in zip(wanted, found, strict=True)
        ]

    async def add_watch(self, path: str, watch: WatchCallback, *, recursive: bool = False) -> None:
        kind = WatchCause.RECURSIVE if recursive else WatchCause.PERSISTENT

        def run(link: Link) -> None:
            self._quorum.nodes[link.number - 1].watches.add(_SERVER_KINDS[kind], path, link)
            link.reply(self._added(kind, path, watch))

        await self._call(f"add_watch {path}", run)

    def _added(self, kind: WatchCause, path: str, watch: WatchCallback) -> Callable[[], None]:
        def take() -> None:
            self._watches.arm(kind, path, watch)
            self._settle(None)

        return take

    async def remove_watches(self, path: str, watch_type: WatchType = WatchType.ANY) -> None:
        kinds = {WatchType.RECURSIVE: ServerKind.RECURSIVE, WatchType.PERSISTENT: ServerKind.PERSISTENT}

        def run(link: Link) -> None:
            watches = self._quorum.nodes[link.number - 1].watches
            removed = watches.remove(path, link, int(kinds[watch_type]))
            link.reply(lambda: self._removed(path, watch_type, removed))

        await self._call(f"remove_watches {path}", run)

    def _removed(self, path: str, watch_type: WatchType, removed: bool) -> None:
        self._settle(None if removed else NoWatchError(-121, path))
        for callback, event in self._watches.remove(path, watch_type) if removed else ():
            callback(event)


def _at_node(link: Link, pending: _Pending) -> None:
    link.at_node(partial(pending.run, link), writes=pending.writes)


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
        # Whoever was cancelled takes no outcome.
        pending.future.exception()
