"""Who leads the quorum and who is the controller over time, for the timeline of a run.

Asks the admin ports now and then, in a thread of its own, and keeps what changed. Nothing is judged by it.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from tests.chaos.cluster import ChaosCluster

INTERVAL_S: Final = 0.5
CHANGES_MAX: Final = 100_000


class Roles(threading.Thread):
    """Watches until it is asked to stop."""

    def __init__(self, cluster: ChaosCluster) -> None:
        super().__init__(name="roles", daemon=True)
        self._cluster = cluster
        self._stopping = threading.Event()
        #: {time_ns, leader, controller}; 0: nobody
        self.changes: list[dict[str, Any]] = []

    def run(self) -> None:
        """Look until stop."""
        while not self._stopping.wait(INTERVAL_S) and len(self.changes) < CHANGES_MAX:
            now_ns = time.monotonic_ns()
            found = {"leader": self._cluster.leader_now(), "controller": self._cluster.controller_now()}
            if not self.changes or found != {name: self.changes[-1][name] for name in found}:
                self.changes.append({"time_ns": now_ns, **found})

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self.join()
