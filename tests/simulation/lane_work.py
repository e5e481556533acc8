"""One work of a lane that moves only when it is told to, beside the loop of its node.

Decides where a work can be interrupted: before each call of the disk, as a real lane's thread can be. Between
two calls the loop of the node runs, time passes, and the process may end; then the work unwinds without
another call. It has a stack of its own (a greenlet) and no thread: a switch costs a microsecond.

Knows nothing of time or of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from tests.support.memory_disk import Stopped


class LaneWork:
    """A work under way.

    Attributes:
        finished: whether it has come to its end.
        result, error: of the work, as soon as it is finished.
        clock_ms: what it saw last on the clock.
    """

    def __init__(self, work: Callable[[], Any], now_ms: float) -> None:
        """Prepare it; nothing of it runs before `advance`."""
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.clock_ms = now_ms
        self._work = work
        self._ended = False
        self._stack = greenlet(self._run)
        self._caller = getcurrent()

    def advance(self) -> bool:
        """Run up to the next `halt` or to the end; tell whether it is finished."""
        self._caller = getcurrent()
        self._stack.switch()
        return self.finished

    def halt(self) -> None:
        """Wait for the next `advance`; to be called by the work itself.

        Raises:
            Stopped: the process has ended.
        """
        if not self._ended:
            self._caller.switch()
        if self._ended:
            raise Stopped

    def end(self) -> None:
        """Let the work unwind from where it halts, if it began and has not finished."""
        self._ended = True
        if self._stack and not self.finished:
            self.advance()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as caught:  # noqa: BLE001 - handed over to whoever advances it
            self.error = caught
        self.finished = True
