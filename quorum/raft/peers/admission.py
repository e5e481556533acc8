"""Which process may speak for a member: the one whose disk the log knows, and none whose disk was retired.

Decides, for the hello and for connections that stand, whether another incarnation of a node id is refused and
whether it may take the place of the one that is connected. Does not know sockets or how an identity is
proven. The own log may be behind: what it says of the others is held against a member of the cluster only
while a leader is heard, or else a node that slept through a replacement could never hear of it.

Soft state only: a view of the configurations at one instant. Source: raft.md, Identity and membership.
"""

from __future__ import annotations

from typing import NamedTuple

from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.hello import PeerIdentity, Refusal, RefusalReason


class Admission(NamedTuple):
    """What decides who is let in now."""

    latest: Configuration | None = None  #: of the log, committed or not
    applied: Configuration | None = None  #: what it retired stays retired
    leader_id: int = 0  #: that is heard; this node itself if it leads; 0: none is heard

    def refusal(self, other: PeerIdentity) -> Refusal | None:
        """Return why this incarnation may not speak for its node id, or None."""
        if self.applied is not None and other.incarnation in self.applied.retired:
            return _retired(other, self.applied.member(other.node_id))
        if self.latest is None:
            return None
        # A disk that was let in has the log of the cluster before it has applied that it belongs to it.
        belongs = other.cluster_id or other.log_cluster_id == self.latest.cluster_id
        if belongs and self.leader_id in (0, other.node_id):
            return None
        if other.incarnation in self.latest.retired:
            return _retired(other, self.latest.member(other.node_id))
        member = self.latest.member(other.node_id)
        if member is not None and member.incarnation not in ("", other.incarnation):
            return _another_disk(other, member.incarnation)
        return None

    def refusal_beside(self, other: PeerIdentity, present: PeerIdentity) -> Refusal | None:
        """Return why this incarnation may not take the place of the one that is connected, or None.

        A process that is started again has the same incarnation and always may.
        """
        if other.incarnation == present.incarnation or not self.leader_id or self.latest is None:
            return None
        member = self.latest.member(present.node_id)
        recorded = member is not None and member.incarnation == present.incarnation
        if recorded or present.node_id == self.leader_id:
            return _another_disk(other, present.incarnation)
        return None


def _retired(other: PeerIdentity, member: Member | None) -> Refusal:
    if member is None:
        then = "stop the process; it is no member any more (`quorate members add` lets a new disk in)"
    elif member.incarnation:
        then = f"stop the process: the disk {member.incarnation} is that of node {other.node_id} now"
    else:
        then = "stop the process, empty its data directory and start it with --join"
    remedy = f"this disk of node {other.node_id} was replaced and never counts again: {then}"
    return Refusal(RefusalReason.RETIRED, "incarnation", "not a retired one", other.incarnation, remedy)


def _another_disk(other: PeerIdentity, known: str) -> Refusal:
    remedy = (
        f"the cluster knows node {other.node_id} by another disk: if that one is lost run `quorate members "
        f"replace {other.node_id}` and start the node with --join, else stop this process"
    )
    return Refusal(RefusalReason.ANOTHER_DISK, "incarnation", known, other.incarnation, remedy)
