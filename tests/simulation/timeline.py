"""What happened in a world, as a person wants to read it: time, node, what.

Keeps the last lines only. While a `LogTap` is open the lines that the nodes log are among them, under the id
of the node whose code ran; without one nothing is formatted.
"""

from __future__ import annotations

import logging
from collections import deque
from types import TracebackType
from typing import Self

from tests.simulation.scheduler import Scheduler

LINES_MAX = 4000


class Timeline:
    """The last lines of a world's story."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lines: deque[tuple[float, int, str]] = deque(maxlen=LINES_MAX)

    def note(self, node_id: int, what: str) -> None:
        """Add a line; node 0 is the world itself."""
        self._lines.append((self._scheduler.now_ms, node_id, what))

    def lines(self, count: int = 100) -> list[str]:
        """Return the last lines, oldest first."""
        return [
            f"{time_ms / 1000:10.4f} s  {f'node {node_id}' if node_id else 'world':>7}  {what}"
            for time_ms, node_id, what in list(self._lines)[-count:]
        ]


class LogTap(logging.Handler):
    """Takes what the product logs into a timeline, and keeps it from going anywhere else."""

    def __init__(self, scheduler: Scheduler, timeline: Timeline, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._scheduler = scheduler
        self._timeline = timeline
        self._logger = logging.getLogger("quorate")

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        name = record.name.removeprefix("quorate.")
        self._timeline.note(self._scheduler.actor, f"[{name}] {record.getMessage()}")

    def __enter__(self) -> Self:
        self._before = (self._logger.level, self._logger.propagate, logging.root.manager.disable)
        logging.disable(logging.NOTSET)
        self._logger.setLevel(self.level)
        self._logger.propagate = False
        self._logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate, disabled = self._before
        self._logger.setLevel(level)
        logging.disable(disabled)
