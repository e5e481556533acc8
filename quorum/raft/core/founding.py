"""A cluster is founded once: by all of its founders, each with an empty log.

A log is empty here that has no configuration: it may begin behind a restored state, which the founders then
share, as their common cluster id says.

Decides whom a founder waits for, and whether two founders mean the same founding. Does not know elections,
which ask. Soft state only: what peers proved in their hellos.

Each founding names the incarnations of all founders. A founder that votes in one has heard from every
founder, since its own disk was formatted, that its log is empty. So a committed founding is the only one, as
long as one founder that holds it kept its disk: a founder with a new disk that the others need for a majority
cannot get the word of that one (docs/internals/consensus.md).
"""

from quorum.raft.core.messages import PeerMet, Role
from quorum.raft.core.node import Node


def meet(node: Node, met: PeerMet) -> None:
    """Note what a hello says; the own log is empty."""
    node.clusters.pop(met.node_id, None)
    own, term = node.identity, met.founding_term
    if term is not None and met.cluster_id != own.cluster_id:
        # One of the two has a restored state, and the other one another or none.
        term = None
    if met.cluster_id and term is None:
        node.clusters[met.node_id] = met.cluster_id
    known = dict(node.founding)
    node.founding.pop(met.node_id, None)
    if term is not None and met.node_id in own.founders:
        node.founding[met.node_id] = met.incarnation
        is_new = known.get(met.node_id) != met.incarnation
        if is_new and 0 < term >= node.term and not node.voted_for:
            # The own disk may be a new one: the one before it may have voted in any term up to that one.
            node.become_follower(term + 1, 0, f"node {met.node_id} founds in an older term")
    if node.founding != known and node.role.kind is not Role.FOLLOWER:
        node.become_follower(node.term, 0, f"node {met.node_id} is another founder than before")


def may_found(node: Node) -> bool:
    """Return whether this node, with an empty log, may campaign and vote for a founding."""
    return not node.clusters and not missing_founders(node)


def missing_founders(node: Node) -> tuple[int, ...]:
    """Return the founders that this node has to hear of before it may found, ascending ids."""
    return tuple(sorted(founder for founder in node.identity.founders if founder not in node.founding))


def founders_of(node: Node) -> tuple[str, ...]:
    """Return what a request for votes says of the founders: nothing once the log has the founding."""
    if node.history.latest is not None:
        return ()
    return tuple(incarnation for _, incarnation in sorted(node.founding.items()))
