"""An event loop without sockets, threads or a clock: nodes in one process that run the same way each time.

What a node writes to a connection reaches the other end in the next turn. Time passes only while nothing is
to be done. Every callback knows whose it is: it runs in the context of the node that asked for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import selectors
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from quorum.platform.os_runtime import AsyncioRuntime

#: the node whose code runs
NODE: contextvars.ContextVar[int] = contextvars.ContextVar("NODE", default=0)


class _NoSocket:
    """Takes every option."""

    family = None

    def setsockopt(self, *_: object) -> None:
        pass


_NO_SOCKET = _NoSocket()


class StillTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: StillLoop, owner: int) -> None:
        super().__init__()
        self._loop = loop
        self._context = contextvars.copy_context()
        self._context.run(NODE.set, owner)
        self._closed = False
        self.protocol: Any = None
        self.other: StillTransport

    def run_soon(self, call: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon(call, *arguments, context=self._context)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.9", 50_000), "socket": _NO_SOCKET}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def write(self, data: Any) -> None:
        if not self._closed:
            self.other.run_soon(self.other.take, bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def take(self, data: bytes) -> None:
        if self._closed:
            return
        if isinstance(self.protocol, asyncio.BufferedProtocol):
            buffer: Any = self.protocol.get_buffer(len(data))
            buffer[: len(data)] = data
            self.protocol.buffer_updated(len(data))
        else:
            self.protocol.data_received(data)

    def close(self) -> None:
        for end in (self, self.other):
            if not end._closed:
                end._closed = True
                end.run_soon(end.protocol.connection_lost, None)

    abort = close


class _Idle(selectors.SelectSelector):
    """Waits for nothing: time is moved on in its place."""

    def __init__(self, loop: StillLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing will ever happen"
        if timeout > 0:
            self._loop.rests(timeout)
        return []


class StillLoop(asyncio.BaseEventLoop):
    """A loop whose connections are pairs of transports, and whose clock stands still while there is work."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Idle(self)
        self._clock_resolution = 1e-9
        #: {node: what makes the protocol of an accepted connection}
        self._accepting: dict[int, Callable[[], Any]] = {}
        self._now_s = 1000.0
        self._on_rest: asyncio.Future[None] | None = None

    def time(self) -> float:
        return self._now_s

    def monotonic_ns(self) -> int:
        return round(self._now_s * 1e9)

    time_ns = monotonic_ns

    def rests(self, timeout_s: float) -> None:
        """Nothing is to be done for so long."""
        if self._on_rest is not None:
            self._on_rest.set_result(None)
            self._on_rest = None
        else:
            self._now_s += timeout_s

    async def rest(self) -> None:
        """Return when all that was begun is done."""
        self._on_rest = self.create_future()
        await self._on_rest

    async def passes(self, duration_s: float) -> None:
        """Return when so much of this loop's time is over."""
        over = self.create_future()
        self.call_later(duration_s, over.set_result, None)
        await over

    def connect(self, protocol: Any, other: Any, ends: tuple[int, int]) -> StillTransport:
        """Connect two protocols of these nodes; return the first one's end."""
        one, two = (StillTransport(self, node_id) for node_id in ends)
        one.other, two.other = two, one
        one.protocol, two.protocol = protocol, other
        one.run_soon(protocol.connection_made, one)
        two.run_soon(other.connection_made, two)
        return one

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(None, None, None, "", (host, port))]

    def acceptor(self, bound: Any, factory: Callable[[], Any], *_: Any, **__: Any) -> Any:
        """Accept for the node that asks, in place of the shipped acceptor."""
        bound.close()
        self._accepting[NODE.get()] = factory
        return SimpleNamespace(start=lambda: None)

    async def create_connection(self, protocol_factory: Any, host: Any = None, *_: Any, **__: Any) -> Any:
        own, node_id = NODE.get(), int(str(host).rpartition(".")[2])
        if node_id not in self._accepting:
            raise ConnectionRefusedError(f"node {node_id} is not there")
        protocol = protocol_factory()
        accepted = contextvars.copy_context()
        accepted.run(NODE.set, node_id)
        return self.connect(protocol, accepted.run(self._accepting[node_id]), (own, node_id)), protocol

    def _process_events(self, _: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class StillRuntime(AsyncioRuntime):
    """The shipped runtime, but for threads: their work is done in a turn of its own."""

    def __init__(self, loop: StillLoop, node_id: int) -> None:
        super().__init__(loop, random.Random(node_id))

    def run_in_thread(self, _: str, work: Callable[[], Any], done: Callable[[Any, Any], object]) -> None:
        self.call_soon(lambda: self.call_soon(done, work(), None))
