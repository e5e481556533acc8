"""What becomes of a handshake: a new session, a resumption, a refusal, or silence so that the client tries
another node.

Pure decisions over the request, the state and the limits; both commands go through the log, and their
outcomes decide. A node without a quorum serves those that allow it with reads alone, if read_only_mode is on;
their sessions are its own, or those of the log as it knows them. A session that this node does not know may
exist on the others: only a wrong password is refused here, a session that is gone is found out by the log.
Source: docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from quorum.core.codes import OP_ATTACH, OP_CREATE_SESSION
from quorum.core.machine import StateMachine
from quorum.server.options import ServerOptions
from quorum.wire.protocol import PASSWORD_BYTES
from quorum.wire.requests import Command, ConnectRequest


class Submit(NamedTuple):
    """Ask the log: session id 0 for a new session."""

    session_id: int
    command: Command


class Refuse(NamedTuple):
    """Tell the client that its session is over."""

    reason: str


class ReadOnly(NamedTuple):
    """Serve reads alone, without the log: session id 0 for a new session of this node's own."""

    session_id: int
    timeout_ms: int


class Drop(NamedTuple):
    """Close without an answer: another node may serve this client."""

    reason: str


Verdict = Submit | ReadOnly | Refuse | Drop

#: top byte of the sessions that a node without a quorum gives: the log's ids never come so far
_LOCAL_TOP_BYTE: Final = 0x7E

_NOT_SERVING: Final = Drop("this node has no contact to a leader")


def password_of(session_key: bytes, session_id: int) -> bytes:
    """Return the password of a session: any node can compute it, nobody without the key can guess it."""
    message = session_id.to_bytes(8, "big", signed=True)
    return hmac.new(session_key, message, hashlib.sha256).digest()[:PASSWORD_BYTES]


def local_session_id(nonce: int) -> int:
    """Return the id of a session that this node alone knows, because it has no quorum."""
    return _LOCAL_TOP_BYTE << 56 | nonce & ((1 << 56) - 1)


def is_local(session_id: int) -> bool:
    """Tell whether a session was given by a node without a quorum."""
    return session_id >> 56 == _LOCAL_TOP_BYTE


def clamp_timeout(requested_ms: int, options: ServerOptions) -> int:
    """Return the timeout that a session gets."""
    return min(max(requested_ms, options.session_timeout_min_ms), options.session_timeout_max_ms)


def judge_handshake(
    request: ConnectRequest, machine: StateMachine, options: ServerOptions, *, serving: bool
) -> Verdict:
    """Decide about a ConnectRequest.

    Args:
        request: as decoded.
        machine: this node's state.
        options: the limits.
        serving: whether this node has contact to a leader.
    """
    alone = not serving and options.read_only_mode and request.read_only
    if not machine.session_key or not (serving or alone):
        return _NOT_SERVING
    if request.last_zxid_seen > machine.zxid:
        return Drop(f"it has seen zxid 0x{request.last_zxid_seen:x}, this node is at 0x{machine.zxid:x}")
    if request.session_id == 0 and alone:
        return ReadOnly(0, clamp_timeout(request.session_timeout_ms, options))
    if request.session_id == 0:
        return Submit(0, [OP_CREATE_SESSION, clamp_timeout(request.session_timeout_ms, options)])
    expected = password_of(machine.session_key, request.session_id)
    if not hmac.compare_digest(expected, request.password):
        return Refuse(f"wrong password for session 0x{request.session_id & (2**64 - 1):x}")
    if not alone:
        return Submit(request.session_id, [OP_ATTACH])
    if is_local(request.session_id):
        return ReadOnly(request.session_id, clamp_timeout(request.session_timeout_ms, options))
    session = machine.sessions.get(request.session_id)
    if session is None:
        return Drop(f"session 0x{request.session_id:x} is not known here, and nobody can be asked")
    return ReadOnly(session.session_id, session.timeout_ms)
