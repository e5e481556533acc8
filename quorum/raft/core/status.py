"""What a node tells about itself.

Decides the shape of the status only. A snapshot of soft and hard state at one instant; nothing in the core
reads it.
"""

from typing import NamedTuple

from quorum.raft.core.messages import Role
from quorum.raft.core.progress import Flow


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
    handed_index: int  #: last committed entry that was handed out for applying
    term_start_index: int  #: of a leader: index of its no-op; 0 otherwise
    configuration_index: int  #: of the latest configuration
    #: until when a current leader is known to have led: when it was heard, or what a majority confirmed
    leader_contact_ms: float
    transfer_target: int
    halted: str
    installing: bool
    cache_bytes: int  #: of the log tail in memory
    peers: tuple[PeerStatus, ...]  #: of a leader, ascending ids
    #: (member id, incarnation) that spoke and does not count, ascending ids
    refused: tuple[tuple[int, str], ...]
