"""Answers to what changes nothing: exists, getData, getChildren, getChildren2.

Each takes the replica's state as it is now and returns the reply as a whole frame; the watch that was asked
for is armed after the state was read and before anything else can change it. exists arms a watch on a
missing node, the others do not. The header's zxid is the last transaction that this node has applied. Knows
no order of requests: that is the connection's. Source: FinalRequestProcessor of ZooKeeper 3.9;
docs/concepts/guarantees.md, "Sessions and watches", "Reads".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from quorum.core import queries
from quorum.core.codes import NO_NODE, QUOTA_EXCEEDED
from quorum.core.watches import WatchCause, watch_bytes
from quorum.server.client import ClientConnection
from quorum.server.replica_view import ReplicaView
from quorum.wire.replies import (
    encode_children,
    encode_data,
    encode_header,
    encode_stat,
)

_DATA: Final = WatchCause.DATA
_EXIST: Final = WatchCause.EXIST
_CHILD: Final = WatchCause.CHILD


def answer_get_data(
    replica: ReplicaView, asker: ClientConnection, xid: int, asked: tuple[str, bool]
) -> bytes:
    """Answer getData."""
    path, watch = asked
    machine = replica.machine
    found = queries.get_data(machine, path, asker.identities)
    if type(found) is int:
        return encode_header(xid, machine.zxid, found)
    if watch:
        if not asker.may_watch(1, watch_bytes(path)):
            return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
        replica.watches.add(_DATA, path, asker)
    data, stat = found  # type: ignore[misc]  # an int has returned
    return encode_data(xid, machine.zxid, data, stat)


def answer_exists(replica: ReplicaView, asker: ClientConnection, xid: int, asked: tuple[str, bool]) -> bytes:
    """Answer exists."""
    path, watch = asked
    machine = replica.machine
    found = queries.exists(machine, path, asker.identities)
    missing = type(found) is int
    if watch and (not missing or found == NO_NODE):
        if not asker.may_watch(1, watch_bytes(path)):
            return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
        replica.watches.add(_EXIST if missing else _DATA, path, asker)
    if isinstance(found, int):
        return encode_header(xid, machine.zxid, found)
    return encode_stat(xid, machine.zxid, found)


def answer_get_children(
    replica: ReplicaView,
    asker: ClientConnection,
    xid: int,
    asked: tuple[str, bool],
    *,
    with_stat: bool = False,
) -> bytes:
    """Answer getChildren, or getChildren2, whose answer has the Stat."""
    path, watch = asked
    machine = replica.machine
    query: Callable[..., Any] = queries.get_children2 if with_stat else queries.get_children
    found = query(machine, path, asker.identities)
    if isinstance(found, int):
        return encode_header(xid, machine.zxid, found)
    if watch:
        if not asker.may_watch(1, watch_bytes(path)):
            return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
        replica.watches.add(_CHILD, path, asker)
    names, stat = found if with_stat else (found, b"")
    return encode_children(xid, machine.zxid, names, stat)
