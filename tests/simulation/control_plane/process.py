"""One life of a broker's process: what runs in it, and an asyncio loop in virtual time for the shipped shell.

What is due in a process that was killed is dropped; what is due in one that is paused (SIGSTOP) waits and
runs in order once it goes on. The loop has no threads and no sockets: the shell's coroutines run unchanged,
and whatever is ready runs to its end within one event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVarTuple

from tests.simulation.scheduler import Handle, Scheduler

Arguments = TypeVarTuple("Arguments")

#: callbacks within one event above which somebody waits in a circle
TURNS_MAX = 100_000


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks, futures, timeouts and locks need."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: dict[asyncio.Task[Any], None] = {}

    def time(self) -> float:
        return self._process.scheduler.now_ms / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        if not self._process.is_entered:
            self._process.post(0, _nothing)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._process.post(max(0.0, when * 1000 - self._process.scheduler.now_ms), self._expire, timer)
        return timer

    def _expire(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self.ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it in the heap: it does nothing when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "", context=context)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.is_alive:
            self._process.on_problem(context.get("exception") or RuntimeError(context.get("message")))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


class Process:
    """One life."""

    def __init__(
        self, scheduler: Scheduler, actor: int, on_problem: Callable[[BaseException], object]
    ) -> None:
        """Run in a world.

        Args:
            scheduler: of the world.
            actor: the broker's id.
            on_problem: gets what broke in it.
        """
        self.scheduler = scheduler
        self.actor = actor
        self.on_problem = on_problem
        self.is_alive = True
        self.is_entered = False
        self.loop = VirtualLoop(self)  # type: ignore[abstract]  # what is missing nobody calls
        #: what became due while it is paused; None: it runs
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped for a while."""
        return self._held is not None

    def post(self, delay_ms: float, call: Callable[[*Arguments], object], *args: *Arguments) -> Handle:
        """Have something run in it after a while, if it still lives then."""
        return self.scheduler.at(delay_ms, self._arrive, call, args)

    async def rest(self, for_ms: float) -> None:
        """Wait for a while of its time; a task of its own calls this."""
        over = self.loop.create_future()
        self.post(for_ms, _end, over)
        await over

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task of its loop."""
        task = self.loop.create_task(work)
        task.add_done_callback(self._look)
        return task

    def _look(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self.is_alive:
            self.on_problem(error)

    def pause(self) -> None:
        """Stop it for a while."""
        if self._held is None:
            self._held = []

    def go_on(self) -> None:
        """Let it go on with what has become due."""
        held, self._held = self._held or [], None
        for call, args in held:
            # It may be paused or killed again by what runs.
            self._arrive(call, args)

    def kill(self) -> None:
        """End it: nothing of it acts any more; its coroutines are closed without a trace."""
        self.is_alive = False
        self._held = None
        for _ in range(5):
            for task in list(self.loop.tasks):
                task.cancel()
            with contextlib.suppress(Exception):
                self._enter(_nothing, ())
            if not self.loop.tasks:
                return

    def _arrive(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.is_alive:
            return
        if self._held is not None:
            self._held.append((call, args))
            return
        self._enter(call, args)

    def _enter(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Run a call and everything that it makes ready."""
        self.scheduler.actor = self.actor
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        self.is_entered = True
        try:
            call(*args)
            ready = self.loop.ready
            turns = 0
            while ready:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                turns += 1
                assert turns < TURNS_MAX, f"a task of broker {self.actor} waits in a circle"
        finally:
            self.is_entered = False
            asyncio._set_running_loop(before)


def _end(over: asyncio.Future[Any]) -> None:
    if not over.done():
        over.set_result(None)


def _nothing() -> None:
    """Only let what is ready run."""
