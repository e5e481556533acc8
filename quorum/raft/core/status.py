"""What a node tells about itself.

Decides what is shown, nothing else. A snapshot of soft and hard state at one instant; nothing in the core
reads it.
"""

from typing import NamedTuple

from quorum.raft.core.messages import Role
from quorum.raft.core.node import Node
from quorum.raft.core.progress import Flow, Progress
from quorum.raft.core.roles import Leader


class PeerStatus(NamedTuple):
    """One peer as its leader sees it."""

    node_id: int
    incarnation: str  #: as heard or recorded; empty if neither
    voter: bool
    counts: bool  #: its durable match counts for commits
    flow: Flow
    match_index: int
    next_index: int
    inflight_bytes: int
    contact_ms: float  #: last message of this incarnation, monotonic
    snapshot_offset: int | None  #: bytes that it has of the snapshot on its way


class Status(NamedTuple):
    """One node."""

    node_id: int
    role: Role
    term: int
    leader_id: int  #: 0: unknown
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    known_index: int  #: the highest commit index that it heard of, its own included
    handed_index: int  #: last committed entry that was handed out for applying
    term_start_index: int  #: of a leader: index of its no-op; 0 otherwise
    configuration_index: int  #: of the latest configuration
    configuration_committed: bool  #: the latest configuration is known to be committed
    voters: tuple[int, ...]  #: of the latest configuration, ascending ids; empty before the founding
    learners: tuple[int, ...]  #: likewise
    #: the latest configuration has this node, and by this disk if it is a voter
    member: bool
    transfer_target: int
    halted: str
    installing: bool
    cache_bytes: int  #: of the log tail in memory
    peers: tuple[PeerStatus, ...]  #: of a leader, ascending ids


def describe(node: Node) -> Status:
    """Return what this node is and knows."""
    leader = node.role if isinstance(node.role, Leader) else None
    progress = leader.progress if leader is not None else {}
    latest, own = node.history.latest, node.identity
    return Status(
        node_id=own.node_id,
        role=node.role.kind,
        term=node.term,
        leader_id=node.role.leader_id,
        first_index=node.log.first_index,
        last_index=node.log.last_index,
        durable_index=node.log.durable_index,
        commit_index=node.commit_index,
        known_index=max(node.commit_index, node.known_index),
        handed_index=node.handed_index,
        term_start_index=leader.term_start_index if leader is not None else 0,
        configuration_index=node.history.latest_index,
        configuration_committed=node.history.latest_index <= node.commit_index,
        voters=tuple(latest.voters) if latest is not None else (),
        learners=tuple(latest.learners) if latest is not None else (),
        member=latest is not None and latest.has(own.node_id, own.incarnation),
        transfer_target=node.role.transfer_target,
        halted=node.halted,
        installing=node.receiving.installing,
        cache_bytes=node.log.cache_bytes,
        peers=tuple(_describe_peer(node, node_id, peer) for node_id, peer in progress.items()),
    )


def _describe_peer(node: Node, node_id: int, peer: Progress) -> PeerStatus:
    latest = node.history.latest
    return PeerStatus(
        node_id=node_id,
        incarnation=peer.incarnation,
        voter=latest is not None and node_id in latest.voters,
        counts=node.vote_counts(node_id, peer.incarnation),
        flow=peer.flow,
        match_index=peer.match_index,
        next_index=peer.next_index,
        inflight_bytes=peer.inflight_bytes,
        contact_ms=peer.contact_ms,
        snapshot_offset=peer.outgoing.offset if peer.outgoing is not None else None,
    )
