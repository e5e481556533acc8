"""Tasks that end together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class TaskSet:
    """Tasks of one owner, which learns of every error that one of them ends with."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        """Run nothing yet."""
        self._on_failure = on_failure
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a task."""
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        tasks = list(self.running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
