"""An asynchronous context on an event loop in a thread of its own, for code that blocks.

Decides nothing about what runs there. The thread ends with the context, whatever ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import uvloop

T = TypeVar("T")


@contextlib.contextmanager
def in_thread(
    context: Callable[[], AbstractAsyncContextManager[T]], name: str
) -> Iterator[tuple[T, asyncio.AbstractEventLoop]]:
    """Enter a context on a loop in a new thread; leave it, and end the thread, when the body ends.

    Args:
        context: makes the context; called in that thread.
        name: of the thread.

    Yields:
        What the context gives, and the loop that it lives on.

    Raises:
        BaseException: whatever entering or leaving the context raised.
    """
    started = threading.Event()
    entered: list[T] = []
    failures: list[BaseException] = []
    control: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    leaving = threading.Event()

    async def serve() -> None:
        finish = asyncio.Event()
        control.append((asyncio.get_running_loop(), finish))
        if leaving.is_set():
            return
        async with context() as running:
            entered.append(running)
            started.set()
            await finish.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits, which raises it
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name=name)
    try:
        thread.start()
        started.wait()
        if entered:
            yield entered[0], control[0][0]
    finally:
        leaving.set()
        if control:
            loop, finish = control[0]
            # A loop that is closed has ended by itself; why, is raised below.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish.set)
        if thread.ident is not None:
            thread.join()
    if failures:
        raise failures[0]
