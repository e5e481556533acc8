"""A state that another cluster begins with: what belongs to the old cluster alone goes.

Decides what that is: sessions with their ephemerals, the origins of batches, members, the cluster's id and
the key of the session passwords, and the place in its log. All else stays as it was. Zxids and session ids
jump, as with a forced start, beyond all that clients of the old cluster saw, or of an earlier attempt. Pure;
the state of a transaction becomes the same on every founder, whichever entries behind it were applied
besides, but for the feature level.

Source: docs/operate/backup.md.
"""

from __future__ import annotations

from typing import NamedTuple

from quorum.core.machine import DIGEST_BYTES, FORCED_SESSION_ID_JUMP, FORCED_ZXID_JUMP, StateMachine


class LeftOut(NamedTuple):
    """What went: counts."""

    sessions: int
    ephemerals: int


def begin_anew(machine: StateMachine, last_zxid: int, stamp_ms: int, attempt: int = 1) -> LeftOut:
    """Make a state the one that a founding continues, of entry 1 and term 1.

    Sessions end as by expiry, in that entry.

    Args:
        machine: the state; no entry is half applied.
        last_zxid: the last one that the old cluster is known to have given, at least the state's.
        stamp_ms: of the state's last transaction.
        attempt: counts what is made of one backup, from 1; zxids and session ids jump so many times.
    """
    sessions = [machine.sessions[session_id] for session_id in sorted(machine.sessions)]
    left_out = LeftOut(len(sessions), sum(len(session.ephemerals) for session in sessions))
    machine.transaction.zxid = last_zxid + attempt * FORCED_ZXID_JUMP
    machine.session_counter += attempt * FORCED_SESSION_ID_JUMP
    proposals = [["expire", each.session_id, each.nonce, each.last_index] for each in sessions]
    machine.applied_index, machine.last_stamp_ms = 0, stamp_ms
    machine.state_digest = machine.apply_digest = bytes(DIGEST_BYTES)
    machine.apply_control(1, 1, stamp_ms, proposals)
    machine.origins.clear()
    machine.cluster_id, machine.session_key, machine.configuration = "", b"", b""
    return left_out
