"""A cluster is founded once: what a node that belongs to none yet may do beside one that exists, or may.

Decides whom a founder waits for, which cluster it would rival by founding, leading, voting or acknowledging,
and which founding it must not give up. Does not know elections or replication, which ask. Soft state only:
what peers told in hellos, heartbeats and votes; the shell remembers on its disk that a cluster exists.

What stands in a peer's log only may have been acknowledged: a claim. A founding commits once all who elected
the founder hold it: they are just a majority, and nobody else is recorded before. So an elector with an empty
log, or one that elected another founder too, proves that it did not commit: that refutes the claim. A disk
that was lost was another incarnation, and refutes nothing.

Source: raft.md, Identity and membership; the rules are our own (docs/consensus.md).
"""

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import Claim, ClusterMet, Heartbeat, Role, Vote
from quorum.raft.core.node import Node

#: last digits of an incarnation that stand in a claim
ELECTOR_DIGITS = 16


def own_claim(node: Node) -> Claim | None:
    """Return what this node's log says of a cluster; None before the founding."""
    latest = node.history.latest
    if latest is None:
        return None
    founding = node.history.at(1) if node.commit_index == 0 else None
    return Claim(latest.cluster_id, "" if founding is None else _electors(founding))


def _electors(founding: Configuration) -> str:
    recorded = (member.incarnation[-ELECTOR_DIGITS:] for member in founding.voters.values())
    return "".join(sorted(filter(None, recorded)))


def _elected(claim: Claim, incarnation: str) -> bool:
    """Tell whether a node was one of the electors."""
    return incarnation[-ELECTOR_DIGITS:] in _split(claim.electors)


def _share_elector(one: Claim, other: Claim) -> bool:
    return not _split(one.electors).isdisjoint(_split(other.electors))


def _split(electors: str) -> set[str]:
    return {electors[place : place + ELECTOR_DIGITS] for place in range(0, len(electors), ELECTOR_DIGITS)}


def meet_cluster(node: Node, told: ClusterMet) -> None:
    """Note that a peer's cluster exists, or may; a node that belongs to none stops what could found another.

    A founder that lost its disk and one that never ran are a majority of three, and both are empty: without
    this rule they would found a second cluster, and what the first one acknowledged would be gone.
    """
    if told.cluster_id:
        node.met[told.node_id] = told.cluster_id
    node.claims.pop(told.node_id, None)
    take_claim(node, told.node_id, Claim(told.log_cluster_id, told.electors))


def take_claim(node: Node, peer_id: int, claim: Claim) -> None:
    """Note what a peer's log says of a cluster, if it says anything."""
    if node.commit_index > 0:
        return
    if claim.cluster_id:
        node.claims[peer_id] = claim
    rivalled = rivalled_cluster(node)
    if rivalled and node.role is not Role.FOLLOWER:
        node.become_follower(node.term, 0, f"node {peer_id} told of the cluster {rivalled}")


def hear_of_leader(node: Node, heartbeat: Heartbeat) -> None:
    """Note what the log of a leader names: its hello may be older than that.

    It is no claim: as long as only the leader holds the founding, nothing is acknowledged, and whoever holds
    it besides claims it.
    """
    if node.commit_index == 0 and heartbeat.cluster_id:
        node.named[heartbeat.sender] = heartbeat.cluster_id, heartbeat.founding_id


def _known_rival(node: Node) -> str:
    own = node.history.latest.cluster_id if node.history.latest is not None else ""
    return next((met for met in node.met.values() if met not in ("", own)), "")


def rivalled_cluster(node: Node) -> str:
    """Return the id of a cluster that this node would rival by founding or leading one; "" if none is known.

    The log of a node without commits is empty, or holds a founding that nobody may ever have seen. What
    exists for certain outweighs that one. Beside a claim nobody with an empty log founds, unless it refutes
    it; between two logs the rules of Raft decide.
    """
    if node.commit_index > 0:
        return ""
    known = _known_rival(node)
    if known or node.log.last_index > 0:
        return known
    own = node.identity.incarnation
    return next((claim.cluster_id for claim in node.claims.values() if not _elected(claim, own)), "")


def may_vote_for(node: Node, vote: Vote, incarnation: str) -> bool:
    """Return whether this node may vote for a candidate without helping to found or lead a rival.

    Args:
        node: the voter.
        vote: the request; its sender's log is as it says.
        incarnation: the sender's.
    """
    if node.commit_index > 0:
        return True
    if _known_rival(node):
        return _is_of_known_cluster(node, vote.sender)
    if node.log.last_index > 0:
        return True
    theirs = node.claims.get(vote.sender)
    return all(
        claim.cluster_id == vote.cluster_id
        or _elected(claim, node.identity.incarnation)
        or _elected(claim, incarnation)
        or (theirs is not None and theirs.cluster_id == vote.cluster_id and _share_elector(claim, theirs))
        for claim in node.claims.values()
    )


def _is_of_known_cluster(node: Node, peer_id: int) -> bool:
    """Return whether a peer is of a cluster that is known for certain."""
    claim = node.claims.get(peer_id)
    named, _ = node.named.get(peer_id, ("", ""))
    told = {node.met.get(peer_id, ""), named, "" if claim is None else claim.cluster_id}
    return not told.isdisjoint(filter(None, node.met.values()))


def follows_rival(node: Node) -> bool:
    """Return whether the leader, if there is one, may lead a rival of a cluster that this node heard of."""
    if node.commit_index > 0:
        return False
    if _known_rival(node):
        return not _is_of_known_cluster(node, node.leader_id)
    own = own_claim(node)
    if own is None:
        return False
    return any(
        claim.cluster_id != own.cluster_id and not _share_elector(claim, own)
        for claim in node.claims.values()
    )


def waits_to_found(node: Node) -> bool:
    """Return whether this founder of an empty log should hear of more founders first: one of them may
    belong to a cluster already."""
    if node.log.last_index > 0 or node.now_ms >= node.founding_ms:
        return False
    own = node.identity
    return any(founder not in node.met for founder in own.founders if founder != own.node_id)


def has_other_founding(node: Node, leader_id: int) -> bool:
    """Return whether the first entry of the leader's log founds another cluster than this node's own first
    entry, as far as that is known; nothing of the own log is known to be committed then."""
    own = node.history.at(1) if node.commit_index == 0 else None
    _, theirs = node.named.get(leader_id, ("", ""))
    return own is not None and theirs not in ("", own.cluster_id)


def check_founding(node: Node, other: Configuration) -> None:
    """Refuse to give up a founding for one that other disks made: both may have acknowledged writes.

    A founding that did not commit gives way to another one: then the two share an elector.

    Args:
        node: whose log may begin with a founding that is not known to be committed.
        other: what a leader's founding says.

    Raises:
        InvariantError: names both clusters. Fatal.
    """
    own = node.history.at(1)
    if node.commit_index > 0 or own is None or own.cluster_id == other.cluster_id:
        return
    if not _share_elector(Claim("", _electors(own)), Claim("", _electors(other))):
        raise InvariantError(
            f"the log of this data directory founds the cluster {own.cluster_id}; the leader's founded "
            f"{other.cluster_id} after a disk of the first one's founders was lost. Writes that the first "
            "one acknowledged may be left here only: to keep them stop the other nodes and start this one "
            "with --force-new-cluster, else empty this data directory"
        )
