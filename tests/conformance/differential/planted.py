"""Defects put into a node on purpose: each must be found by the differential run.

    python -m tests.conformance.differential.planted NAME serve …

Each function changes classes of the shipped code in this process; what stands behind the name is the command
line of `quorate`. All nodes of a cluster run with the same defect, so that their digests agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from struct import pack
from typing import Any, Final

import quorum.core.rearm
import quorum.core.transaction
import quorum.core.watches
from quorum.cli.main import main as quorate
from quorum.core.codes import (
    BAD_VERSION,
    EVENT_CHILDREN_CHANGED,
    EVENT_DATA_CHANGED,
    EVENT_DELETED,
    OP_ERROR,
    OP_SET_DATA,
    OP_SYNC,
)
from quorum.core.sessions import Session
from quorum.core.transaction import TreeTransaction
from quorum.core.tree import Directory, Node
from quorum.core.watches import WatchCause, WatchTable
from quorum.server.answering import Pipeline
from quorum.server.requests import Requests

#: bytes of a Stat before cversion, and before ephemeralOwner
_BEFORE_CVERSION: Final = 36
_BEFORE_OWNER: Final = 44
#: a path without a letter
_EMPTY: Final = pack(">i", 0)


def _replace(owner: object, name: str, replacement: object) -> None:
    """Put something else in the place of a method or function; its type may be that of a base class."""
    setattr(owner, name, replacement)


def pzxid_kept_by_delete() -> None:
    """A deleted child leaves its parent's pzxid as it was."""
    shipped = TreeTransaction._remove

    def _remove(self: TreeTransaction, parent: Directory, name: str, path: str, node: Node) -> None:
        pzxid = parent.pzxid
        shipped(self, parent, name, path, node)
        parent.pzxid = pzxid

    _replace(TreeTransaction, "_remove", _remove)


def event_after_reply() -> None:
    """A client hears of its own write only behind the reply."""
    shipped = Pipeline.deliver

    def deliver(self: Pipeline, outcome: Any) -> None:
        late = [
            (result.zxid, [event for event in result.events or () if event[0] > 0])
            for result in outcome.results
        ]
        results = [
            result._replace(events=[event for event in result.events or () if event[0] <= 0] or None)
            for result in outcome.results
        ]
        shipped(self, outcome._replace(results=results))
        for zxid, events in late:
            self._host.fire(zxid, events)

    _replace(Pipeline, "deliver", deliver)


def multi_errors() -> None:
    """The operations behind the one that failed report its error, not an inconsistency."""

    def _failed_items(position: int, error: int, count: int) -> list[tuple[int, int, None]]:
        return [(OP_ERROR, error if index >= position else 0, None) for index in range(count)]

    _replace(quorum.core.transaction, "_failed_items", _failed_items)


def cversion_counts_creates() -> None:
    """cversion does not count deletions."""
    shipped = Directory.stat

    def stat(self: Directory) -> bytes:
        right = shipped(self)
        return right[:_BEFORE_CVERSION] + pack(">i", self.creates) + right[_BEFORE_CVERSION + 4 :]

    _replace(Directory, "stat", stat)


def ttl_owner() -> None:
    """A node with a TTL shows it as its ephemeralOwner when it is created."""
    shipped = getattr(TreeTransaction, "create_ttl")  # noqa: B009 - the defect outlives the method's name

    def create_ttl(self: TreeTransaction, command: list[object]) -> Any:
        created = shipped(self, command)
        if isinstance(created, int):
            return created
        path, stat = created
        return path, stat[:_BEFORE_OWNER] + pack(">q", command[5]) + stat[_BEFORE_OWNER + 8 :]

    _replace(TreeTransaction, "create_ttl", create_ttl)


def set_watches_ignores_missing() -> None:
    """A client that comes back is not told that a node has gone."""
    for name in ("_missed_data", "_missed_children"):
        shipped = getattr(quorum.core.rearm, name)

        def missed(node: Node | None, zxid: int, shipped: Any = shipped) -> int | None:
            return None if node is None else shipped(node, zxid)

        _replace(quorum.core.rearm, name, missed)


def version_off_by_one() -> None:
    """setData takes a version that is one too high."""
    shipped = TreeTransaction.set_data

    def set_data(self: TreeTransaction, command: list[object]) -> bytes | int:
        result = shipped(self, command)
        if result == BAD_VERSION and isinstance(command[3], int) and command[3] > 0:
            return shipped(self, [*command[:3], command[3] - 1])
        return result

    _replace(TreeTransaction, "set_data", set_data)


def sequence_from_children() -> None:
    """The suffix of a sequential node is the number of children."""
    shipped: Any = TreeTransaction._create

    def _create(self: TreeTransaction, *arguments: Any) -> Any:
        path = arguments[0] if isinstance(arguments[0], str) else arguments[0][1]
        parent = self.tree.get(path.rpartition("/")[0]) if isinstance(path, str) else None
        if not isinstance(parent, Directory):
            return shipped(self, *arguments)
        creates, children = parent.creates, len(parent.children)
        parent.creates = children
        created = shipped(self, *arguments)
        parent.creates += creates - children
        return created

    _replace(TreeTransaction, "_create", _create)


def watch_fires_twice() -> None:
    """A one-shot watch is used up only by its second event."""
    shipped = WatchTable.trigger
    fired: set[tuple[int, str, str]] = set()

    def trigger(self: WatchTable[Any], event_type: int, path: str) -> list[Any]:
        reached = shipped(self, event_type, path)
        kind = WatchCause.CHILD if event_type == EVENT_CHILDREN_CHANGED else WatchCause.DATA
        for watcher in reached:
            mark = (id(watcher), kind.name or "", path)
            if mark in fired:
                fired.discard(mark)
            elif event_type != EVENT_DELETED:
                fired.add(mark)
                self.add(kind, path, watcher)
        return reached

    _replace(WatchTable, "trigger", trigger)


def close_leaves_ephemeral() -> None:
    """closeSession leaves the session's last ephemeral node."""
    shipped = TreeTransaction.close_session

    def close_session(self: TreeTransaction, session: Session) -> None:
        left = session.ephemerals.popitem() if session.ephemerals else None
        shipped(self, session)
        if left is not None:
            session.ephemerals[left[0]] = None
            self.sessions[session.session_id] = session

    _replace(TreeTransaction, "close_session", close_session)


def child_watch_misses_deletion() -> None:
    """A child watch does not fire when its own node is deleted."""
    fires: dict[int, int] = getattr(quorum.core.watches, "_FIRES")  # noqa: B009 - no part of its interface
    fires[EVENT_DELETED] &= ~int(WatchCause.CHILD)


def failed_multi_fires() -> None:
    """What a failed multi would have set fires watches."""
    shipped = TreeTransaction.multi

    def multi(self: TreeTransaction, command: list[object]) -> Any:
        items = shipped(self, command)
        parts: Any = command[1]
        if isinstance(items, list) and items and items[0][0] == OP_ERROR:
            self.events += [
                (EVENT_DATA_CHANGED, part[1])
                for part, (_, err, _) in zip(parts, items, strict=True)
                if part[0] == OP_SET_DATA and not err
            ]
        return items

    _replace(TreeTransaction, "multi", multi)


def sync_at_once() -> None:
    """A sync is answered at once, whatever the node has still to hear of."""
    shipped = Requests._receive_other

    def _receive_other(self: Requests, xid: int, op: int, data: bytes, start: int, after: int) -> None:
        if op != OP_SYNC or self._connection.outstanding or after - start < len(_EMPTY):
            shipped(self, xid, op, data, start, after)
            return
        path = data[start:after]
        head = pack(">iiqi", 16 + len(path), xid, self._host.replica.machine.zxid, 0)
        self._stream.queue(head + path)

    _replace(Requests, "_receive_other", _receive_other)


#: {name on the command line: what it does}
PLANTED: Final[dict[str, Callable[[], None]]] = {
    "pzxid-kept-by-delete": pzxid_kept_by_delete,
    "event-after-reply": event_after_reply,
    "multi-errors": multi_errors,
    "cversion-counts-creates": cversion_counts_creates,
    "ttl-owner": ttl_owner,
    "set-watches-ignores-missing": set_watches_ignores_missing,
    "version-off-by-one": version_off_by_one,
    "sequence-from-children": sequence_from_children,
    "watch-fires-twice": watch_fires_twice,
    "close-leaves-ephemeral": close_leaves_ephemeral,
    "child-watch-misses-deletion": child_watch_misses_deletion,
    "failed-multi-fires": failed_multi_fires,
    "sync-at-once": sync_at_once,
}


def serving(name: str) -> tuple[str, ...]:
    """Return what follows the Python interpreter to run a node with a defect."""
    if name not in PLANTED:
        raise ValueError(f"planted: {name!r}: use one of {', '.join(PLANTED)}")
    return ("-m", "tests.conformance.differential.planted", name, "serve")


if __name__ == "__main__":
    PLANTED[sys.argv[1]]()
    sys.exit(quorate(sys.argv[2:]))
