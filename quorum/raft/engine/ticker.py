"""When the next tick is due: when the core has something to do, or in the usual time if that is sooner.

Knows neither what a tick does nor why the core wants one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quorum.platform.runtime import Runtime, TimerHandle

#: between two ticks while no leader is known, or leadership is being handed over
TICK_INTERVAL_MS: Final = 10.0
#: share of the heartbeat interval between two ticks otherwise; the core's deadline may ask for an earlier one
STEADY_TICK_SHARE: Final = 0.4


class Ticker:
    """One timer, from `start` to `stop`."""

    def __init__(self, runtime: Runtime, heartbeat_interval_ms: float) -> None:
        self._runtime = runtime
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._due_ms = runtime.monotonic_ms()
        self._timer: TimerHandle | None = None
        self._tick: Callable[[], object] | None = None

    def start(self, tick: Callable[[], object]) -> None:
        """From now on `arm` has an effect."""
        self._tick = tick

    def stop(self) -> None:
        """Nothing ticks any more."""
        self._tick = None
        if self._timer is not None:
            self._timer.cancel()

    def stall_ms(self, now_ms: float) -> float:
        """Return by how much a tick that runs now came too late; 0.0 if in time."""
        late_ms = now_ms - self._due_ms
        return late_ms if late_ms > self._heartbeat_interval_ms else 0.0

    def arm(self, now_ms: float, *, settled: bool, deadline_ms: float) -> None:
        """Ask for the next tick; one that is due earlier, or overdue after a pause, stays as it is."""
        if self._tick is None:
            return
        usual_ms = STEADY_TICK_SHARE * self._heartbeat_interval_ms if settled else TICK_INTERVAL_MS
        due_ms = now_ms + max(1.0, min(usual_ms, deadline_ms - now_ms))
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._runtime.call_later(due_ms - now_ms, self._run)

    def _run(self) -> None:
        self._timer = None
        if self._tick is not None:
            self._tick()
