"""The state of one node and the moves that every part of the core shares.

Decides role changes, terms, what is counted, what commits, and what is handed out. Does not know the
messages' meaning: `elections.py`, `following.py`, `leading.py`, `sending.py` and `receiving.py` are functions
over this state. Hard state: ``term``, ``voted_for`` and the log; all else is soft.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import Entry, EntryKind, size_bytes
from quorum.raft.core.errors import InvariantError, NotLeaderError
from quorum.raft.core.history import ConfigurationHistory
from quorum.raft.core.log import EntryReader, Log
from quorum.raft.core.messages import (
    DurableLog,
    HardState,
    Message,
    Role,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
)
from quorum.raft.core.options import Options
from quorum.raft.core.outbox import Outbox
from quorum.raft.core.roles import NEVER, Candidate, Follower, Leader, check_role_move
from quorum.raft.core.timing import ElectionTimer, Randomness
from quorum.raft.core.transfers import Receiving, Sending


class NodeIdentity(NamedTuple):
    """This node's id and disk, and the nodes with which it may found a cluster."""

    node_id: int
    #: 32 hex digits
    incarnation: str
    #: {node id: address}; empty for a node that joins and so never votes before the log names it
    founders: Mapping[int, str]
    #: builds the payload of entry 1 from its configuration (adds cluster id and session key)
    found: Callable[[Configuration], bytes]
    #: of a restored state that is founded anew: the other founders have the same; else not looked at
    cluster_id: str = ""


class Node:
    """Everything that one node knows. The modules around it change it; ``Raft`` is its only owner."""

    def __init__(
        self,
        *,
        identity: NodeIdentity,
        options: Options,
        hard_state: HardState,
        durable: DurableLog,
        mark: SnapshotMark | None,
        reader: EntryReader,
        rng: Randomness,
        now_ms: float,
    ) -> None:
        """Start as a follower that has heard nobody."""
        self.identity = identity
        self.options = options
        self.now_ms = now_ms
        self.wall_ms = 0  #: wall clock at the last tick; 0: unknown
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self.log = Log(durable, mark, reader, options.log_cache_bytes_max)
        self.history = ConfigurationHistory(mark, durable.configuration_entries)
        if self.log.last_term > self.term:
            raise InvariantError(
                f"the log ends in term {self.log.last_term} but the hard state is of term {self.term}"
            )
        self.commit_index = mark.snapshot_index if mark is not None else 0
        self.known_index = self.commit_index  #: the highest commit index that this node heard of
        self.handed_index = self.commit_index  #: last committed entry that was handed out for applying
        self.matched_index = 0  #: equal to the log of this term's leader up to here
        self.role: Follower | Candidate | Leader = Follower()
        self.timer = ElectionTimer(options, rng, now_ms)
        #: with an empty log: {founder: its incarnation}, of those whose log is empty by their last hello
        self.founding = {identity.node_id: identity.incarnation} if identity.founders else {}
        self.clusters: dict[int, str] = {}  #: with an empty log: {peer: its cluster id, by its last hello}
        self.halted = ""  #: reason
        self.outbox = Outbox(options.outbox_messages_max)
        self.sending = Sending()
        self.receiving = Receiving()

    # --- roles

    def as_leader(self) -> Leader:
        """Return what this node knows as a leader, for what only a leader may be asked."""
        if not isinstance(self.role, Leader):
            story = f"node {self.identity.node_id} is a {self.role.kind.value}"
            raise NotLeaderError(story, self.role.leader_id)
        return self.role

    def become_follower(self, term: int, leader_id: int, story: str) -> None:
        """Follow in ``term``; a higher one becomes durable before anything of it leaves.

        Args:
            term: the term to be in, at least the current one.
            leader_id: its leader, 0 if unknown.
            story: why, for the message of a forbidden move.
        """
        role = self.role
        check_role_move(role.kind, Role.FOLLOWER, story)
        if isinstance(role, Leader):
            if self.commit_index >= role.term_start_index:
                self.timer.elections = 0
            for peer in role.progress.values():
                self.sending.release(peer.outgoing)
        if not isinstance(role, Follower):
            self.timer.restart(self.now_ms)
        if not isinstance(role, Follower) or term > self.term or leader_id != role.leader_id:
            self.role = Follower(leader_id)
        if term > self.term:
            self._enter_term(term, 0)
        if leader_id and self.timer.echoed_ms == NEVER:
            # A new leader grants every session its full timeout; one that is found again grants nothing.
            self.timer.echoed_ms = self.now_ms

    def become_candidate(self, pre: bool, story: str) -> Candidate:
        """Begin an attempt: the pre-vote in the current term, or the election in the next one."""
        kind = Role.PRE_CANDIDATE if pre else Role.CANDIDATE
        check_role_move(self.role.kind, kind, story)
        self.role = attempt = Candidate(kind, len(self.voter_ids()))
        self.timer.begin_attempt(pre, self.now_ms)
        if not pre:
            self._enter_term(self.term + 1, self.identity.node_id)
        return attempt

    def _enter_term(self, term: int, voted_for: int) -> None:
        self.term = term
        self.voted_for = voted_for
        self.outbox.hard_dirty = True
        self.matched_index = 0
        self.timer.echoed_ms = NEVER
        self.receiving.drop()

    # --- which nodes count

    def vote_counts(self, node_id: int, incarnation: str) -> bool:
        """Return whether this sender's votes and matches count for us: those of the voters that the latest
        configuration names, committed or not; before the founding of the founders that were met."""
        latest = self.history.latest
        if latest is None:
            return self.founding.get(node_id) == incarnation
        member = latest.voters.get(node_id)
        return member is not None and member.incarnation == incarnation

    @property
    def may_be_needed(self) -> bool:
        """Return whether this node was a voter, and is none by an entry that is not known to be committed.

        If no other node holds this entry, no other can win an election: one that lacks the entry needs this
        node's vote. Source: dissertation §4.2.2.
        """
        own = self.identity
        latest = self.history.latest
        before = self.history.before(self.commit_index)
        if latest is None or before is None or latest.member(own.node_id) is not None:
            return False
        member = before.voters.get(own.node_id)
        return member is not None and member.incarnation == own.incarnation

    def voter_ids(self) -> tuple[int, ...]:
        """Return the nodes that are asked for votes, ascending ids."""
        latest = self.history.latest
        return tuple(sorted(latest.voters if latest is not None else self.identity.founders))

    # --- the log

    def append_own(self, leader: Leader, kind: EntryKind, payload: bytes, stamp_ms: int) -> Entry:
        """Append an entry of this leader's term; a configuration counts from here."""
        stamp = max(stamp_ms, self.log.last_stamp_ms)
        entry = Entry(self.log.last_index + 1, self.term, kind, stamp, payload)
        self.log.append((entry,))
        size = size_bytes(entry)
        leader.uncommitted.add(entry.index, size)
        leader.unsynced.add(entry.index, size)
        return entry

    def commit_to(self, index: int) -> None:
        """Raise the commit index; it never falls and never passes the log's end."""
        if index <= self.commit_index:
            return
        if index > self.log.last_index:
            raise InvariantError(f"commit index {index} lies after the log's end {self.log.last_index}")
        self.commit_index = index

    # --- handing out

    def send(self, message: Message) -> None:
        """Queue a message; it leaves once the hard state that it speaks for is durable."""
        self.outbox.messages.append(message)

    def take_committed(self) -> tuple[Entry, ...]:
        """Return the next committed entries, bounded in bytes; none while a snapshot is being loaded.

        What is not durable here yet waits: a snapshot of the state must never reach beyond the own journal,
        or a crash would leave a gap between the two.
        """
        last = min(self.commit_index, self.log.durable_index)
        if self.handed_index >= last or self.receiving.installing:
            return ()
        entries = self.log.slice(self.handed_index + 1, last, self.options.committed_bytes_max)
        self.handed_index = entries[-1].index
        self.log.trim(self.handed_index)
        return entries

    def take_snapshot_work(
        self,
    ) -> tuple[tuple[SnapshotRead, ...], tuple[int, ...], tuple[SnapshotWrite, ...], tuple[int, ...]]:
        """Return the reads, releases, writes and aborts that snapshot transfers need."""
        reads, releases = self.sending.reads, self.sending.releases
        # A snapshot must not become durable before the term in which it was sent: the log would end in a term
        # that the hard state has not seen.
        writes = self.receiving.writes if self.outbox.hard_state_is_durable else []
        aborts = self.receiving.aborts
        work = tuple(reads), tuple(releases), tuple(writes), tuple(aborts)
        for done in (reads, releases, writes, aborts):
            done.clear()
        return work

    def check_invariants(self) -> None:
        """Check what must hold between any two stimuli."""
        checks = [
            (self.handed_index <= self.commit_index <= self.log.last_index, "handed <= commit <= last"),
            (self.handed_index <= self.log.durable_index <= self.log.last_index, "handed <= durable <= last"),
            (self.log.last_term <= self.term, "last term <= term"),
            (self.matched_index <= self.log.last_index, "matched <= last"),
            (self.history.latest_index <= self.log.last_index, "configuration within the log"),
        ]
        latest = self.history.latest
        if isinstance(self.role, Leader) and latest is not None:
            progress = self.role.progress
            peers = latest.peer_ids(self.identity.node_id)
            checks.append(
                (all(peer.match_index < peer.next_index for peer in progress.values()), "match < next")
            )
            checks.append((tuple(progress) == peers, "one progress per peer"))
        for holds, name in checks:
            if not holds:
                what = f"{self.role.kind.value} of term {self.term}, commit {self.commit_index}"
                raise InvariantError(f"{name} does not hold: {what}")
