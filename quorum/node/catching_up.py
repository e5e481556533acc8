"""Whether a node has what its leader knows to be committed.

A node that comes to a leader has to reach what was committed by then; from there on a short lag is the normal
life of a busy node, and a long one is not. Decided at every tick, so that it does not depend on when a
caller asks. Pure; soft state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

from typing import Final

#: committed entries that a node which had caught up may lack
LAG_MAX: Final = 1000
#: how often a node that has not caught up says how far it is
SAY_INTERVAL_MS: Final = 1000.0


class CatchingUp:
    """One node's way to what is committed."""

    def __init__(self) -> None:
        #: whether the node has caught up
        self.done = False
        #: the index that it must reach; None: no leader has named one
        self._goal: int | None = None
        #: when there was nothing to say, or it was said
        self._said_ms = 0.0

    def look(self, known_index: int | None, applied_index: int) -> bool:
        """Judge how far the node is.

        Args:
            known_index: the highest commit index that it heard of from a leader that it hears; None: there is
                none, or a snapshot is about to replace the state.
            applied_index: of its last applied entry.

        Returns:
            Whether it has caught up.
        """
        if known_index is None or known_index - applied_index > LAG_MAX:
            self._goal, self.done = known_index, False
        else:
            if self._goal is None:
                self._goal = known_index
            self.done = self.done or applied_index >= self._goal
        return self.done

    def is_to_say(self, now_ms: float, *, done: bool) -> bool:
        """Tell whether the node is to say how far it is: at intervals, while it is not done."""
        due = not done and now_ms - self._said_ms >= SAY_INTERVAL_MS
        if done or due:
            self._said_ms = now_ms
        return due
