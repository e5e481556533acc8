"""What a stream is made of: steps over numbered sessions, in a fixed order.

A step is complete in itself, so that any subset of a stream is a stream again (shrinking needs that): a
session that a step names is opened when it is not there. In paths a leading "~" stands for the stream's own
root. A zxid in a setWatches is named by what the client knows: `SEEN`, or zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tests.conformance.differential.wire import Op, Request

#: as the relative zxid of a setWatches: the last zxid that the session has seen
SEEN: Final = "seen"
#: as the relative zxid of a setWatches: the zxid of the stream's first transaction
FIRST: Final = "first"


@dataclass(frozen=True)
class Send:
    """Send requests in one packet and take their replies."""

    session: int
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Reconnect:
    """Drop the connection and resume the session, on a node counted from the leader."""

    session: int
    node: int
    #: sent with the handshake, before its reply is read
    behind: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Pending:
    """Send writes, drop the connection without reading a reply, and resume.

    The first request of the step creates `marker`, the last one creates `marker` + "-end". If `settled`, the
    connection is dropped once the last has taken effect; else at once, and the outcome of each is unknown.
    """

    session: int
    node: int
    marker: str
    requests: tuple[Request, ...]
    settled: bool


@dataclass(frozen=True)
class Break:
    """Send bytes that end a connection, see how, and resume the session."""

    session: int
    kind: str
    payload: bytes
    #: the operation in it, if it is a frame with a header that will be answered
    op: int = 0


@dataclass(frozen=True)
class Leave:
    """closeSession, with requests behind it in the same packet."""

    session: int
    behind: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Greet:
    """A connection of its own that tries a handshake and is given up."""

    session: int
    #: "wrong-password", "unknown-session", "future-zxid", "no-read-only", "short", "long-password",
    #: "negative-timeout", "huge-timeout"
    kind: str
    node: int


@dataclass(frozen=True)
class Quiet:
    """Have every event arrive: a sync on each session, in order."""

    session: int = 0


Step = Send | Reconnect | Pending | Break | Leave | Greet | Quiet


@dataclass(frozen=True)
class Stream:
    """A seeded list of steps."""

    seed: int
    #: {session: node that it connects to first, counted from the leader}
    homes: tuple[int, ...]
    steps: tuple[Step, ...]


def show_request(request: Request) -> str:
    """Write a request as one line."""
    try:
        name = Op(request.op).name.lower()
    except ValueError:
        name = f"op{request.op}"
    if request.raw is not None:
        return f"{name} <{request.raw.hex()}>"
    return f"{name}({', '.join(map(_show, request.args))})"


def _show(value: Any) -> str:
    if isinstance(value, Request):
        return show_request(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_show, value)) + "]"
    return repr(value)


def show_step(step: Step) -> str:
    """Write a step as one line."""
    who = f"session {step.session}"
    match step:
        case Send(_, requests):
            return f"{who}: " + "; ".join(map(show_request, requests))
        case Reconnect(_, node, behind):
            return f"{who} reconnects to node {node}: " + "; ".join(map(show_request, behind))
        case Pending(_, node, marker, requests, settled):
            how = "unread" if settled else "pending"
            shown = "; ".join(map(show_request, requests))
            return f"{who} resumes on node {node} with {how} (marker {marker}): {shown}"
        case Break(_, kind, payload, _):
            return f"{who} breaks off: {kind} <{payload.hex()}>"
        case Leave(_, behind):
            return f"{who} closes: " + "; ".join(map(show_request, behind))
        case Greet(_, kind, node):
            return f"{who}: handshake {kind} at node {node}"
        case Quiet():
            return "every event arrives"
