"""How long a node applies entries, and how long it knows no leader.

Stands between the engine and the replica and changes nothing of what passes. A node without a leader counts
one election once it knows a leader, also after its start. Soft state.

Source: `Application` in quorum.raft.engine.contracts.
"""

from __future__ import annotations

from collections.abc import Callable

from quorum.platform.histogram import Histogram
from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import SoftState
from quorum.raft.engine.contracts import Application


class Timed:
    """An application whose applies and elections are timed."""

    def __init__(self, application: Application, now_ms: Callable[[], float]) -> None:
        """Begin without a leader.

        Args:
            application: what everything is passed on to.
            now_ms: the monotonic clock.
        """
        self.applies = Histogram()
        self.elections = Histogram()
        self._apply = application.apply
        self._leadership_changed = application.leadership_changed
        self._now_ms = now_ms
        #: since when no leader is known; None while one is
        self._leaderless_ms: float | None = now_ms()
        self.turn_ended = application.turn_ended
        self.peer_connected = application.peer_connected
        self.receive = application.receive
        self.tick = application.tick

    def apply(self, entry: Entry) -> None:
        """Apply a committed entry."""
        began_ms = self._now_ms()
        self._apply(entry)
        self.applies.add(self._now_ms() - began_ms)

    def leadership_changed(self, soft_state: SoftState) -> None:
        """Role, term, leader, transfer or halt changed."""
        if not soft_state.leader_id:
            self._leaderless_ms = self._now_ms() if self._leaderless_ms is None else self._leaderless_ms
        elif self._leaderless_ms is not None:
            self.elections.add(self._now_ms() - self._leaderless_ms)
            self._leaderless_ms = None
        self._leadership_changed(soft_state)
