"""How a connection treats the operations that clients ask for: what goes to the log, what may only be read,
what takes long, what answers a read.

Tables only, read from quorum.wire.operations; what answers has its own, because no codec knows the state.
Source: docs/concepts/guarantees.md, "Reads".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from quorum.core.codes import OP_CHECK, OP_CLOSE_SESSION, OP_SYNC
from quorum.core.tree import Directory, record_of
from quorum.core.watches import WatchTable
from quorum.server import lookups, reads
from quorum.server.client import ClientConnection
from quorum.server.replica_view import ReplicaView
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode
from quorum.wire.requests import SetWatches


def _decoders(treatment: Treatment) -> dict[int, Callable[..., Any]]:
    return {
        int(op): row.decode
        for op, row in OPERATIONS.items()
        if row.treatment is treatment and row.decode is not None
    }


#: {operation: decoder} of plain writes; sync and closeSession make runs of their own
RUN_DECODERS: Final = _decoders(Treatment.WRITE)
del RUN_DECODERS[OP_SYNC]
READ_DECODERS: Final = _decoders(Treatment.READ)
#: what becomes a run, alone or with others
RUNS: Final = frozenset({*RUN_DECODERS, OP_SYNC, OP_CLOSE_SESSION})
#: what a connection that may only read is refused
CHANGING: Final = frozenset({*RUN_DECODERS, OP_SYNC, OP_CHECK, int(OpCode.RECONFIG)})
#: {read: what answers it with a whole frame, from its body, after arming the watch if one is due}
ANSWERS: Final[dict[int, Callable[[ReplicaView, ClientConnection, int, Any], bytes]]] = {
    int(OpCode.EXISTS): reads.answer_exists,
    int(OpCode.GET_DATA): reads.answer_get_data,
    int(OpCode.GET_CHILDREN): reads.answer_get_children,
    int(OpCode.GET_CHILDREN2): partial(reads.answer_get_children, with_stat=True),
    int(OpCode.GET_ACL): lookups.answer_get_acl,
    int(OpCode.GET_ALL_CHILDREN_NUMBER): lookups.answer_get_all_children_number,
    int(OpCode.GET_EPHEMERALS): lookups.answer_get_ephemerals,
    int(OpCode.WHO_AM_I): lookups.answer_who_am_i,
    int(OpCode.MULTI_READ): lookups.answer_multi_read,
    int(OpCode.ADD_WATCH): lookups.answer_add_watch,
    int(OpCode.CHECK_WATCHES): partial(lookups.answer_named_watches, WatchTable.has),
    int(OpCode.REMOVE_WATCHES): partial(lookups.answer_named_watches, WatchTable.remove),
}
#: data of a node that weigh one unit: 64 MiB may wait, as much as a peer may leave unread
_BYTES_PER_UNIT: Final = 256 * 1024
#: names, or nodes, that weigh one unit
_NAMES_PER_UNIT: Final = 1000
#: what weighs as much waits for a turn of the node in which it is the only one
LONG_UNITS_MIN: Final = 16


def _data_units(replica: ReplicaView, _asker: ClientConnection, body: tuple[str, bool]) -> int:
    node = replica.machine.tree.get(body[0])
    return 1 if node is None else 1 + len(record_of(node)) // _BYTES_PER_UNIT


def _children_units(replica: ReplicaView, _asker: ClientConnection, body: tuple[str, bool]) -> int:
    node = replica.machine.tree.get(body[0])
    return 4 + len(node.children) // _NAMES_PER_UNIT if isinstance(node, Directory) else 1


def _descendants_units(replica: ReplicaView, _asker: ClientConnection, path: str) -> int:
    tree = replica.machine.tree
    node = tree.get(path)
    # The root's are counted already.
    return tree.node_count // _NAMES_PER_UNIT if isinstance(node, Directory) and node is not tree.root else 1


def _ephemerals_units(replica: ReplicaView, asker: ClientConnection, _prefix: str) -> int:
    session = replica.machine.sessions.get(asker.session_id)
    return 1 if session is None else 1 + len(session.ephemerals) // _NAMES_PER_UNIT


def _multi_read_units(
    replica: ReplicaView, asker: ClientConnection, reads: list[tuple[int, str]] | None
) -> int:
    return sum(WEIGHTS[op](replica, asker, (path, False)) for op, path in reads or ())


def _rearm_units(_replica: ReplicaView, _asker: ClientConnection, _request: SetWatches | None) -> int:
    # Even few may be the last thing that is answered: no write may go to the log behind them.
    return LONG_UNITS_MIN


#: {operation that may weigh more than one: units of AHEAD_MAX that it takes while it waits, by the state as
#: it is when the request comes; it may have changed when the answer is due}
WEIGHTS: Final[dict[int, Callable[[ReplicaView, ClientConnection, Any], int]]] = {
    int(OpCode.GET_DATA): _data_units,
    int(OpCode.GET_CHILDREN): _children_units,
    int(OpCode.GET_CHILDREN2): _children_units,
    int(OpCode.GET_ALL_CHILDREN_NUMBER): _descendants_units,
    int(OpCode.GET_EPHEMERALS): _ephemerals_units,
    int(OpCode.MULTI_READ): _multi_read_units,
    int(OpCode.SET_WATCHES): _rearm_units,
    int(OpCode.SET_WATCHES2): _rearm_units,
}
