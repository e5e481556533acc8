"""Threads that wait for the disk, so that the event loop never does.

They are daemons: one that a disk never answers keeps no process from ending. Each says when a step of its
work begins, which tells a disk that hangs from a long queue. Knows nothing of logs.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means".
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DiskThreads:
    """Some threads that take work from one queue, in order."""

    def __init__(self, threads_max: int, name: str) -> None:
        """Start no thread before there is work."""
        self._threads_max = threads_max
        self._name = name
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._numbers = count()
        #: {thread: number of the step that it is at}; idle ones are not in it
        self._steps: dict[int, int] = {}
        #: {number of a step: how long it was seen at work, in milliseconds}
        self._ages_ms: dict[int, float] = {}

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Do a piece of work in a thread."""
        future: Future[T] = Future()
        self._queue.put((future, work))
        if len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return future

    def step(self) -> None:
        """Note, in one of the threads, that something is done and the next step begins."""
        self._steps[threading.get_ident()] = next(self._numbers)

    def rest(self) -> None:
        """Note, in one of the threads, that it waits for another one."""
        self._steps.pop(threading.get_ident(), None)

    def oldest_ms(self, elapsed_ms: float) -> float:
        """Return how long the longest present step takes.

        Args:
            elapsed_ms: since the last call, at most: the time of a process that was stopped does not count.
        """
        present = set(self._steps.values())
        known = self._ages_ms
        self._ages_ms = {step: known[step] + elapsed_ms if step in known else 0.0 for step in present}
        return max(self._ages_ms.values(), default=0.0)

    def close(self, patience_s: float) -> bool:
        """Finish the queue and end the threads; False if one of them is still at work after so long."""
        for _ in self._threads:
            self._queue.put(None)
        deadline_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (taken := self._queue.get()) is not None:
            future, work = taken
            if future.set_running_or_notify_cancel():
                self.step()
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - goes to the waiter
                    future.set_exception(error)
                self.rest()
            del future, work, taken


async def finished(future: Future[Any]) -> None:
    """Wait until a piece of work has ended, well or not; a wait that is cancelled cancels nothing else."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wake(_future: Future[Any]) -> None:
        # The loop may have ended while the disk did not answer.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(wake)
    await ended.wait()
