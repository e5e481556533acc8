"""Which watcher on this node waits for which events: the watch table.

It decides which watchers an event reaches and which of their watches are used up by it. Soft state of one
node: lost with the process, never in the log, never in a snapshot. A watcher is any hashable object, in
practice a connection.

Kinds are bits, so that one entry holds all that a watcher wants of a path and an event reaches it once:

    event              reaches                       and, left on an ancestor
    created            DATA, EXIST, PERSISTENT       RECURSIVE
    deleted            all                           RECURSIVE
    data changed       DATA, EXIST, PERSISTENT       RECURSIVE
    children changed   CHILD, PERSISTENT

RECURSIVE counts on the path itself as on an ancestor; both it and PERSISTENT stay when they fire. Recursive
watchers have a tree of segments of their own: an event walks down from the root as far as somebody
watches there, and no ancestor's path is ever put together.

A watch on what no node can be named by (paths.py) is not kept: it could not fire.

Source: ZooKeeper 3.9 WatchManager; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntFlag
from typing import Final, Generic, NamedTuple, TypeVar

from quorum.core.codes import EVENT_CHILDREN_CHANGED, EVENT_CREATED, EVENT_DATA_CHANGED, EVENT_DELETED
from quorum.core.paths import is_keepable

W = TypeVar("W", bound=Hashable)


class WatchCause(IntFlag):
    """What a watch was left by."""

    DATA = 1
    EXIST = 2
    CHILD = 4
    PERSISTENT = 8
    RECURSIVE = 16


_NODE: Final = int(WatchCause.DATA | WatchCause.EXIST)
_CHILD: Final = int(WatchCause.CHILD)
_PERSISTENT: Final = int(WatchCause.PERSISTENT)
_RECURSIVE: Final = int(WatchCause.RECURSIVE)
#: kinds that are used up by the first event that they fire on
_ONE_SHOT: Final = _NODE | _CHILD
_FIRES: Final = {
    EVENT_CREATED: _NODE | _PERSISTENT | _RECURSIVE,
    EVENT_DELETED: _NODE | _CHILD | _PERSISTENT | _RECURSIVE,
    EVENT_DATA_CHANGED: _NODE | _PERSISTENT | _RECURSIVE,
    EVENT_CHILDREN_CHANGED: _CHILD | _PERSISTENT,
}
#: kinds that ZooKeeper keeps in its table of data watches, which its words list, and in that of child watches
DATA_KINDS: Final = _NODE | _PERSISTENT | _RECURSIVE
_CHILD_TABLE: Final = _CHILD | _PERSISTENT
#: {what a request calls the kinds: the kinds}. Source: Watcher.WatcherType of ZooKeeper 3.9.
KINDS_BY_TYPE: Final = {1: _CHILD, 2: _NODE, 3: DATA_KINDS | _CHILD_TABLE, 4: _PERSISTENT, 5: _RECURSIVE}


#: memory of a watcher's place on a path besides the path itself: its entries in the tables
WATCH_OVERHEAD_BYTES: Final = 512
#: memory of one path in the tree of recursive watchers
BRANCH_BYTES: Final = 512


class WatchCounts(NamedTuple):
    """How many watchers watch how many paths with how many watches."""

    watchers: int
    paths: int
    watches: int


#: how many watches some kinds count as: one per table of ZooKeeper's that they stand in
_WEIGHTS: Final = tuple(
    bool(kinds & DATA_KINDS) + bool(kinds & _CHILD_TABLE) for kinds in range(2 * _RECURSIVE)
)


def watch_bytes(path: str) -> int:
    """Return what a watcher's watches on a path count in memory: the path and its places in the table."""
    return WATCH_OVERHEAD_BYTES + len(path) * (1 if path.isascii() else 4)


def branch_bytes(path: str) -> int:
    """Return what a recursive watch counts besides: a branch for each segment, shared or not."""
    return BRANCH_BYTES * path.count("/")


def _segments(path: str) -> list[str]:
    """Return the segments of a valid path; the root has none."""
    return [] if path == "/" else path[1:].split("/")


class _Branch(Generic[W]):
    """One path of the tree of recursive watchers."""

    __slots__ = ("below", "watchers")

    def __init__(self) -> None:
        #: {segment: branch}
        self.below: dict[str, _Branch[W]] = {}
        #: {watcher: None} that watches this path recursively
        self.watchers: dict[W, None] = {}


class WatchTable(Generic[W]):
    """The watches of all clients of one node."""

    def __init__(self) -> None:
        #: {path: {watcher: kinds}}, watchers in the order of their first registration on the path
        self._by_path: dict[str, dict[W, int]] = {}
        #: the recursive ones; a branch below the root has watchers, or a branch below it has
        self._recursive: _Branch[W] = _Branch()
        #: {watcher: {path: None}}
        self._by_watcher: dict[W, dict[str, None]] = {}
        #: {watcher: number of its watches}
        self._totals: dict[W, int] = {}
        #: {watcher: `watch_bytes` of its paths, and `branch_bytes` of those watched recursively}
        self._bytes: dict[W, int] = {}
        #: the sum of `_bytes`
        self.total_bytes = 0

    def add(self, kind: WatchCause, path: str, watcher: W) -> None:
        """Leave a watch, unless no node can be named so; leaving it twice is leaving it once."""
        watchers = self._by_path.get(path)
        if watchers is None:
            if not is_keepable(path):
                return
            watchers = self._by_path[path] = {}
        old = watchers.get(watcher, 0)
        new = old | int(kind)
        if new == old:
            return
        watchers[watcher] = new
        size = (0 if old else watch_bytes(path)) + (branch_bytes(path) if (old ^ new) & _RECURSIVE else 0)
        self._bytes[watcher] = self._bytes.get(watcher, 0) + size
        self.total_bytes += size
        if new & _RECURSIVE:
            branch = self._recursive
            for segment in _segments(path):
                branch = branch.below.setdefault(segment, _Branch())
            branch.watchers[watcher] = None
        self._by_watcher.setdefault(watcher, {})[path] = None
        self._totals[watcher] = self._totals.get(watcher, 0) + _WEIGHTS[new] - _WEIGHTS[old]

    def trigger(self, event_type: int, path: str) -> list[W]:
        """Return whom an event reaches and use their one-shot watches up.

        Args:
            event_type: one of the EVENT_ codes; others reach nobody.
            path: the path of the event.

        Returns:
            Each watcher once, in the order of registration.
        """
        watchers = self._by_path.get(path)
        recursive = self._recursive
        if watchers is None and not (recursive.watchers or recursive.below):
            return []
        fires = _FIRES.get(event_type, 0)
        reached: list[W] = []
        if watchers is not None:
            reached = [watcher for watcher, kinds in watchers.items() if kinds & fires]
            for watcher in reached:
                self._keep(path, watcher, watchers, ~(fires & _ONE_SHOT))
        if fires & _RECURSIVE and (recursive.watchers or recursive.below):
            return self._with_recursive(path, reached)
        return reached

    def _with_recursive(self, path: str, reached: list[W]) -> list[W]:
        """Add those that watch an ancestor, each once, those of the nearest first."""
        above: list[dict[W, None]] = []
        branch: _Branch[W] | None = self._recursive
        start = 1
        while branch is not None and start < len(path):
            above.append(branch.watchers)
            if not branch.below:
                break
            end = path.find("/", start)
            if end < 0:
                break
            branch = branch.below.get(path[start:end])
            start = end + 1
        found = dict.fromkeys(reached)
        for watchers in reversed(above):
            found |= watchers
        return list(found)

    def has(self, path: str, watcher: W, kinds: int) -> bool:
        """Tell whether a watcher has a watch of one of some kinds on a path."""
        return bool(self._by_path.get(path, {}).get(watcher, 0) & kinds)

    def remove(self, path: str, watcher: W, kinds: int) -> bool:
        """Take watches of some kinds from a path; returns whether there was one. The other kinds stay."""
        if not self.has(path, watcher, kinds):
            return False
        self._keep(path, watcher, self._by_path[path], ~kinds)
        return True

    def remove_watcher(self, watcher: W) -> None:
        """Forget all watches of a watcher."""
        for path in self._by_watcher.pop(watcher, {}):
            watchers = self._by_path[path]
            if watchers.pop(watcher) & _RECURSIVE:
                self._forget_recursive(path, watcher)
            if not watchers:
                del self._by_path[path]
        self._totals.pop(watcher, None)
        self.total_bytes -= self._bytes.pop(watcher, 0)

    def bytes_of(self, watcher: W) -> int:
        """Return how many bytes a watcher's watches count."""
        return self._bytes.get(watcher, 0)

    def fattest(self) -> W | None:
        """Return whose watches count the most bytes; None if there are none."""
        return max(self._bytes, key=self._bytes.__getitem__, default=None)

    def count_of(self, watcher: W) -> int:
        """Return how many watches a watcher has left."""
        return self._totals.get(watcher, 0)

    def counts(self) -> WatchCounts:
        """Return the totals."""
        return WatchCounts(len(self._by_watcher), len(self._by_path), sum(self._totals.values()))

    def paths(self) -> list[str]:
        """Return all paths that somebody watches."""
        return list(self._by_path)

    def watchers(self) -> list[W]:
        """Return all watchers."""
        return list(self._by_watcher)

    def paths_of(self, watcher: W) -> list[str]:
        """Return the paths that a watcher watches."""
        return list(self._by_watcher.get(watcher, ()))

    def watchers_of(self, path: str) -> list[W]:
        """Return the watchers of a path, in the order of registration."""
        return list(self._by_path.get(path, ()))

    def _forget_recursive(self, path: str, watcher: W) -> None:
        branches = [self._recursive]
        segments = _segments(path)
        for segment in segments:
            branches.append(branches[-1].below[segment])
        del branches[-1].watchers[watcher]
        while len(branches) > 1 and not (branches[-1].watchers or branches[-1].below):
            branches.pop()
            del branches[-1].below[segments[len(branches) - 1]]

    def _keep(self, path: str, watcher: W, watchers: dict[W, int], mask: int) -> None:
        """Reduce what a watcher wants of a path to the kinds in a mask."""
        old = watchers[watcher]
        new = old & mask
        if new == old:
            return
        self._totals[watcher] += _WEIGHTS[new] - _WEIGHTS[old]
        size = 0 if new else watch_bytes(path)
        if (old ^ new) & _RECURSIVE:
            self._forget_recursive(path, watcher)
            size += branch_bytes(path)
        self._bytes[watcher] -= size
        self.total_bytes -= size
        if new:
            watchers[watcher] = new
            return
        del watchers[watcher]
        if not watchers:
            del self._by_path[path]
        paths = self._by_watcher[watcher]
        del paths[path]
        if not paths:
            del self._by_watcher[watcher], self._totals[watcher], self._bytes[watcher]
