"""What ends by time: sessions that are silent, and nodes past their lifetime.

The leader proposes both, and the state machine judges them again when they are applied; a follower reports to
the leader which sessions it heard. Soft state only.

Source: docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import logging
from typing import Any

import msgpack

from quorum.core.machine import StateMachine
from quorum.core.reaping import Rounds
from quorum.core.session_tracker import SessionTracker
from quorum.errors import NotLeaderError, ProposalRefusedError, shown
from quorum.node.soft_limits import SoftLimits
from quorum.platform.runtime import Runtime
from quorum.raft.core.entry import EntryKind
from quorum.raft.engine.engine import Engine
from quorum.raft.requests.origins import SessionTouches
from quorum.raft.requests.payloads import CONTROL_FORMAT

log = logging.getLogger("quorate.replica")

#: sessions that one expiry entry names at most; the others come with the next
EXPIRIES_PER_ENTRY_MAX = 1000
#: sessions that one report to the leader names at most; the others come with the next
TOUCHES_PER_REPORT_MAX = 10_000
#: deletions of containers and TTL nodes that one entry holds at most, and fewer if their paths are as long as
#: a batch may be; the others come with the next
REAPS_PER_ENTRY_MAX = 1000


class Expiry:
    """Deadlines of sessions and lifetimes of nodes, as this node's role has it keep them."""

    def __init__(
        self, engine: Engine, runtime: Runtime, batch_bytes_max: int, container_check_interval_ms: float
    ) -> None:
        """Begin as a follower that heard nobody; the numbers are those of `NodeReplica`."""
        self.sessions = SessionTracker()
        self._engine = engine
        self._runtime = runtime
        self._batch_bytes_max = batch_bytes_max
        self._reaping = Rounds(container_check_interval_ms)
        self._soft_limits = SoftLimits()

    def become_leader(self, machine: StateMachine, now_ms: float) -> None:
        """Give every session its full timeout."""
        timeouts_ms = [(session.session_id, session.timeout_ms) for session in machine.sessions.values()]
        self.sessions.become_leader(timeouts_ms, now_ms)
        self._reaping.restart(now_ms)

    def receive(self, touches: SessionTouches) -> None:
        """Take a follower's report."""
        if self.sessions.leading:
            now_ms = self._runtime.monotonic_ms()
            for session_id in touches.session_ids:
                self.sessions.touched(session_id, now_ms)

    def tick(self, machine: StateMachine, now_ms: float, stall_ms: float) -> None:
        """Propose what is due, on a leader that keeps deadlines; a stall moves these."""
        if stall_ms:
            self.sessions.add_stall(stall_ms)
        if self._engine.accepts_proposals:
            self._expire(machine, now_ms)
            self._reap(machine, now_ms)
            self._soft_limits.look(machine.tree.quotas, now_ms)

    def report(self, leader: int, now_ms: float) -> None:
        """Tell the leader which sessions were heard here."""
        engine = self._engine
        touched = self.sessions.take_report(TOUCHES_PER_REPORT_MAX, now_ms, engine.heard_by_leader_ms)
        if touched:
            engine.send(SessionTouches(engine.term, engine.node_id, leader, tuple(touched)))

    def _expire(self, machine: StateMachine, now_ms: float) -> None:
        judged_index = machine.applied_index
        due = self.sessions.due(now_ms, EXPIRIES_PER_ENTRY_MAX)
        sessions = machine.sessions
        proposals = [["expire", sid, sessions[sid].nonce, judged_index] for sid in due if sid in sessions]
        if proposals:
            log.info("proposing to expire %d sessions that were silent: %s", len(proposals), _ids(due))
            self._propose(proposals)

    def _reap(self, machine: StateMachine, now_ms: float) -> None:
        """Propose the deletion of containers and TTL nodes that are due."""
        stamp_ms = max(self._runtime.wall_ms(), machine.last_stamp_ms)
        due = self._reaping.look(machine.tree, now_ms, stamp_ms, REAPS_PER_ENTRY_MAX, self._batch_bytes_max)
        if due:
            log.info("proposing to delete %d containers and TTL nodes: %s, …", len(due), shown(due[0][0]))
            self._propose([["reap", path, czxid] for path, czxid in due])

    def _propose(self, proposals: list[list[Any]]) -> None:
        """Append proposals of this leader; what it cannot append stays until the next round."""
        try:
            self._engine.propose(EntryKind.CONTROL, msgpack.packb([CONTROL_FORMAT, proposals]))
        except NotLeaderError as error:
            log.info("left what is due to the next leader: %s", error)
        except ProposalRefusedError as error:
            # A path that a member with larger limits let in.
            log.error("left what is due as it is: %s", error)


def _ids(session_ids: list[int]) -> str:
    """Print the first few session ids as ZooKeeper's tools do."""
    head = ", ".join(f"0x{session_id:x}" for session_id in session_ids[:5])
    return head if len(session_ids) <= 5 else f"{head}, …"
