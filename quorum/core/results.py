"""What the application of an entry hands back: one Result per command, one RunOutcome per run.

Plain tuples with names; they decide nothing and hold no state. A Result is what the client's reply and the
watches are made of; errors are results, never exceptions.
Source: ARCHITECTURE.md, "Life of a write"; ZooKeeper 3.9 (MultiResponse, OpResult).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from quorum.core.acl import Grants

#: (event type > 0, path); (event type > 0, path, grants) if the node's ACL, as it was then, does not let
#: all read; or a notice: (SESSION_CLOSED, session_id), (SESSION_ATTACHED, session_id, node_id, nonce)
Event: TypeAlias = "tuple[int, str] | tuple[int, str, Grants] | tuple[int, int] | tuple[int, int, int, int]"
#: what one write gives: create → path; create2, createContainer, createTTL → (path, stat); setData, setACL →
#: stat; delete, check → None
WriteValue: TypeAlias = "str | bytes | tuple[str, bytes] | None"
#: (op, err, value) of one operation of a multi; op is create2 for what makes containers and TTL nodes, and -1
#: for every operation of a failed multi
MultiItem: TypeAlias = "tuple[int, int, WriteValue]"
#: createSession → (session_id, timeout_ms); attach → timeout_ms; multi → items in order; the others as
#: WriteValue
Value: TypeAlias = "WriteValue | list[MultiItem] | tuple[int, int] | int"


class Result(NamedTuple):
    """The outcome of one command.

    Attributes:
        err: 0 or a ZooKeeper error code. A failed multi has err 0, as its reply header has: the items tell.
        zxid: the transaction's own zxid; for a command without one, the last zxid before it.
        value: see `Value`; stats are 68 bytes in jute layout.
        events: in transaction order, all with this zxid; None when nothing happened.
    """

    err: int
    zxid: int
    value: Value
    events: list[Event] | None


class RunOutcome(NamedTuple):
    """The outcomes of one run of commands, in order: exactly one Result per command."""

    session_id: int
    nonce: int
    results: list[Result]
