"""Watches of one client: what is armed, whom an event concerns, and how to arm them again elsewhere.

Pure soft state: callbacks in, events out; no sockets, no clock. What a read arms is one-shot; persistent and
recursive watches stay until they are removed. A watch is armed when the reply that registered it has arrived,
exactly where the server armed it: a read of a missing node arms nothing, exists arms both ways. After a
reconnect everything still armed is sent to the new server in SetWatches requests, each small enough for any
server; what a persistent watch missed in between stays unknown.
Source: ZooKeeper programmer's guide (watches); docs/concepts/guarantees.md, "Sessions and watches";
ZOOKEEPER-706 (split SetWatches); ZKWatchManager.materialize (ZooKeeper 3.9).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Self

from quorum.client.errors import WatchOverflowError
from quorum.wire.protocol import EventType
from quorum.wire.requests import SetWatches, encode_set_watches, encode_set_watches2

SET_WATCHES_BYTES_MAX: Final = 120 * 1024
EVENTS_MAX: Final = 10_000


class WatchEvent(NamedTuple):
    """What a watch tells."""

    #: NONE means that the session is over and the watch with it; ..._WATCH_REMOVED that it was removed.
    event_type: EventType
    #: The path that was watched; of a recursive watch the node below it that changed.
    path: str
    #: Transaction that caused it; -1 from servers before 3.9, at a removal and when the session was lost.
    zxid: int


WatchCallback = Callable[[WatchEvent], None]


class WatchCause(Enum):
    """What armed a watch, and so what it waits for."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


class WatchType(IntEnum):
    """Which watches of a path are meant when some are removed; the numbers are ZooKeeper's."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    RECURSIVE = 5


class ArmedPaths(NamedTuple):
    """The content of one SetWatches request."""

    data: list[str]
    exist: list[str]
    child: list[str]
    persistent: list[str]
    recursive: list[str]

    def encode(self, relative_zxid: int) -> bytes:
        """Encode it; servers before 3.6 know no persistent watches, and hear nothing of them.

        Args:
            relative_zxid: these watches have not reported what happened after it.
        """
        encode = encode_set_watches2 if self.persistent or self.recursive else encode_set_watches
        return encode(SetWatches(relative_zxid, *self))


_KINDS_BY_TYPE: Final = {
    WatchType.CHILDREN: (WatchCause.CHILD,),
    WatchType.DATA: (WatchCause.DATA, WatchCause.EXIST),
    WatchType.ANY: tuple(WatchCause),
    WatchType.PERSISTENT: (WatchCause.PERSISTENT,),
    WatchType.RECURSIVE: (WatchCause.RECURSIVE,),
}
_REMOVALS: Final = {
    WatchCause.DATA: EventType.DATA_WATCH_REMOVED,
    WatchCause.EXIST: EventType.DATA_WATCH_REMOVED,
    WatchCause.CHILD: EventType.CHILD_WATCH_REMOVED,
    WatchCause.PERSISTENT: EventType.PERSISTENT_WATCH_REMOVED,
    WatchCause.RECURSIVE: EventType.PERSISTENT_WATCH_REMOVED,
}
_FIRED_KINDS: Final = {
    EventType.NODE_CREATED: (WatchCause.DATA, WatchCause.EXIST),
    EventType.NODE_DATA_CHANGED: (WatchCause.DATA, WatchCause.EXIST),
    EventType.NODE_DELETED: (WatchCause.DATA, WatchCause.EXIST, WatchCause.CHILD),
    EventType.NODE_CHILDREN_CHANGED: (WatchCause.CHILD,),
}


class WatchRegistry:
    """Everything that is armed, per kind and path."""

    def __init__(self) -> None:
        """Start with nothing armed."""
        #: {kind: {path: callbacks in the order in which they were armed, each once}}
        self._armed: dict[WatchCause, dict[str, list[WatchCallback]]] = {kind: {} for kind in WatchCause}
        #: the last zxid that armed watches have heard of, and parts of them that no server has answered since
        self._heard_zxid = 0
        self._unanswered = 0

    def __len__(self) -> int:
        """Count armed (kind, path) pairs."""
        return sum(len(paths) for paths in self._armed.values())

    def arm(self, kind: WatchCause, path: str, callback: WatchCallback) -> None:
        """Arm a watch; the same callback on the same path and kind is called once."""
        callbacks = self._armed[kind].setdefault(path, [])
        if callback not in callbacks:
            callbacks.append(callback)

    def fire(self, event: WatchEvent) -> list[WatchCallback]:
        """Return the callbacks that an event concerns, each once, the one-shot ones first and disarmed."""
        kinds = _FIRED_KINDS.get(event.event_type, ())
        concerned = [callback for kind in kinds for callback in self._armed[kind].pop(event.path, ())]
        if kinds:
            concerned += self._armed[WatchCause.PERSISTENT].get(event.path, ())
        recursive = self._armed[WatchCause.RECURSIVE]
        if recursive and kinds and event.event_type is not EventType.NODE_CHILDREN_CHANGED:
            for path in _with_ancestors(event.path):
                concerned += recursive.get(path, ())
        fired: list[WatchCallback] = []
        for callback in concerned:
            if callback not in fired:
                fired.append(callback)
        return fired

    def remove(self, path: str, watch_type: WatchType) -> Iterator[tuple[WatchCallback, WatchEvent]]:
        """Disarm what the server has removed; yields what to call: each callback once per kind of removal."""
        calls: list[tuple[WatchCallback, WatchEvent]] = []
        for kind in _KINDS_BY_TYPE[watch_type]:
            event = WatchEvent(_REMOVALS[kind], path, -1)
            for callback in self._armed[kind].pop(path, ()):
                if (callback, event) not in calls:
                    calls.append((callback, event))
        yield from calls

    def lose_all(self) -> Iterator[tuple[WatchCallback, WatchEvent]]:
        """Disarm everything; yields what to call: each armed callback once per path with NONE."""
        armed, self._armed = self._armed, {kind: {} for kind in WatchCause}
        calls: dict[str, list[WatchCallback]] = {}
        for paths in armed.values():
            for path, callbacks in paths.items():
                known = calls.setdefault(path, [])
                known.extend(callback for callback in callbacks if callback not in known)
        for path, callbacks in calls.items():
            for callback in callbacks:
                yield callback, WatchEvent(EventType.NONE, path, -1)

    def rearm(self, last_zxid: int) -> Iterator[bytes]:
        """Yield the requests that arm everything again on another server.

        Args:
            last_zxid: the last transaction that the client has seen.
        """
        if self._unanswered <= 0:
            # Else a part of the last time was not answered, and its watches have heard nothing since.
            self._heard_zxid = last_zxid
        parts = list(self.rearm_requests())
        self._unanswered = len(parts)
        for part in parts:
            yield part.encode(self._heard_zxid)

    def rearmed(self) -> None:
        """A server has answered one of them."""
        self._unanswered -= 1

    def rearm_requests(self, bytes_max: int = SET_WATCHES_BYTES_MAX) -> Iterator[ArmedPaths]:
        """Yield what must be armed again on another server, in parts whose encoded paths stay within
        bytes_max.

        A single path longer than bytes_max makes a part of its own.
        """
        part, used = ArmedPaths([], [], [], [], []), 0
        for kind, paths in self._armed.items():
            for path in paths:
                size = 4 + len(path.encode("utf-8"))
                if used and used + size > bytes_max:
                    yield part
                    part, used = ArmedPaths([], [], [], [], []), 0
                used += size
                _list_of(part, kind).append(path)
        if used:
            yield part


def _with_ancestors(path: str) -> Iterator[str]:
    """Yield a path and every path above it, down to the root."""
    while path != "/":
        yield path
        path = path[: path.rfind("/")] or "/"
    yield path


def _list_of(part: ArmedPaths, kind: WatchCause) -> list[str]:
    match kind:
        case WatchCause.DATA:
            return part.data
        case WatchCause.EXIST:
            return part.exist
        case WatchCause.CHILD:
            return part.child
        case WatchCause.PERSISTENT:
            return part.persistent
        case WatchCause.RECURSIVE:
            return part.recursive


class WatchStream:
    """A watch callback that is also an async iterator over the events, in order.

    Pass it as `watch=` to any number of reads and iterate over it in one task. It ends after close(). Events
    that nobody takes are kept up to events_max; beyond that the iteration fails with WatchOverflowError
    instead of skipping any.
    """

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        """Start empty."""
        self._events: deque[WatchEvent] = deque()
        self._events_max = events_max
        self._overflowed = False
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def __call__(self, event: WatchEvent) -> None:
        """Take one event (called by the client)."""
        if self._closed or self._overflowed:
            return
        if len(self._events) >= self._events_max:
            self._overflowed = True
        else:
            self._events.append(event)
        self._wake()

    def close(self) -> None:
        """End the iteration after the events that have arrived."""
        self._closed = True
        self._wake()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> WatchEvent:
        """Wait for the next event.

        Raises:
            StopAsyncIteration: the stream is closed and drained.
            WatchOverflowError: events_max events waited and more came; read the state again.
            RuntimeError: another task already waits on this stream.
        """
        while not self._events:
            if self._overflowed:
                raise WatchOverflowError(self._events_max)
            if self._closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("two tasks iterate over one WatchStream")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
