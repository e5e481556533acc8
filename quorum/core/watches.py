"""Who on this node wants to hear of what: the watch table.

It decides which watchers an event reaches and which of their watches are used up by it. Soft state of one
node: lost with the process, never in the log, never in a snapshot. A watcher is any hashable object, in
practice a connection.

Kinds are bits, so that one entry holds all that a watcher wants of a path and an event reaches it once:

    event              reaches
    created            DATA, EXIST
    deleted            DATA, EXIST, CHILD
    data changed       DATA, EXIST
    children changed   CHILD

Source: ZooKeeper 3.9 WatchManager, zookeeper ("Watches").
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntFlag
from typing import Final, Generic, NamedTuple, TypeVar

from quorum.core.codes import EVENT_CHILDREN_CHANGED, EVENT_CREATED, EVENT_DATA_CHANGED, EVENT_DELETED

W = TypeVar("W", bound=Hashable)


class WatchKind(IntFlag):
    """What a watch was left by."""

    DATA = 1
    EXIST = 2
    CHILD = 4


_NODE: Final = int(WatchKind.DATA | WatchKind.EXIST)
_CHILD: Final = int(WatchKind.CHILD)
#: kinds that are used up by the first event that they fire on
_ONE_SHOT: Final = _NODE | _CHILD
_FIRES: Final = {
    EVENT_CREATED: _NODE,
    EVENT_DELETED: _NODE | _CHILD,
    EVENT_DATA_CHANGED: _NODE,
    EVENT_CHILDREN_CHANGED: _CHILD,
}


class WatchCounts(NamedTuple):
    """How many watchers watch how many paths with how many watches."""

    watchers: int
    paths: int
    watches: int


def _weight(kinds: int) -> int:
    """Return how many watches some kinds count as: data and exist watches of a path are one."""
    return bool(kinds & _NODE) + bool(kinds & _CHILD)


class WatchTable(Generic[W]):
    """The watches of all clients of one node."""

    def __init__(self) -> None:
        #: {path: {watcher: kinds}}, watchers in the order of their first registration on the path
        self._by_path: dict[str, dict[W, int]] = {}
        #: {watcher: {path: None}}
        self._by_watcher: dict[W, dict[str, None]] = {}
        #: {watcher: number of its watches}
        self._totals: dict[W, int] = {}

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Leave a watch; leaving it twice is leaving it once."""
        watchers = self._by_path.get(path)
        if watchers is None:
            watchers = self._by_path[path] = {}
        old = watchers.get(watcher, 0)
        new = old | int(kind)
        if new == old:
            return
        watchers[watcher] = new
        self._by_watcher.setdefault(watcher, {})[path] = None
        self._totals[watcher] = self._totals.get(watcher, 0) + _weight(new) - _weight(old)

    def trigger(self, event_type: int, path: str) -> list[W]:
        """Return whom an event reaches and use their one-shot watches up.

        Args:
            event_type: one of the EVENT_ codes; others reach nobody.
            path: the path of the event.

        Returns:
            Each watcher once, in the order of registration.
        """
        watchers = self._by_path.get(path)
        if watchers is None:
            return []
        fires = _FIRES.get(event_type, 0)
        reached = [watcher for watcher, kinds in watchers.items() if kinds & fires]
        for watcher in reached:
            self._keep(path, watcher, watchers, ~(fires & _ONE_SHOT))
        return reached

    def remove_watcher(self, watcher: W) -> None:
        """Forget all watches of a watcher."""
        for path in self._by_watcher.pop(watcher, {}):
            watchers = self._by_path[path]
            del watchers[watcher]
            if not watchers:
                del self._by_path[path]
        self._totals.pop(watcher, None)

    def count_of(self, watcher: W) -> int:
        """Return how many watches a watcher has left."""
        return self._totals.get(watcher, 0)

    def counts(self) -> WatchCounts:
        """Return the totals."""
        return WatchCounts(len(self._by_watcher), len(self._by_path), sum(self._totals.values()))

    def _keep(self, path: str, watcher: W, watchers: dict[W, int], mask: int) -> None:
        """Reduce what a watcher wants of a path to the kinds in a mask."""
        old = watchers[watcher]
        new = old & mask
        self._totals[watcher] += _weight(new) - _weight(old)
        if new:
            watchers[watcher] = new
            return
        del watchers[watcher]
        if not watchers:
            del self._by_path[path]
        paths = self._by_watcher[watcher]
        del paths[path]
        if not paths:
            del self._by_watcher[watcher], self._totals[watcher]
