"""setWatches and setWatches2: what a client that comes back has missed, and the watches that it left again.

For each watch it decides between an event (the node changed after the last zxid that the client saw) and a
new watch; persistent ones are left again in any case. The caller sends the events before the reply. Only the
watch table changes, soft state.
Source: ZooKeeper 3.9 DataTree.setWatches; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

from collections.abc import Iterable

from quorum.core.codes import EVENT_CHILDREN_CHANGED, EVENT_CREATED, EVENT_DATA_CHANGED, EVENT_DELETED
from quorum.core.machine import StateMachine
from quorum.core.records import mzxid_of, pzxid_of
from quorum.core.tree import Node, record_of
from quorum.core.watches import W, WatchCause, WatchTable


def _missed_data(node: Node | None, relative_zxid: int) -> int | None:
    if node is None:
        return EVENT_DELETED
    return EVENT_DATA_CHANGED if mzxid_of(record_of(node)) > relative_zxid else None


def _missed_creation(node: Node | None, _relative_zxid: int) -> int | None:
    return None if node is None else EVENT_CREATED


def _missed_children(node: Node | None, relative_zxid: int) -> int | None:
    if node is None:
        return EVENT_DELETED
    pzxid = pzxid_of(node) if isinstance(node, bytes) else node.pzxid
    return EVENT_CHILDREN_CHANGED if pzxid > relative_zxid else None


def rearm(
    machine: StateMachine,
    table: WatchTable[W],
    watcher: W,
    relative_zxid: int,
    data_paths: Iterable[str],
    exist_paths: Iterable[str],
    child_paths: Iterable[str],
    persistent_paths: Iterable[str] = (),
    recursive_paths: Iterable[str] = (),
) -> list[tuple[int, str]]:
    """Leave a returning client's watches again, or tell what it missed.

    Args:
        machine: the state to compare with.
        table: where the watches are left.
        watcher: the client's connection.
        relative_zxid: the last zxid that the client has seen.
        data_paths: watches left by getData, and by exists on nodes that were there.
        exist_paths: watches left by exists on nodes that were missing.
        child_paths: watches left by getChildren.
        persistent_paths: persistent watches.
        recursive_paths: persistent watches on all that is below.

    Returns:
        (event type, path) of every watch that fires now instead of being left, in the order of the arguments.
    """
    missed: list[tuple[int, str]] = []
    for kind, paths, judge in (
        (WatchCause.DATA, data_paths, _missed_data),
        (WatchCause.EXIST, exist_paths, _missed_creation),
        (WatchCause.CHILD, child_paths, _missed_children),
    ):
        for path in paths:
            event_type = judge(machine.tree.get(path), relative_zxid)
            if event_type is None:
                table.add(kind, path, watcher)
            else:
                missed.append((event_type, path))
    for path in persistent_paths:
        table.add(WatchCause.PERSISTENT, path, watcher)
    for path in recursive_paths:
        table.add(WatchCause.RECURSIVE, path, watcher)
    return missed
