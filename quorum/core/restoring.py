"""A state that another cluster begins with: what belongs to the old cluster alone goes.

Decides what that is: sessions with their ephemerals, the origins of batches, members, the cluster's id and
the key of the session passwords. All else stays as it was. Zxids and session ids jump, as with a forced
start, beyond all that clients of the old cluster saw. Pure; the same state and zxid give the same state on
every founder.

Source: docs/backup.md.
"""

from __future__ import annotations

from typing import NamedTuple

from quorum.core.machine import FORCED_SESSION_ID_JUMP, FORCED_ZXID_JUMP, StateMachine


class LeftOut(NamedTuple):
    """What went: counts."""

    sessions: int
    ephemerals: int


def begin_anew(machine: StateMachine, last_zxid: int) -> LeftOut:
    """Make a state the one that a founding continues.

    Sessions end as by expiry, in one entry behind the last one that was applied.

    Args:
        machine: the state; no entry is half applied.
        last_zxid: the last one that the old cluster is known to have given, at least the state's.
    """
    sessions = [machine.sessions[session_id] for session_id in sorted(machine.sessions)]
    left_out = LeftOut(len(sessions), sum(len(session.ephemerals) for session in sessions))
    machine.transaction.zxid = last_zxid + FORCED_ZXID_JUMP
    machine.session_counter += FORCED_SESSION_ID_JUMP
    proposals = [["expire", each.session_id, each.nonce, each.last_index] for each in sessions]
    machine.apply_control(machine.applied_index + 1, machine.applied_term, machine.last_stamp_ms, proposals)
    machine.origins.clear()
    machine.cluster_id, machine.session_key, machine.configuration = "", b"", b""
    return left_out
