"""How a connection treats the operations that clients ask for: what goes to the log, what may only be read,
what takes long.

Tables only; what an operation does stands elsewhere. Source: zookeeper design, "Ordering".
"""

from __future__ import annotations

from typing import Any, Final

from quorum.core.codes import OP_CLOSE_SESSION, OP_SYNC
from quorum.core.tree import Directory, Tree, record_of
from quorum.wire.protocol import OPERATIONS, OpCode, Treatment
from quorum.wire.requests import COMMAND_DECODERS

#: {operation: decoder} of plain writes; sync and closeSession make runs of their own
RUN_DECODERS: Final = {op: decoder for op, decoder in COMMAND_DECODERS.items() if op != OP_SYNC}
#: what becomes a run, alone or with others
RUNS: Final = frozenset({*COMMAND_DECODERS, OP_CLOSE_SESSION})
#: what a connection that may only read is refused
CHANGING: Final = frozenset(
    op for op, how in OPERATIONS.items() if how in (Treatment.WRITE, Treatment.MEMBERSHIP)
) | {int(OpCode.CHECK)}
#: what may wait for its answer while a write behind it goes to the log: so many units of `weight`
AHEAD_MAX: Final = 256
#: {operation: its weight} where that is not 1: what lists or counts may take far longer than to read a node
_WEIGHTS: Final = {
    int(OpCode.GET_ACL): 4,
    int(OpCode.GET_CHILDREN): 4,
    int(OpCode.GET_CHILDREN2): 4,
    int(OpCode.GET_ALL_CHILDREN_NUMBER): AHEAD_MAX,
    int(OpCode.GET_EPHEMERALS): AHEAD_MAX,
    int(OpCode.MULTI_READ): AHEAD_MAX,
    int(OpCode.SET_WATCHES): AHEAD_MAX,
    int(OpCode.SET_WATCHES2): AHEAD_MAX,
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
    units = _WEIGHTS.get(op, 1)
    if op not in _BY_SIZE:
        return units
    node = tree.get(body[0])
    if node is None:
        return units
    if op == _GET_DATA:
        return units + len(record_of(node)) // _BYTES_PER_UNIT
    return units + (len(node.children) // _CHILDREN_PER_UNIT if isinstance(node, Directory) else 0)
