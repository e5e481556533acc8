"""One row for each operation of ZooKeeper 3.9: how a server treats it and decodes its body.

`OPERATIONS` is the only table of them; one that a later version of this server learns already has its row.
What answers a read, quorum.server.operations says: the codec knows no state.
Source: ZooDefs.OpCode, Request.op2String, MultiOperationRecord (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from quorum.core.codes import (
    FLAG_CONTAINER,
    OP_CREATE,
    OP_CREATE2,
    OP_CREATE_CONTAINER,
    OP_CREATE_TTL,
    OP_MULTI,
    OP_SET_ACL,
    OP_SET_DATA,
    QUOTA_EXCEEDED,
)
from quorum.core.quotas import LIMITS
from quorum.wire import lookups, requests
from quorum.wire.errors import FrameTooLargeError, WireError
from quorum.wire.jute import MULTI_HEADER, Buffer
from quorum.wire.protocol import OpCode
from quorum.wire.requests import Command

_LIMITS_END: Final = f"/{LIMITS}"
_read_multi_header: Final = MULTI_HEADER.unpack_from
#: operations of one multi, with the entries of their access lists: these take some tens of milliseconds
MULTI_ITEMS_MAX: Final = 10_000
#: for how many an entry "auth" counts: it is replaced by what the client has proven
AUTH_ITEMS: Final = 32
#: for how many the limits node of a quota counts that is created: all that is below its path is counted
LIMITS_ITEMS: Final = 1_000
#: what waits for its answer while a later write goes to the log weighs so much at most
AHEAD_MAX: Final = 256


class Treatment(Enum):
    """What a server does with an operation."""

    #: Becomes a command of the log and waits for its outcome.
    WRITE = "write"
    #: Is answered from this node's state, in the order of the connection.
    READ = "read"
    #: Concerns the connection or the session alone.
    SESSION = "session"
    #: Becomes a change of the cluster's members and waits for its outcome.
    MEMBERSHIP = "membership"
    #: Is answered with UNIMPLEMENTED (-6), and the connection ends: not served, or never alone.
    REFUSED = "refused"


class Operation(NamedTuple):
    """One operation.

    Attributes:
        treatment: what a server does with it.
        short_name: what ZooKeeper calls it where there is little room.
        decode: takes the buffer, the first byte after the request header and the first byte after the
            frame, some of them a limit as well. Returns the body; of a write the command, and the first byte
            after its record. None: it has no body, or is not decoded.
        in_multi: whether it can stand in a multi.
        has_acl: whether its command may hold access lists.
    """

    treatment: Treatment
    short_name: str = "NA"
    decode: Callable[..., Any] | None = None
    in_multi: bool = False
    has_acl: bool = False


def _as_zookeeper_reads(part: Command) -> Command:
    """Return an operation of a multi as what ZooKeeper makes of it: there the flags decide.

    Source: MultiOperationRecord.deserialize and Op.create of ZooKeeper 3.9.
    """
    op = part[0]
    if op in (OP_CREATE, OP_CREATE2) and part[4] == FLAG_CONTAINER:
        return [OP_CREATE_CONTAINER, *part[1:]]
    if op == OP_CREATE_TTL and 0 <= part[4] <= FLAG_CONTAINER:
        return [OP_CREATE_CONTAINER if part[4] == FLAG_CONTAINER else OP_CREATE, *part[1:5]]
    return part


def extra_units(command: Command) -> int:
    """Return as how many requests more a command of WITH_ACCESS_LISTS counts, by what it costs to apply."""
    op = command[0]
    if op == OP_MULTI:
        return sum(extra_units(part) for part in command[1] if part[0] in CREATIONS)
    return _auth_entries(command) + (0 if op == OP_SET_ACL else _limits_items(command))


def _auth_entries(command: Command) -> int:
    """Count the entries "auth" in an access list, each of which AUTH_ITEMS may replace."""
    entries = command[2 if command[0] == OP_SET_ACL else 3]
    return 0 if entries is None else sum(scheme == "auth" for _, scheme, _ in entries)


def _limits_items(command: Command) -> int:
    """Return for how many operations more a create counts that may begin a quota."""
    path = command[1]
    return LIMITS_ITEMS - 1 if path is not None and path.endswith(_LIMITS_END) else 0


def _multi(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
    parts: list[Command] = []
    items = 0
    position = start
    while position + 9 <= end:
        op, done, _ = _read_multi_header(buffer, position)
        position += 9
        if done:
            return [OP_MULTI, parts], position
        row = OPERATIONS.get(op)
        if row is None or not row.in_multi or row.decode is None:
            raise WireError(
                "multi.type", op, "creates of any kind, delete, setData and check can stand in a multi"
            )
        part, position = row.decode(buffer, position, end)
        if part[1] is None:
            raise WireError("multi.path", None, "a string was expected")
        items += 1
        if op == OP_SET_DATA:
            parts.append(part)
        else:
            parts.append(_as_zookeeper_reads(part))
            if op in CREATIONS:
                items += len(part[3] or ()) + (AUTH_ITEMS - 1) * _auth_entries(part) + _limits_items(part)
        if items > MULTI_ITEMS_MAX:
            raise FrameTooLargeError("multi", items, MULTI_ITEMS_MAX, QUOTA_EXCEEDED)
    raise WireError("multi", f"{len(parts)} operations", "the frame ends before the multi does")


#: {operation: its row}; whatever is missing is unknown to ZooKeeper as well, and refused
OPERATIONS: Final[dict[int, Operation]] = {
    OpCode.CREATE: Operation(Treatment.WRITE, "CREA", requests.decode_create, in_multi=True, has_acl=True),
    OpCode.DELETE: Operation(Treatment.WRITE, "DELE", requests.decode_delete, in_multi=True),
    OpCode.EXISTS: Operation(Treatment.READ, "EXIS", requests.decode_read),
    OpCode.GET_DATA: Operation(Treatment.READ, "GETD", requests.decode_read),
    OpCode.SET_DATA: Operation(Treatment.WRITE, "SETD", requests.decode_set_data, in_multi=True),
    OpCode.GET_ACL: Operation(Treatment.READ, "GETA", lookups.decode_looked_at),
    OpCode.SET_ACL: Operation(Treatment.WRITE, "SETA", requests.decode_set_acl, has_acl=True),
    OpCode.GET_CHILDREN: Operation(Treatment.READ, "GETC", requests.decode_read),
    OpCode.SYNC: Operation(Treatment.WRITE, "SYNC", requests.decode_sync),
    OpCode.PING: Operation(Treatment.SESSION, "PING"),
    OpCode.GET_CHILDREN2: Operation(Treatment.READ, "GETC", requests.decode_read),
    # never alone, as in ZooKeeper 3.9
    OpCode.CHECK: Operation(Treatment.REFUSED, "NA", requests.decode_check, in_multi=True),
    OpCode.MULTI: Operation(Treatment.WRITE, "MULT", _multi, has_acl=True),
    OpCode.CREATE2: Operation(Treatment.WRITE, "CREA", requests.decode_create2, in_multi=True, has_acl=True),
    OpCode.RECONFIG: Operation(Treatment.MEMBERSHIP, "RECO", requests.decode_reconfig),
    OpCode.CHECK_WATCHES: Operation(Treatment.READ, "CHKW", lookups.decode_watch_request),
    OpCode.REMOVE_WATCHES: Operation(Treatment.READ, "REMW", lookups.decode_watch_request),
    OpCode.CREATE_CONTAINER: Operation(
        Treatment.WRITE, "CREA", requests.decode_create_container, in_multi=True, has_acl=True
    ),
    # only the log deletes them, when they are due
    OpCode.DELETE_CONTAINER: Operation(Treatment.REFUSED),
    OpCode.CREATE_TTL: Operation(
        Treatment.WRITE, "CREA", requests.decode_create_ttl, in_multi=True, has_acl=True
    ),
    OpCode.MULTI_READ: Operation(Treatment.READ, "MLTR", lookups.decode_multi_read),
    OpCode.AUTH: Operation(Treatment.SESSION, "NA", requests.decode_auth),
    OpCode.SET_WATCHES: Operation(Treatment.SESSION, "SETW", requests.decode_set_watches),
    # where there are users; else refused
    OpCode.SASL: Operation(Treatment.SESSION, "NA", requests.decode_sasl),
    OpCode.GET_EPHEMERALS: Operation(Treatment.READ, "GETE", lookups.decode_prefix),
    OpCode.GET_ALL_CHILDREN_NUMBER: Operation(Treatment.READ, "GETACN", lookups.decode_looked_at),
    OpCode.SET_WATCHES2: Operation(Treatment.SESSION, "STW2", requests.decode_set_watches2),
    OpCode.ADD_WATCH: Operation(Treatment.READ, "ADDW", lookups.decode_watch_request),
    OpCode.WHO_AM_I: Operation(Treatment.READ, "HOMI", lookups.decode_nothing),
    # a handshake makes sessions, a request never does
    OpCode.CREATE_SESSION: Operation(Treatment.REFUSED, "SESS"),
    OpCode.CLOSE_SESSION: Operation(Treatment.SESSION, "CLOS"),
}
#: commands that make a node, and all that may hold access lists
CREATIONS: Final = frozenset(op for op, row in OPERATIONS.items() if row.in_multi and row.has_acl)
WITH_ACCESS_LISTS: Final = frozenset(op for op, row in OPERATIONS.items() if row.has_acl)
