"""A Runtime that does nothing until the test says so.

Callbacks and the works of lanes wait in queues; the test runs them one by one and so decides every order
that threads and the loop could produce. The clock stands still unless it is moved.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class _Timer:
    """A call at a time."""

    def __init__(self, due_ms: float, call: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class ManualRuntime:
    """A Runtime under the test's hand."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1000.0
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[_Timer] = []
        #: {lane: works that wait, in order}
        self.lanes: dict[str, deque[Callable[[], object]]] = {}

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def disk_ms(self, work: Callable[[*Arguments], object], *arguments: *Arguments) -> float:
        begun_ms = self.monotonic_ms()
        work(*arguments)
        return self.monotonic_ms() - begun_ms

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        self._soon.append(lambda: callback(*arguments))

    def call_later(
        self, delay_ms: float, callback: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> _Timer:
        timer = _Timer(self.now_ms + delay_ms, lambda: callback(*arguments))
        self._timers.append(timer)
        return timer

    def run_in_thread(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], object],
    ) -> None:
        def run() -> None:
            result: Result | None = None
            error: BaseException | None = None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - as in a thread: it belongs to `done`
                error = caught
            self.call_soon(done, result, error)

        self.lanes.setdefault(lane, deque()).append(run)

    def turn(self) -> None:
        """Run the callbacks that wait now, not those that they ask for."""
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def work(self, lane: str) -> bool:
        """Run the next work of a lane as its thread would; return whether there was one."""
        works = self.lanes.get(lane)
        if not works:
            return False
        works.popleft()()
        return True

    def advance(self, by_ms: float) -> None:
        """Move the clock and run what is due."""
        self.now_ms += by_ms
        due = [timer for timer in self._timers if timer.due_ms <= self.now_ms]
        self._timers = [timer for timer in self._timers if timer.due_ms > self.now_ms]
        for timer in sorted(due, key=lambda timer: timer.due_ms):
            if timer.call is not None:
                timer.call()

    def settle(self, steps_max: int = 10_000) -> None:
        """Run callbacks and lanes until nothing waits."""
        for _ in range(steps_max):
            if not self._soon and not any(self.lanes.values()):
                return
            self.turn()
            for lane in self.lanes:
                self.work(lane)
        raise AssertionError("the runtime did not come to rest")
