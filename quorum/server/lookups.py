"""Answers to what only looks or watches, apart from the four reads of reads.py.

getACL, getEphemerals, getAllChildrenNumber, whoAmI and multiRead read the state as it is now; addWatch,
checkWatches and removeWatches concern the watches of the connection that asks, whether their path exists or
not. Each takes a decoded body and returns the reply as a whole frame; the header's zxid is the last
transaction that this node has applied. Knows no order of requests: that is the connection's.

Source: FinalRequestProcessor and DataTree of ZooKeeper 3.9; docs/concepts/guarantees.md, "Sessions and
watches"; DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from quorum.core import queries
from quorum.core.codes import MARSHALLING_ERROR, NO_WATCHER, OK, QUOTA_EXCEEDED
from quorum.core.watches import KINDS_BY_TYPE, WatchCause, WatchTable, branch_bytes, watch_bytes
from quorum.server.client import ClientConnection
from quorum.server.replica_view import ReplicaView
from quorum.wire.lookups import (
    ADD_PERSISTENT,
    ADD_RECURSIVE,
    MULTI_READ_READS_MAX,
    WatchRequest,
)
from quorum.wire.protocol import OpCode
from quorum.wire.replies import (
    encode_acl,
    encode_children,
    encode_header,
    encode_identities,
    encode_multi_read,
    encode_number,
    encode_read_answer,
)

_GET_DATA: Final = int(OpCode.GET_DATA)
#: {mode: (what is armed, watches that it counts as)}
_MODES: Final = {ADD_PERSISTENT: (WatchCause.PERSISTENT, 2), ADD_RECURSIVE: (WatchCause.RECURSIVE, 1)}
#: bytes of the answers to one multiRead, as they are sent; a few bytes ask for a large node, and often
MULTI_READ_BYTES_MAX: Final = 32 * 1024 * 1024
#: names in them, unless it is one read: these take some tens of milliseconds, as many bytes of data a few
MULTI_READ_NAMES_MAX: Final = 200_000


def answer_get_acl(replica: ReplicaView, asker: ClientConnection, xid: int, path: str) -> bytes:
    """Answer getACL."""
    machine = replica.machine
    found = queries.get_acl(machine, path, asker.identities)
    if isinstance(found, int):
        return encode_header(xid, machine.zxid, found)
    return encode_acl(xid, machine.zxid, *found)


def answer_get_all_children_number(
    replica: ReplicaView, asker: ClientConnection, xid: int, path: str
) -> bytes:
    """Answer getAllChildrenNumber."""
    machine = replica.machine
    found = queries.count_descendants(machine, path, asker.identities)
    if found < 0:
        return encode_header(xid, machine.zxid, found)
    return encode_number(xid, machine.zxid, found)


def answer_get_ephemerals(replica: ReplicaView, asker: ClientConnection, xid: int, prefix: str) -> bytes:
    """Answer getEphemerals."""
    machine = replica.machine
    return encode_children(xid, machine.zxid, queries.ephemerals_of(machine, asker.session_id, prefix))


def answer_who_am_i(replica: ReplicaView, asker: ClientConnection, xid: int, _body: None) -> bytes:
    """Tell schemes and user names; a digest stays where it is."""
    proven = [
        (scheme, name.partition(":")[0] if scheme == "digest" else name)
        for scheme, name in asker.identities or []
    ]
    return encode_identities(xid, replica.machine.zxid, proven)


def answer_multi_read(
    replica: ReplicaView, asker: ClientConnection, xid: int, reads: list[tuple[int, str]] | None
) -> bytes:
    """Answer each read on its own, or none if they are too many or their answers too large together.

    All see one state, so they are answered in one go; no watch is armed.
    """
    machine = replica.machine
    if reads is None:
        return encode_header(xid, machine.zxid, MARSHALLING_ERROR)
    if len(reads) > MULTI_READ_READS_MAX:
        return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
    identities = asker.identities
    answers: list[bytes] = []
    size_bytes = names = 0
    for op, path in reads:
        found: Any
        if op == _GET_DATA:
            found = queries.get_data(machine, path, identities)
        else:
            found = queries.get_children(machine, path, identities)
            names += 0 if isinstance(found, int) else len(found)
            if names > MULTI_READ_NAMES_MAX and len(reads) > 1:
                return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
        answers.append(encode_read_answer(op, found))
        size_bytes += len(answers[-1])
        if size_bytes > MULTI_READ_BYTES_MAX:
            return encode_header(xid, machine.zxid, QUOTA_EXCEEDED)
    return encode_multi_read(xid, machine.zxid, answers)


def answer_add_watch(replica: ReplicaView, asker: ClientConnection, xid: int, request: WatchRequest) -> bytes:
    """Answer addWatch."""
    zxid = replica.machine.zxid
    if request.code not in _MODES:
        return encode_header(xid, zxid, MARSHALLING_ERROR)
    kind, watches = _MODES[request.code]
    size = watch_bytes(request.path)
    if kind is WatchCause.RECURSIVE:
        size += branch_bytes(request.path)
    if not asker.may_watch(watches, size):
        return encode_header(xid, zxid, QUOTA_EXCEEDED)
    replica.watches.add(kind, request.path, asker)
    return encode_number(xid, zxid, OK)


def answer_named_watches(
    act: Callable[[WatchTable[Any], str, Any, int], bool],
    replica: ReplicaView,
    asker: ClientConnection,
    xid: int,
    request: WatchRequest,
) -> bytes:
    """Look for, or remove, the asker's watches of some kinds on a path; an error says that there was none."""
    kinds = KINDS_BY_TYPE.get(request.code)
    if kinds is None:
        err = MARSHALLING_ERROR
    else:
        err = OK if act(replica.watches, request.path, asker, kinds) else NO_WATCHER
    return encode_header(xid, replica.machine.zxid, err)
