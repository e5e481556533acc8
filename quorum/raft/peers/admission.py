"""Which process may speak for a member: the one whose disk the log knows, and none whose disk was retired.

Decides, for the hello and for open connections, whether an incarnation of a node id is refused. Does
not know sockets or how an identity is proven. The own log may lag: what it says of the others is held
against them only while a leader is heard, or else a node that slept through a replacement could never hear of
it.

Soft state only: a view of the configurations at one instant. Source: docs/internals/consensus.md,
"Membership".
"""

from __future__ import annotations

from typing import NamedTuple

from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.hello import PeerIdentity, Refusal, RefusalReason


class Admission(NamedTuple):
    """What decides which nodes are let in now.

    ============================== ====================================================
    a process with a disk that …   is refused
    ============================== ====================================================
    is retired as of what applied  always
    is retired, or not the voter's while another node is heard that leads
    is not the leader's            while the leader is connected
    ============================== ====================================================

    So is a build that does not support the feature level of the applied state, whatever its disk.
    """

    latest: Configuration | None = None  #: of the log, committed or not
    applied: Configuration | None = None  #: what it retired stays retired
    leader_id: int = 0  #: that is heard; this node itself if it leads; 0: none is heard
    feature_level: int = 1  #: of the applied state

    def refusal(self, other: PeerIdentity, present: PeerIdentity | None = None) -> Refusal | None:
        """Return why this incarnation may not speak for its node id, or None.

        Args:
            other: the node that says hello, or is connected.
            present: the node that speaks for that id on an open connection; None: no other does.
        """
        if other.feature_level < self.feature_level:
            return _too_old(other, self.feature_level)
        disk, node_id = other.incarnation, other.node_id
        if self.applied is not None and disk in self.applied.retired:
            return _retired(other, self.applied.member(node_id))
        if self.latest is None or not self.leader_id:
            return None
        if node_id == self.leader_id:
            # The log may not know its disk yet.
            if present is None or present.incarnation == disk:
                return None
            return _another_disk(other, present.incarnation)
        if disk in self.latest.retired:
            return _retired(other, self.latest.member(node_id))
        voter = self.latest.voters.get(node_id)
        if voter is not None and voter.incarnation != disk:
            return _another_disk(other, voter.incarnation)
        return None


def _retired(other: PeerIdentity, member: Member | None) -> Refusal:
    if member is None:
        then = "stop the process; it is not a member any more (`quorate members add` lets a new disk in)"
    elif member.incarnation:
        then = f"stop the process: the disk {member.incarnation} is that of node {other.node_id} now"
    else:
        then = "stop the process, empty its data directory and start it with --join"
    remedy = f"this disk of node {other.node_id} was replaced and never counts again: {then}"
    return Refusal(RefusalReason.RETIRED, "incarnation", "not a retired one", other.incarnation, remedy)


def _too_old(other: PeerIdentity, feature_level: int) -> Refusal:
    remedy = f"update node {other.node_id} to the build of the others; its data directory stays as it is"
    wanted, found = f"at least {feature_level}", f"up to {other.feature_level}"
    return Refusal(RefusalReason.FEATURE_LEVEL, "supported feature level", wanted, found, remedy)


def _another_disk(other: PeerIdentity, known: str) -> Refusal:
    remedy = (
        f"the cluster knows node {other.node_id} by another disk: if that one is lost run `quorate members "
        f"replace {other.node_id}` and start the node with --join, else stop this process"
    )
    return Refusal(RefusalReason.ANOTHER_DISK, "incarnation", known, other.incarnation, remedy)
