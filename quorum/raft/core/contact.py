"""Until when this node and the others are known to have heard each other, in the current term.

A follower may hear a leader that does not hear it, and that lets sessions expire whose clients talk here; and
what a node reads after a pause of its own may be old. So only what the other one echoes is contact: to a
follower the clock of its last answer, to a leader the time of its heartbeat. Soft state.

Source: docs/consensus.md, Who is in contact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from quorum.raft.core.configuration import quorum_size
from quorum.raft.core.messages import Heartbeat, HeartbeatReply, Role, SoftState


class Contacts:
    """What was echoed, by member."""

    def __init__(self) -> None:
        #: {node id: monotonic ms until when it is known to have heard this node}
        self._heard_ms: dict[int, float] = {}

    def role_changed(
        self, previous: SoftState, soft_state: SoftState, peers: Iterable[int], now_ms: float
    ) -> None:
        """Begin anew in a new term; a new leader, found or become, counts as heard now."""
        heard_ms = self._heard_ms
        if previous.term != soft_state.term:
            heard_ms.clear()
        if previous.leader_id != soft_state.leader_id or not heard_ms:
            # A new leader grants every session its full timeout; one that is found again grants nothing.
            followed = (soft_state.leader_id,) if soft_state.leader_id else ()
            for node_id in peers if soft_state.role is Role.LEADER else followed:
                heard_ms.setdefault(node_id, now_ms)

    def hear(self, message: Heartbeat | HeartbeatReply, *, leads: bool, now_ms: float) -> None:
        """Take what a member of the current term echoes to a leader, or to a follower."""
        if isinstance(message, HeartbeatReply):
            if not leads:
                return
            echoed_ms, otherwise_ms = message.sent_ms, float("-inf")
        else:
            if leads:
                return
            echoed_ms, otherwise_ms = message.heard_ms, float("inf")
        heard_ms = min(echoed_ms, now_ms)
        if heard_ms > self._heard_ms.get(message.sender, otherwise_ms):
            self._heard_ms[message.sender] = heard_ms

    def heard_ms(self, node_id: int) -> float:
        """Return until when a member is known to have heard this node; -inf if it never has."""
        return self._heard_ms.get(node_id, float("-inf"))

    def majority_heard_ms(self, voters: Collection[int], node_id: int, now_ms: float) -> float:
        """Return until when a majority of the voters is known to have heard this leader, itself included."""
        others = sorted((self.heard_ms(voter) for voter in voters if voter != node_id), reverse=True)
        needed = quorum_size(len(voters)) - len(voters) + len(others)
        return others[needed - 1] if needed else now_ms
