"""How a connection treats the operations that clients ask for: what goes to the log, what may only be read,
what takes long, what answers a read.

Tables only, read from quorum.wire.operations; what answers has its own, because no codec knows the state.
Source: docs/guarantees.md, "Reads".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from quorum.core.codes import OP_CHECK, OP_CLOSE_SESSION, OP_SYNC
from quorum.core.tree import Directory, Tree, record_of
from quorum.core.watches import WatchTable
from quorum.server import lookups, reads
from quorum.server.client import ClientConnection
from quorum.server.replica_view import ReplicaView
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode


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
_GET_DATA: Final = int(OpCode.GET_DATA)
_BY_SIZE: Final = frozenset((_GET_DATA, int(OpCode.GET_CHILDREN), int(OpCode.GET_CHILDREN2)))
#: data of a node that weigh one unit: 64 MiB may wait, as much as a peer may leave unread
_BYTES_PER_UNIT: Final = 256 * 1024
#: children of a node that weigh one unit
_CHILDREN_PER_UNIT: Final = 1000


def weight(op: int, body: Any, tree: Tree) -> int:
    """Return how much of AHEAD_MAX a request takes while it waits.

    Args:
        op: what is asked for. body: as decoded. tree: as it is when the request comes; it may have changed
            when the answer is due.
    """
    row = OPERATIONS.get(op)
    units = 1 if row is None else row.weight
    if op not in _BY_SIZE:
        return units
    node = tree.get(body[0])
    if node is None:
        return units
    if op == _GET_DATA:
        return units + len(record_of(node)) // _BYTES_PER_UNIT
    return units + (len(node.children) // _CHILDREN_PER_UNIT if isinstance(node, Directory) else 0)
