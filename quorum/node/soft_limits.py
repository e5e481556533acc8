"""Warnings about quotas above a soft limit, on the leader: a look every few seconds, a few lines each.

What is above a limit follows from the state; this decides only when to say so again. Soft state.

Source: ZooKeeper 3.9 RateLogger (15 minutes).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from quorum.core.quotas import Quota
from quorum.errors import shown

log = logging.getLogger("quorate.quotas")

#: between two looks
LOOK_INTERVAL_MS = 10_000.0
#: until the same quota is named again
REPEAT_MS = 900_000.0
#: in one look; the others come with the next
WARNINGS_PER_LOOK_MAX = 10


class SoftLimits:
    """Which quotas were named, and when."""

    def __init__(self) -> None:
        self._looked_ms = float("-inf")
        #: {path: when it was named}; only of quotas that are above a soft limit
        self._named_ms: dict[str, float] = {}

    def look(self, quotas: Mapping[str, Quota], now_ms: float) -> None:
        """Name quotas above a soft limit, when it is time.

        Args:
            quotas: of the tree.
            now_ms: a clock that never goes back.
        """
        if now_ms - self._looked_ms < LOOK_INTERVAL_MS:
            return
        self._looked_ms = now_ms
        above = [path for path, quota in quotas.items() if quota.is_above_soft_limit()]
        known = self._named_ms
        self._named_ms = {path: known[path] for path in above if path in known}
        due = [path for path in above if now_ms - known.get(path, float("-inf")) >= REPEAT_MS]
        for path in due[:WARNINGS_PER_LOOK_MAX]:
            self._named_ms[path] = now_ms
            used, limits = quotas[path], quotas[path].limits
            log.warning(
                "%s is above a soft limit of its quota: %d nodes (limit %d), %d bytes (limit %d); -1 is none",
                *(shown(path), used.nodes, limits.nodes, used.data_bytes, limits.data_bytes),
            )
