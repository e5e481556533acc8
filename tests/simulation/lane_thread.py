"""One work of a lane in a thread of its own that moves only when it is told to.

Decides where a work can be interrupted: before each call of the disk, as a real lane's thread can be. Between
two calls the loop of the node runs, time passes, and the process may end; then the work unwinds without
another call. Exactly one of both threads ever runs, so that equal seeds stay equal.

Knows nothing of time or of nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tests.support.memory_disk import Stopped


class LaneThread:
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
        self._thread: threading.Thread | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()

    def advance(self) -> bool:
        """Run up to the next `halt` or to the end; tell whether it is finished."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lane", daemon=True)
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self.finished:
            self._thread.join()
        return self.finished

    def halt(self) -> None:
        """Wait for the next `advance`; to be called by the work itself.

        Raises:
            Stopped: the process has ended.
        """
        if not self._ended:
            self._back.release()
            self._go.acquire()
        if self._ended:
            raise Stopped

    def end(self) -> None:
        """Let the work unwind from where it halts, if it began and has not finished."""
        self._ended = True
        if self._thread is not None and not self.finished:
            self.advance()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.result = self._work()
        except BaseException as caught:  # noqa: BLE001 - handed over to the other thread
            self.error = caught
        self.finished = True
        self._back.release()
