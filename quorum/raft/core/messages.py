"""Everything that crosses the core's edge: peer messages, stimuli, and what ``ready()`` hands out.

Decides shapes and order contracts only. Every peer message begins with the sender's term, the sender and the
receiver, and every reply says what it answers, so that a receiver knows late, repeated and reordered ones
(Raft §5.1). Messages may be lost, repeated and reordered freely; none of them is hard state. Indexes are
inclusive, offsets count bytes from 0, times are milliseconds of the sender's monotonic clock.
"""

from enum import Enum
from typing import NamedTuple

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import Entry

# --- peer messages


class Append(NamedTuple):
    """The leader's entries after ``prev_index``; empty to tell a commit advance at once."""

    term: int
    sender: int
    receiver: int
    prev_index: int  #: the entry right before ``entries``; 0 before the first
    prev_term: int
    commit_index: int  #: the receiver may commit min(this, prev_index + len(entries)), no more
    probe: bool  #: answer in any case; else only a rise of the durable match is answered
    #: contiguous, from prev_index + 1; the same object for every receiver of one ready()
    entries: tuple[Entry, ...]


class AppendReply(NamedTuple):
    """The follower's durable match, or why an append did not fit."""

    term: int
    sender: int
    receiver: int
    rejected: bool
    prev_index: int  #: of the append that is refused; 0 in an acceptance
    match_index: int  #: durable and equal to the leader's log up to here; 0 in a refusal
    hint_index: int  #: in a refusal: the last index where both logs can still be equal
    hint_term: int  #: term of the entry at ``hint_index`` in the follower's log


class Heartbeat(NamedTuple):
    """Small sign of life; overtakes bulk."""

    term: int
    sender: int
    receiver: int
    commit_index: int  #: min(leader's commit index, receiver's known match)
    sent_ms: float  #: leader's monotonic clock; only echoed
    #: HeartbeatReply.clock_ms of the receiver's last answer on this connection: so far the leader heard it
    heard_ms: float = -1.0
    known_index: int = 0  #: leader's commit index; the receiver judges its lag by it, and commits nothing


class HeartbeatReply(NamedTuple):
    """Answer to one heartbeat; repeats the durable match, which heals lost append replies."""

    term: int
    sender: int
    receiver: int
    sent_ms: float  #: of the heartbeat that is answered
    match_index: int  #: as in AppendReply; 0 while nothing is proven in this term
    clock_ms: float = -1.0  #: sender's monotonic clock; only echoed


class Vote(NamedTuple):
    """Request for a vote, or (``pre``) the question whether one would be given."""

    term: int  #: the term that is campaigned for; with ``pre`` nobody takes it over
    sender: int
    receiver: int
    pre: bool
    transfer: bool  #: the old leader asked for this election: heard leaders do not matter
    last_index: int
    last_term: int
    #: with an empty log: the incarnations of all founders as the sender knows them, ascending ids
    founders: tuple[str, ...] = ()


class VoteReply(NamedTuple):
    """Answer to a vote request."""

    term: int  #: the voter's own term
    sender: int
    receiver: int
    pre: bool
    granted: bool
    asked_term: int  #: Vote.term of the request that is answered


class SnapshotChunk(NamedTuple):
    """Consecutive bytes of one snapshot; one chunk per receiver is outstanding."""

    term: int
    sender: int
    receiver: int
    transfer: int  #: number of the transfer, unique within the leader's term
    snapshot_index: int
    snapshot_term: int
    offset: int
    total_bytes: int  #: of the whole snapshot
    data: bytes  #: the last chunk ends at total_bytes


class SnapshotChunkReply(NamedTuple):
    """Progress of a transfer, or its end."""

    term: int
    sender: int
    receiver: int
    transfer: int
    offset: int  #: next byte that the receiver wants (0: from the start again)
    installed: bool  #: the receiver's log and state reach ``match_index`` durably
    rejected: bool  #: the transfer failed at the receiver and is over
    match_index: int  #: with ``installed``; else 0


class TimeoutNow(NamedTuple):
    """The leader hands over: campaign at once."""

    term: int
    sender: int
    receiver: int


Message = (
    Append
    | AppendReply
    | Heartbeat
    | HeartbeatReply
    | Vote
    | VoteReply
    | SnapshotChunk
    | SnapshotChunkReply
    | TimeoutNow
)


# --- stimuli


class Tick(NamedTuple):
    """Time passed. At least twice per heartbeat interval, or at ``Raft.deadline_ms``."""

    wall_ms: int = 0  #: wall clock, for the stamps of the core's own entries; 0: unknown
    #: for how long the oldest Persist that is not durable has been with the shell; 0: there is none
    undurable_ms: float = 0.0


class Receive(NamedTuple):
    """A peer's message arrived on an authenticated connection."""

    message: Message
    incarnation: str  #: the sender's, proven by the connection's handshake


class PeerUp(NamedTuple):
    """A connection to the peer is ready for messages."""

    node_id: int


class PeerMet(NamedTuple):
    """A peer proved its identity in its hello, let in or not; comes before the PeerUp of that link."""

    node_id: int
    incarnation: str
    founding_term: int | None  #: the term of a founder whose log is empty; None: it founds nothing
    cluster_id: str  #: 32 hex digits; empty while it belongs to no cluster


class PeerDown(NamedTuple):
    """The connection to the peer closed; what was under way may be lost."""

    node_id: int


class Persisted(NamedTuple):
    """``Persist.seq`` and all earlier ones are durable."""

    seq: int


class ChunkRead(NamedTuple):
    """Bytes that a SnapshotRead asked for."""

    receiver: int
    transfer: int
    snapshot_index: int
    snapshot_term: int
    offset: int
    total_bytes: int
    data: bytes


class ChunkReadFailed(NamedTuple):
    """No snapshot can be read; the transfer is over and a later one starts afresh."""

    receiver: int
    transfer: int


class ChunkWritten(NamedTuple):
    """Bytes of a SnapshotWrite (not the last) are written; they need not be durable yet."""

    install: int
    offset: int  #: of the first byte after them


class SnapshotInstalled(NamedTuple):
    """The received snapshot is verified, durable, loaded, and its install record is durable."""

    install: int
    snapshot_index: int
    snapshot_term: int
    stamp_ms: int  #: of the last entry that it covers
    configuration: Configuration | None  #: as of snapshot_index; None as in SnapshotMark


class SnapshotFailed(NamedTuple):
    """The received snapshot could not be written, verified or loaded; nothing of it counts."""

    install: int


class Compacted(NamedTuple):
    """The journal holds entries from here on only; everything before is covered by a durable snapshot."""

    first_index: int


class Transfer(NamedTuple):
    """Hand leadership over."""

    target: int | None  #: None: to the voter that is furthest


class Halt(NamedTuple):
    """The disk is full: acknowledge nothing, take no higher term, vote or entry, do not lead."""

    reason: str


class Resume(NamedTuple):
    """The disk takes writes again."""


Stimulus = (
    Tick
    | Receive
    | PeerUp
    | PeerMet
    | PeerDown
    | Persisted
    | ChunkRead
    | ChunkReadFailed
    | ChunkWritten
    | SnapshotInstalled
    | SnapshotFailed
    | Compacted
    | Transfer
    | Halt
    | Resume
)

# --- what comes in at the start


class HardState(NamedTuple):
    """What must survive a crash besides the log."""

    term: int
    voted_for: int  #: node id, 0 for nobody


class SnapshotMark(NamedTuple):
    """What the core needs to know of the snapshot that the node was loaded from."""

    snapshot_index: int
    snapshot_term: int
    stamp_ms: int
    configuration: Configuration | None  #: None: of a state that was restored for a founding


class DurableLog(NamedTuple):
    """What the journal holds at the start, all of it durable. An empty journal: first 1, last 0."""

    first_index: int  #: at most the snapshot's index + 1
    last_index: int  #: first_index - 1 without an entry
    #: (first index, term) of each run of equal terms, ascending, covering first_index..last_index; it may
    #: begin with (first_index - 1, term) where that is known
    term_runs: tuple[tuple[int, int], ...]
    #: all of CONFIGURATION_KINDS above the snapshot's index, ascending
    configuration_entries: tuple[Entry, ...]
    tail: tuple[Entry, ...]  #: contiguous, ends at last_index; may be empty, then entries are read
    last_stamp_ms: int  #: of the entry at last_index; 0 if there is none


# --- what goes out


class Role(Enum):
    """What a node is in its term (`roles.py` holds the moves between them)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Persist(NamedTuple):
    """One group for the journal. An entry whose index is not above the last supersedes all from its index
    on."""

    seq: int  #: rises by 1; answer with Persisted(seq) when this and all earlier ones are durable
    hard_state: HardState | None  #: None: unchanged
    entries: tuple[Entry, ...]  #: contiguous


class SoftState(NamedTuple):
    """What the shell shows and routes by."""

    role: Role
    term: int
    leader_id: int  #: 0: unknown
    transfer_target: int  #: 0: no transfer under way; no proposal is taken while there is one
    halted: str  #: reason, empty if the node is not halted


class SnapshotRead(NamedTuple):
    """Read a piece of a snapshot for a peer; answer ChunkRead or ChunkReadFailed."""

    receiver: int
    #: the first read of a number picks the newest snapshot and pins it until ``snapshot_releases``
    transfer: int
    offset: int
    bytes_max: int


class SnapshotWrite(NamedTuple):
    """Write a piece of a received snapshot; a new ``install`` number discards what the one before wrote."""

    install: int
    snapshot_index: int
    snapshot_term: int
    offset: int
    total_bytes: int
    data: bytes
    #: then verify, make durable, load, and answer SnapshotInstalled or SnapshotFailed; else ChunkWritten
    last: bool


class Ready(NamedTuple):
    """Everything that the shell has to do now; ``Raft.ready()`` forgets it once returned.

    Order contract:

    1. ``persist`` goes to the journal first, in order of ``seq``; the call need not wait for it.
    2. ``messages`` are sent at once, also while ``persist`` is under way: a leader replicates in parallel
       with its own fsync. What may leave only after an fsync (acknowledgements, votes, anything of a new
       term) is held inside the core and comes out of the ``ready()`` after ``Persisted``.
    3. ``committed`` is applied in order, each entry once, before any later Ready's entries and before
       anything is written for ``snapshot_writes`` of this Ready; `Raft.hand_back` takes back its end.
    4. Nothing committed is handed out between the last SnapshotWrite of a snapshot and its answer.
    """

    persist: Persist | None
    messages: tuple[Message, ...]
    #: next entries to apply, durable here too, bounded by Options.committed_bytes_max; call ready() again
    committed: tuple[Entry, ...]
    soft_state: SoftState | None  #: None: unchanged since the last Ready
    #: the latest in the log, also uncommitted; None: neither it nor ``Raft.linked_members`` changed
    configuration: Configuration | None
    snapshot_reads: tuple[SnapshotRead, ...]
    snapshot_releases: tuple[int, ...]  #: transfers that are over: unpin their snapshots
    snapshot_writes: tuple[SnapshotWrite, ...]
    snapshot_aborts: tuple[int, ...]  #: installs that are over before their last piece: remove their files
