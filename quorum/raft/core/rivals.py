"""A cluster is founded once: what a node that belongs to none yet may do beside one that exists.

Decides whom a founder waits for, which cluster it would rival by founding, leading, voting or acknowledging,
and which founding it must not give up. Does not know elections or replication, which ask. Soft state only:
what peers told in their hellos and heartbeats; the shell remembers on its disk that a cluster exists.

Source: raft.md, Identity and membership; the rules are our own (docs/consensus.md).
"""

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import ClusterMet, Role
from quorum.raft.core.node import Node


def meet_cluster(node: Node, told: ClusterMet) -> None:
    """Note that a peer's cluster exists, or may; a node that belongs to none stops what could found another.

    A founder that lost its disk and one that never ran are a majority of three, and both are empty: without
    this rule they would found a second cluster, and what the first one acknowledged would be gone.
    """
    if told.cluster_id:
        node.met[told.node_id] = told.cluster_id
    node.claimed[told.node_id] = told.log_cluster_id
    if node.role is not Role.FOLLOWER and rivalled_cluster(node):
        story = f"node {told.node_id} told of the cluster {told.cluster_id or told.log_cluster_id}"
        node.become_follower(node.term, 0, story)


def rivalled_cluster(node: Node) -> str:
    """Return the id of a cluster that this node would rival by founding or leading one; "" if none is known.

    The log of a node without commits is empty, or holds a founding that nobody may ever have seen. What
    exists for certain outweighs that one. What stands in a peer's log only may have been acknowledged, so
    nobody with an empty log founds beside it; between two logs the rules of Raft decide.
    """
    if node.commit_index > 0:
        return ""
    own = node.history.latest.cluster_id if node.history.latest is not None else ""
    known = next((met for met in node.met.values() if met not in ("", own)), "")
    if known or node.log.last_index > 0:
        return known
    return next(filter(None, node.claimed.values()), "")


def tells_of_a_cluster(node: Node, peer_id: int) -> bool:
    """Return whether a peer is of a cluster that was met; while none is known for certain, of any."""
    known = set(filter(None, node.met.values()))
    told = node.met.get(peer_id) or node.claimed.get(peer_id, "")
    return told in known if known else bool(told)


def follows_rival(node: Node) -> bool:
    """Return whether the leader, if there is one, may lead a rival of the cluster that this node met."""
    return bool(rivalled_cluster(node)) and not tells_of_a_cluster(node, node.leader_id)


def waits_to_found(node: Node) -> bool:
    """Return whether this founder of an empty log should hear of more founders first: one of them may
    belong to a cluster already."""
    if node.log.last_index > 0 or node.now_ms >= node.founding_ms:
        return False
    own = node.identity
    return any(founder not in node.met for founder in own.founders if founder != own.node_id)


def check_founding(node: Node, other: Configuration) -> None:
    """Refuse to give up a founding for one that other disks made: both may have acknowledged writes.

    A founding that was not committed gives way to another one of the same disks. Two majorities share a node;
    if the two recorded it with different disks, one was lost in between, and what it acknowledged with it.

    Args:
        node: whose log may begin with a founding that is not known to be committed.
        other: what a leader's founding or snapshot says.

    Raises:
        InvariantError: names both clusters and the node whose disk was lost. Fatal.
    """
    own = node.history.at(1)
    if node.commit_index > 0 or own is None or own.cluster_id == other.cluster_id:
        return
    for node_id, member in own.voters.items():
        theirs = other.member(node_id)
        if theirs is None or not member.incarnation or member.incarnation in other.retired:
            continue
        if theirs.incarnation not in ("", member.incarnation):
            raise InvariantError(
                f"the log of this data directory founds the cluster {own.cluster_id}; the leader's founded "
                f"{other.cluster_id} after the disk of node {node_id} was lost. Writes that the first one "
                "acknowledged may be left here only: to keep them stop the other nodes and start this one "
                "with --force-new-cluster, else empty this data directory"
            )
