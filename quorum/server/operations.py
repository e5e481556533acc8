"""How a connection treats the operations that clients ask for: what goes to the log, what may only be read,
what takes long.

Tables only; what an operation does stands elsewhere. Source: zookeeper design, "Ordering".
"""

from __future__ import annotations

from typing import Final

from quorum.core.codes import OP_CLOSE_SESSION, OP_SYNC
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
#: how many requests may wait for their answers while a write behind them goes to the log
READS_AHEAD_MAX: Final = 16
#: requests that may take far longer than to read a node
_LONG: Final = frozenset(
    map(
        int,
        (
            OpCode.GET_ALL_CHILDREN_NUMBER,
            OpCode.GET_EPHEMERALS,
            OpCode.MULTI_READ,
            OpCode.SET_WATCHES,
            OpCode.SET_WATCHES2,
        ),
    )
)


def weight(op: int) -> int:
    """Return for how many of READS_AHEAD_MAX a request counts."""
    return READS_AHEAD_MAX if op in _LONG else 1
