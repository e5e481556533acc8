"""The state of one node and the moves that every part of the core shares.

Decides role changes, terms, what is counted, what commits, and what is handed out. Does not know the
messages' meaning: `elections.py`, `following.py`, `leading.py`, `sending.py` and `receiving.py` are functions
over this state. Hard state: ``term``, ``voted_for`` and the log; all else is soft.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from quorum.raft.core.backlog import Backlog
from quorum.raft.core.configuration import Configuration, majority_value
from quorum.raft.core.entry import Entry, EntryKind, size_bytes
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.history import ConfigurationHistory
from quorum.raft.core.log import EntryReader, Log
from quorum.raft.core.messages import (
    DurableLog,
    HardState,
    Message,
    Persist,
    Role,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
    SoftState,
)
from quorum.raft.core.options import Options
from quorum.raft.core.progress import Leaver, Progress
from quorum.raft.core.roles import check_role_move
from quorum.raft.core.transfers import Incoming
from quorum.raft.core.votes import Tally

NEVER = float("-inf")


class Randomness(Protocol):
    """What the core draws its election delays from; `random.Random` fits."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between a and b."""


class NodeIdentity:
    """Who this node is and whom it may found a cluster with. Fixed."""

    def __init__(
        self,
        node_id: int,
        incarnation: str,
        founders: Mapping[int, str],
        found: Callable[[Configuration], bytes],
    ) -> None:
        """Keep what does not change.

        Args:
            node_id: own id. incarnation: own incarnation, 32 hex digits. founders: {node id: address}; empty
                for a node that joins and so never votes before the log names it.
            found: builds the payload of entry 1 from its configuration (adds cluster id and session key).
        """
        self.node_id = node_id
        self.incarnation = incarnation
        self.founders = founders
        self.found = found


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
        self.rng = rng
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
        self.role = Role.FOLLOWER
        self.leader_id = 0  #: of this term, 0: unknown
        self.heard_ms = NEVER  #: last message of the current leader; forgotten when its connection closes
        self.span_ms = self.draw_timeout()  #: election timeout that was drawn for this spell
        self.campaign_ms = now_ms + self.draw_prompt()  #: when to campaign unless a leader is heard
        self.pause_forgiven = False  #: a late campaign was put off once already
        #: leader: end of a pause of its own since which no majority answered; NEVER: there is none
        self.resumed_ms = NEVER
        self.attempts = 0  #: pre-votes in a row since a leader was heard or a pre-vote won
        self.elections = 0  #: elections in a row that this node began, since a leader was heard or it was one
        #: with an empty log: {founder: its incarnation}, of those whose log is empty by their last hello
        self.founding = {identity.node_id: identity.incarnation} if identity.founders else {}
        self.clusters: dict[int, str] = {}  #: with an empty log: {peer: its cluster id, by its last hello}
        self.tally: Tally | None = None
        self.halted = ""  #: reason
        self.refused: dict[int, str] = {}  #: {member id: incarnation that does not count}, for the status

        self.matched_index = 0  #: follower: equal to this term's leader's log up to here
        self.reported_index = 0  #: follower: durable match that this leader was told
        self.answer_at: int | None = None  #: follower: owes an answer as soon as this index is durable

        self.progress: dict[int, Progress] = {}  #: leader: {peer id: progress}, ascending ids
        self.leaving: dict[int, Leaver] = {}  #: leader: {id: who left, until it was told}
        self.term_start_index = 0  #: leader: its first entry; commits by counting begin here
        self.heartbeat_ms = now_ms  #: leader: next heartbeat
        self.heartbeat_due = False
        self.uncommitted = Backlog()  #: leader: what it appended and is not committed
        self.unsynced = Backlog()  #: leader: what it appended and is not durable here
        self.transfer_target = 0
        self.transfer_until_ms = NEVER
        self.transfer_told = False
        self.transfers = 0  #: number of the last snapshot transfer

        self.incoming: Incoming | None = None
        self.installs = 0  #: number of the last incoming snapshot
        self.installing = False  #: its last piece is written: the shell verifies and loads it
        self._begin_output()

    def note_refused(self, sender: int, incarnation: str) -> None:
        """Keep for the status which process of a member does not count; who is no member is forgotten."""
        latest = self.history.latest
        if latest is not None and sender not in self.refused:
            kept = {node_id: each for node_id, each in self.refused.items() if latest.member(node_id)}
            self.refused = kept
        self.refused[sender] = incarnation

    def _begin_output(self) -> None:
        """Have nothing to hand out yet."""
        self.next_seq = 1
        self.persisted_seq = 0
        self.hard_seq = 0  #: persist that holds the latest hard state
        self.hard_dirty = False
        self.outbox: deque[Message] = deque(maxlen=self.options.outbox_messages_max)
        self.snapshot_reads: list[SnapshotRead] = []
        self.snapshot_releases: list[int] = []
        self.snapshot_writes: list[SnapshotWrite] = []
        self.snapshot_aborts: list[int] = []

    # --- delays

    def draw_timeout(self) -> float:
        """Draw an election timeout in milliseconds."""
        return self.rng.uniform(self.options.election_timeout_min_ms, self.options.election_timeout_max_ms)

    def draw_prompt(self) -> float:
        """Draw the short delay before an attempt that has a fresh reason, in milliseconds."""
        return self.rng.uniform(self.options.prompt_delay_min_ms, self.options.prompt_delay_max_ms)

    def draw_retry(self) -> float:
        """Draw the delay before the next attempt after a refusal, in milliseconds."""
        return self.rng.uniform(self.options.retry_delay_min_ms, self.options.retry_delay_max_ms)

    # --- roles

    def become_follower(self, term: int, leader_id: int, story: str) -> None:
        """Follow in ``term``; a higher one becomes durable before anything of it leaves.

        Args:
            term: the term to be in, at least the current one.
            leader_id: its leader, 0 if unknown.
            story: why, for the message of a forbidden move.
        """
        check_role_move(self.role, Role.FOLLOWER, story)
        if self.role is Role.LEADER:
            self._stop_leading()
        if self.role is not Role.FOLLOWER:
            self.span_ms = self.draw_timeout()
            self.campaign_ms = self.now_ms + self.span_ms
        self.role = Role.FOLLOWER
        self.tally = None
        if term > self.term:
            self._enter_term(term, 0)
        if leader_id != self.leader_id:
            self.leader_id = leader_id
            self.forget_reports()

    def become_candidate(self, pre: bool, voters: Configuration | None, story: str) -> None:
        """Begin an attempt: the pre-vote in the current term, or the election in the next one."""
        role = Role.PRE_CANDIDATE if pre else Role.CANDIDATE
        check_role_move(self.role, role, story)
        self.role = role
        self.leader_id = 0
        self.forget_reports()
        count = len(voters.voters) if voters is not None else len(self.identity.founders)
        self.tally = Tally(count)
        self.span_ms = self.draw_timeout()
        self.campaign_ms = self.now_ms + self.span_ms
        self.pause_forgiven = False
        self.attempts = self.attempts + 1 if pre else 0
        if not pre:
            self.elections += 1
            self._enter_term(self.term + 1, self.identity.node_id)

    def _enter_term(self, term: int, voted_for: int) -> None:
        self.term = term
        self.voted_for = voted_for
        self.hard_dirty = True
        self.leader_id = 0
        self.matched_index = 0
        self.forget_reports()
        self.drop_incoming()

    def forget_reports(self) -> None:
        """Answer the next append whatever was answered before: the leader or its connection is another
        one."""
        self.reported_index = 0
        self.answer_at = None

    def _stop_leading(self) -> None:
        if self.commit_index >= self.term_start_index:
            self.elections = 0
        for peer in self.progress.values():
            self.release(peer)
        self.progress = {}
        self.leaving = {}
        self.uncommitted.clear()
        self.unsynced.clear()
        self.end_transfer()
        self.leader_id = 0
        self.heartbeat_due = False

    def release(self, peer: Progress) -> None:
        """Let the shell unpin the snapshot that was on its way to this peer."""
        if peer.outgoing is not None:
            transfer = peer.outgoing.transfer
            # A read that was not handed out yet would pin the snapshot again, for ever.
            self.snapshot_reads = [read for read in self.snapshot_reads if read.transfer != transfer]
            self.snapshot_releases.append(transfer)
            peer.outgoing = None

    def drop_incoming(self) -> None:
        """Have the shell remove the part of a snapshot that has arrived: nothing will continue it."""
        if self.incoming is not None and not self.installing:
            install = self.incoming.install
            # A piece that was not handed out yet would begin the file again.
            self.snapshot_writes = [write for write in self.snapshot_writes if write.install != install]
            self.snapshot_aborts.append(install)
            self.incoming = None

    def end_transfer(self) -> None:
        """Forget the hand-over under way; proposals are taken again if this node still leads."""
        self.transfer_target = 0
        self.transfer_told = False

    def hear_leader(self) -> None:
        """Note a message of the current leader."""
        self.heard_ms = self.now_ms
        self.campaign_ms = self.now_ms + self.span_ms
        self.pause_forgiven = False
        self.attempts = self.elections = 0

    # --- who counts

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

        It may be the only one that holds this entry, so that nobody else can win an election, and nobody who
        lacks the entry either without its vote. Source: dissertation §4.2.2.
        """
        own = self.identity
        latest = self.history.latest
        before = self.history.before(self.commit_index)
        if latest is None or before is None or latest.member(own.node_id) is not None:
            return False
        member = before.voters.get(own.node_id)
        return member is not None and member.incarnation == own.incarnation

    # --- the log

    def append_own(self, kind: EntryKind, payload: bytes, stamp_ms: int) -> Entry:
        """Append an entry of this leader's term; a configuration counts from here."""
        stamp = max(stamp_ms, self.log.last_stamp_ms)
        entry = Entry(self.log.last_index + 1, self.term, kind, stamp, payload)
        self.log.append((entry,))
        size = size_bytes(entry)
        self.uncommitted.add(entry.index, size)
        self.unsynced.add(entry.index, size)
        return entry

    def commit_to(self, index: int) -> None:
        """Raise the commit index; it never falls and never passes the log's end."""
        if index <= self.commit_index:
            return
        if index > self.log.last_index:
            raise InvariantError(f"commit index {index} lies behind the log's end {self.log.last_index}")
        self.commit_index = index
        self.uncommitted.settle(index)

    def majority_match(self) -> int:
        """Return the index that a majority of the voters holds durably, 0 if none does."""
        latest = self.history.latest
        if latest is None:
            return 0
        matches = [
            self.log.durable_index if node_id == self.identity.node_id else self.progress[node_id].match_index
            for node_id in latest.voters
        ]
        return int(majority_value(matches, len(latest.voters)) or 0)

    # --- handing out

    def send(self, message: Message) -> None:
        """Queue a message; it leaves once the hard state that it speaks for is durable."""
        self.outbox.append(message)

    @property
    def hard_state_is_durable(self) -> bool:
        """Return whether term and vote as they are now would survive a crash."""
        return not self.hard_dirty and self.persisted_seq >= self.hard_seq

    def take_persist(self) -> Persist | None:
        """Return the next group for the journal, if anything changed."""
        if not self.hard_dirty and not self.log.has_unpersisted:
            return None
        seq = self.next_seq
        self.next_seq += 1
        hard_state = None
        if self.hard_dirty:
            hard_state = HardState(self.term, self.voted_for)
            self.hard_dirty = False
            self.hard_seq = seq
        return Persist(seq, hard_state, self.log.take_unpersisted(seq))

    def take_messages(self) -> tuple[Message, ...]:
        """Return what may leave now."""
        if not self.outbox or not self.hard_state_is_durable:
            return ()
        messages = tuple(self.outbox)
        self.outbox.clear()
        return messages

    def take_committed(self) -> tuple[Entry, ...]:
        """Return the next committed entries, bounded in bytes; none while a snapshot is being loaded.

        What is not durable here yet waits: a snapshot of the state must never reach beyond the own journal,
        or a crash would leave a gap between the two.
        """
        last = min(self.commit_index, self.log.durable_index)
        if self.handed_index >= last or self.installing:
            return ()
        entries = self.log.slice(self.handed_index + 1, last, self.options.committed_bytes_max)
        self.handed_index = entries[-1].index
        self.log.trim(self.handed_index)
        return entries

    def take_snapshot_work(
        self,
    ) -> tuple[tuple[SnapshotRead, ...], tuple[int, ...], tuple[SnapshotWrite, ...], tuple[int, ...]]:
        """Return the reads, releases, writes and aborts that snapshot transfers need."""
        reads, releases = self.snapshot_reads, self.snapshot_releases
        # A snapshot must not become durable before the term in which it was sent: the log would end in a term
        # that the hard state has not seen.
        writes = self.snapshot_writes if self.hard_state_is_durable else []
        aborts = self.snapshot_aborts
        if not (reads or releases or writes or aborts):
            return (), (), (), ()
        work = tuple(reads), tuple(releases), tuple(writes), tuple(aborts)
        for done in (reads, releases, writes, aborts):
            done.clear()
        return work

    def soft_state(self) -> SoftState:
        """Return what the shell routes by."""
        return SoftState(self.role, self.term, self.leader_id, self.transfer_target, self.halted)

    def _peers_to_lead(self) -> tuple[int, ...]:
        latest = self.history.latest
        leads = self.role is Role.LEADER and latest is not None
        return latest.peer_ids(self.identity.node_id) if leads and latest is not None else ()

    def check_invariants(self) -> None:
        """Check what must hold between any two stimuli."""
        checks = (
            (self.handed_index <= self.commit_index <= self.log.last_index, "handed <= commit <= last"),
            (self.handed_index <= self.log.durable_index <= self.log.last_index, "handed <= durable <= last"),
            (self.log.last_term <= self.term, "last term <= term"),
            (self.matched_index <= self.log.last_index, "matched <= last"),
            (self.history.latest_index <= self.log.last_index, "configuration within the log"),
            ((self.role is Role.LEADER) == (self.leader_id == self.identity.node_id), "leader knows itself"),
            (all(peer.match_index < peer.next_index for peer in self.progress.values()), "match < next"),
            (tuple(self.progress) == self._peers_to_lead(), "one progress per peer"),
        )
        for holds, name in checks:
            if not holds:
                raise InvariantError(f"{name} does not hold: {self.soft_state()}, commit {self.commit_index}")
