"""How long the journal has owed its oldest group.

A disk that hangs raises no error: nothing tells of it but time. Knows the numbers of the core's persists and
when they went to the journal; what follows from their age is decided by the core (a leader hands over) and by
the client port (nobody is answered). Soft state.

Source: docs/internals/consensus.md, "Journal".
"""

from __future__ import annotations

from collections import deque


class Undurable:
    """The persists that are not durable yet, the oldest first."""

    def __init__(self) -> None:
        #: (number, when it went to the journal); bounded as the journal's own queue is
        self._waiting: deque[tuple[int, float]] = deque()

    def handed_over(self, seq: int, now_ms: float) -> None:
        """A persist went to the journal."""
        self._waiting.append((seq, now_ms))

    def became_durable(self, seq: int) -> None:
        """A persist and all before it are durable."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= seq:
            waiting.popleft()

    @property
    def idle(self) -> bool:
        """Whether all that was handed over is durable."""
        return not self._waiting

    def age_ms(self, now_ms: float) -> float:
        """Return for how long the oldest one has waited; 0.0 if there is none."""
        return now_ms - self._waiting[0][1] if self._waiting else 0.0
