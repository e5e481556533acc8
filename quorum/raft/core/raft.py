"""The edge of the core: one object that takes stimuli and hands out what has to be done.

Decides which module answers which stimulus, and the rules that hold for every message: a higher term is taken
over, a lower one is answered with ours, nothing is taken over while the disk is full. Owns the node's state;
knows no clock: a stimulus brings the time. ``step`` changes state, ``ready`` hands out the work, in this
order: persist, send, apply (see `Ready`).

Source: Raft, figure 2; etcd-io/raft for step and ready.
"""

from collections.abc import Callable, Mapping

from quorum.raft.core import elections, following, founding, handover, leading, membership, receiving, sending
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import CONFIGURATION_KINDS, EntryKind
from quorum.raft.core.errors import (
    BacklogError,
    InvariantError,
    MessageError,
    NotLeaderError,
    ProposalError,
)
from quorum.raft.core.log import EntryReader
from quorum.raft.core.membership import MembershipChange
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    ChunkRead,
    ChunkReadFailed,
    ChunkWritten,
    Compacted,
    DurableLog,
    Halt,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerDown,
    PeerMet,
    PeerUp,
    Persisted,
    Ready,
    Receive,
    Resume,
    SnapshotChunk,
    SnapshotChunkReply,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotMark,
    SoftState,
    Stimulus,
    Tick,
    TimeoutNow,
    Transfer,
    Vote,
    VoteReply,
)
from quorum.raft.core.node import Node, NodeIdentity
from quorum.raft.core.options import Options
from quorum.raft.core.progress import Flow
from quorum.raft.core.roles import NEVER, Candidate, Follower, Leader
from quorum.raft.core.status import Status, describe
from quorum.raft.core.timing import Randomness


class Raft:
    """One node of the cluster. Single-threaded; after an InvariantError it must not be used again."""

    def __init__(
        self,
        *,
        options: Options,
        node_id: int,
        incarnation: str,
        hard_state: HardState,
        log: DurableLog,
        snapshot: SnapshotMark | None,
        founders: Mapping[int, str],
        found: Callable[[Configuration], bytes],
        reader: EntryReader,
        rng: Randomness,
        now_ms: float,
        cluster_id: str = "",
    ) -> None:
        """Start from what is durable; the commit index is known only as far as the snapshot.

        Args:
            options: timing and bounds.
            node_id: own id.
            incarnation: own incarnation, 32 hex digits.
            hard_state: (0, 0) for a fresh data directory.
            log: what the journal holds.
            snapshot: the snapshot that the state machine was loaded from, None if there is none.
            founders: {node id: address} of a cluster to found or found already; empty for a node that joins.
            found: builds the payload of entry 1 from its configuration (adds cluster id and session key).
            reader: reads durable entries that left memory.
            rng: drawn from for delays only.
            now_ms: monotonic clock, as in ``step``.
            cluster_id: as the hello says it; before a founding that of a restored state, or empty.
        """
        self._node = Node(
            identity=NodeIdentity(node_id, incarnation, founders, found, cluster_id),
            options=options,
            hard_state=hard_state,
            durable=log,
            mark=snapshot,
            reader=reader,
            rng=rng,
            now_ms=now_ms,
        )
        #: whether the last stimulus was a follower's mere look at the clock: ``ready()`` has nothing new
        self.rests = False
        self._reported_soft_state: SoftState | None = None
        #: what `linked_members` was made from when that was last looked at
        self._looked_at: tuple[object, ...] = ()
        self._reported_configuration: Configuration | None = None
        self._reported_beyond: dict[int, str] = {}  #: linked besides its members

    # --- stimuli

    def step(self, stimulus: Stimulus, now_ms: float) -> None:
        """Take one stimulus.

        Args:
            stimulus: what happened.
            now_ms: monotonic clock; going back is taken as standing still.
        """
        node = self._node
        follows = isinstance(node.role, Follower)
        self.rests = follows and type(stimulus) is Tick and now_ms < node.timer.campaign_ms
        paused_ms = now_ms - node.now_ms
        node.now_ms = max(node.now_ms, now_ms)
        if paused_ms > node.options.heartbeat_interval_ms:
            self._forgive_pause()
        match stimulus:
            case Tick(wall_ms, undurable_ms):
                node.wall_ms = wall_ms
                self._tick(undurable_ms)
            case Receive(message, incarnation):
                self._receive(message, incarnation)
            case Persisted(seq):
                self._persisted(seq)
            case PeerUp(node_id):
                self._peer_up(node_id)
            case PeerMet():
                if node.history.latest is None:
                    founding.meet(node, stimulus)
                    elections.hurry(node)
            case PeerDown(node_id):
                self._peer_down(node_id)
            case ChunkRead() | ChunkReadFailed() | ChunkWritten() | SnapshotInstalled() | SnapshotFailed():
                self._step_snapshot(stimulus)
            case Compacted(first_index):
                self._compacted(first_index)
            case Transfer(target):
                handover.begin_transfer(self._node, target)
            case Halt(reason):
                node.halted = reason or "the disk is full"
                # Its file may be what fills the disk.
                node.receiving.drop()
                if not isinstance(node.role, Follower):
                    node.become_follower(node.term, 0, f"halted: {reason}")
            case Resume():
                node.halted = ""

    def _step_snapshot(
        self, stimulus: ChunkRead | ChunkReadFailed | ChunkWritten | SnapshotInstalled | SnapshotFailed
    ) -> None:
        node = self._node
        match stimulus:
            case ChunkRead() if isinstance(node.role, Leader):
                sending.handle_chunk_read(node, node.role, stimulus)
            case ChunkReadFailed() if isinstance(node.role, Leader):
                sending.handle_chunk_read_failed(node, node.role, stimulus)
            case ChunkWritten():
                receiving.handle_chunk_written(node, stimulus)
            case SnapshotInstalled():
                receiving.handle_installed(node, stimulus)
            case SnapshotFailed():
                receiving.handle_failed(node, stimulus)

    def _forgive_pause(self) -> None:
        """This process stood still: what the others sent meanwhile is read before their silence is judged."""
        node = self._node
        if isinstance(node.role, Leader):
            leading.forgive_pause(node, node.role)
        else:
            node.timer.forgive_pause(node.now_ms)

    def _tick(self, undurable_ms: float) -> None:
        node, role = self._node, self._node.role
        if isinstance(role, Leader):
            leading.tick_leader(node, role, undurable_ms)
            sending.tick_snapshots(node, role)
        else:
            elections.tick_election(node)

    def _persisted(self, seq: int) -> None:
        node = self._node
        if seq >= node.outbox.next_seq:
            raise InvariantError(f"persist {seq} was reported durable before it was handed out")
        node.outbox.persisted_seq = max(node.outbox.persisted_seq, seq)
        node.log.persisted(seq)
        if isinstance(node.role, Candidate):
            elections.count_own_vote(node, node.role)
        if isinstance(node.role, Leader):
            node.role.unsynced.settle(node.log.durable_index)
            leading.advance_commit(node, node.role)

    def _peer_up(self, node_id: int) -> None:
        node, role = self._node, self._node.role
        if isinstance(role, Leader):
            peer = role.progress.get(node_id)
            if peer is None:
                return
            peer.clock_ms = -1.0
            # Whatever was sent before went into no connection, or into one that is gone.
            if peer.flow is not Flow.SNAPSHOT:
                peer.become_probe()
            sending.resume_snapshot(node, node_id, peer)
            # A fresh connection learns at once which node leads.
            role.heartbeat_due = True
            return
        if isinstance(role, Follower) and node_id == role.leader_id and node.matched_index:
            # Its connection may be older than ours to it, and what it asked was answered into none.
            role.reported_index, role.answer_at = 0, node.matched_index
        elections.hurry(node)

    def _peer_down(self, node_id: int) -> None:
        node, role = self._node, self._node.role
        if not isinstance(role, Leader):
            if node_id == role.leader_id:
                elections.forget_leader(node)
            return
        peer = role.progress.get(node_id)
        if peer is not None:
            peer.disconnected()
            if peer.flow is not Flow.SNAPSHOT:
                peer.become_probe()
                peer.probe_sent = True
                peer.sent_ms = node.now_ms
        if node_id == role.transfer_target and not role.transfer_told:
            handover.give_up_transfer(node, role)

    def _compacted(self, first_index: int) -> None:
        node = self._node
        if first_index > node.handed_index + 1:
            raise InvariantError(
                f"compacted to {first_index}, but only {node.handed_index} was handed out for applying"
            )
        node.log.compact(first_index)
        node.history.compact(first_index)

    # --- messages

    def _receive(self, message: Message, incarnation: str) -> None:
        node = self._node
        own = node.identity.node_id
        if message.receiver != own or message.sender == own or message.term < 0:
            raise MessageError(
                f"{type(message).__name__} from {message.sender} to {message.receiver} reached node {own}"
            )
        match message:
            case Append() | Heartbeat() | SnapshotChunk():
                self._receive_from_leader(message)
            case AppendReply() | HeartbeatReply() | SnapshotChunkReply():
                self._receive_answer(message, incarnation)
            case Vote():
                elections.handle_vote(node, message, incarnation)
            case VoteReply():
                elections.handle_vote_reply(node, message, incarnation)
            case TimeoutNow():
                elections.handle_timeout_now(node, message)

    def _receive_from_leader(self, message: Append | Heartbeat | SnapshotChunk) -> None:
        node = self._node
        if message.term < node.term:
            self._refuse_stale(message)
            return
        if message.term > node.term and node.halted:
            return
        known_id = node.role.leader_id
        if message.term == node.term and known_id not in (0, message.sender):
            raise InvariantError(f"nodes {known_id} and {message.sender} both lead term {message.term}")
        if message.term > node.term or known_id == 0:
            node.become_follower(
                message.term, message.sender, f"node {message.sender} leads term {message.term}"
            )
        follower = node.role
        if not isinstance(follower, Follower):
            raise InvariantError(f"a {follower.kind.value} follows node {message.sender}")
        follower.heard_ms = node.now_ms
        node.timer.hear_leader(node.now_ms)
        match message:
            case Append():
                following.handle_append(node, follower, message)
            case Heartbeat():
                following.handle_heartbeat(node, message)
            case SnapshotChunk():
                receiving.handle_chunk(node, message)

    def _refuse_stale(self, message: Append | Heartbeat | SnapshotChunk) -> None:
        if isinstance(message, SnapshotChunk):
            receiving.refuse_stale(self._node, message)
        else:
            following.refuse_stale(self._node, message)

    def _receive_answer(
        self, message: AppendReply | HeartbeatReply | SnapshotChunkReply, incarnation: str
    ) -> None:
        node = self._node
        if message.term > node.term and not node.halted:
            node.become_follower(message.term, 0, f"node {message.sender} is in term {message.term}")
        leader = node.role
        if message.term != node.term or not isinstance(leader, Leader):
            return
        peer = leading.identify(node, leader, message.sender, incarnation)
        if peer is None:
            return
        matched_before = peer.match_index
        match message:
            case AppendReply():
                leading.handle_append_reply(node, peer, message)
            case HeartbeatReply():
                leading.handle_heartbeat_reply(node, peer, message)
            case SnapshotChunkReply():
                sending.handle_chunk_reply(node, peer, message)
        if peer.match_index > matched_before:
            leading.advance_commit(node, leader)
        if isinstance(message, HeartbeatReply):
            # Now it is known which peers have caught up; what can commit without a change has done so.
            membership.maintain(node, leader)

    # --- proposals

    def propose(self, kind: EntryKind, payload: bytes, stamp_ms: int) -> int:
        """Append an entry of this leader's term; it is sent and persisted with the next ``ready()``.

        Args:
            kind: any but the configuration kinds and NOOP, which the core appends itself.
            payload: at most Options.entry_bytes_max bytes.
            stamp_ms: wall clock; raised to the log's last stamp if it is below.

        Returns:
            The entry's index. Whether it commits is known only when it does, or when another entry commits
            there.
        """
        node = self._node
        leader = node.as_leader()
        if leader.transfer_target:
            raise NotLeaderError(
                f"leadership is being handed over to node {leader.transfer_target}", leader.leader_id
            )
        if kind in CONFIGURATION_KINDS or kind is EntryKind.NOOP:
            raise ProposalError(f"{kind.name} entries are appended by the core itself")
        if len(payload) > node.options.entry_bytes_max:
            raise ProposalError(
                f"the payload has {len(payload)} bytes; entry_bytes_max is {node.options.entry_bytes_max}"
            )
        room_bytes = node.options.backlog_bytes_max - len(payload)
        if leader.uncommitted.size_bytes > room_bytes:
            raise BacklogError(
                f"{leader.uncommitted.size_bytes} bytes wait for commit; backlog_bytes_max is "
                f"{node.options.backlog_bytes_max}"
            )
        if leader.unsynced.size_bytes > room_bytes:
            story = f"{leader.unsynced.size_bytes} bytes wait for its own disk, and others commit without it"
            node.become_follower(node.term, 0, story)
            raise NotLeaderError(f"node {node.identity.node_id} stepped down: {story}", 0)
        return node.append_own(leader, kind, payload, stamp_ms).index

    def change_members(self, change: MembershipChange) -> int:
        """Append a change of the membership; it counts from its append and is final once it commits.

        Args:
            change: what shall be different.

        Returns:
            The index of a new entry; once that is committed it is as asked for. It holds the configuration,
            or nothing where nothing has to change.
        """
        return membership.change_members(self._node, change)

    # --- work

    def ready(self) -> Ready | None:
        """Hand out everything that has to be done now, or None. See `Ready` for the order contract."""
        node = self._node
        outbox, role = node.outbox, node.role
        if isinstance(role, Leader):
            leading.replicate(node, role)
        elif isinstance(role, Follower):
            following.acknowledge(node, role)
        persist = None
        if outbox.hard_dirty or node.log.persist_from <= node.log.last_index:
            persist = outbox.take_persist(node.term, node.voted_for, node.log)
        messages = outbox.take_messages() if outbox.messages else ()
        committed = node.take_committed() if node.handed_index < node.commit_index else ()
        soft_state, role = None, node.role
        known = (role.kind, node.term, role.leader_id, role.transfer_target, node.halted)
        if known != self._reported_soft_state:
            soft_state = self._reported_soft_state = SoftState(*known)
        configuration, history = None, node.history
        settled = node.commit_index >= history.latest_index
        leaving = len(role.leaving) if isinstance(role, Leader) else 0
        looked_at = (history.latest, settled, role, role.leader_id, leaving)
        if looked_at != self._looked_at:
            self._looked_at, configuration = looked_at, self._changed_configuration()
        sending, receiving = node.sending, node.receiving
        if sending.reads or sending.releases or receiving.writes or receiving.aborts:
            work = Ready(persist, messages, committed, soft_state, configuration, *node.take_snapshot_work())
            return work if any(work) else None
        if persist or messages or committed or soft_state or configuration:
            return Ready(persist, messages, committed, soft_state, configuration, (), (), (), ())
        return None

    def hand_back(self, applied_index: int) -> None:
        """Take back what the last ``ready()`` handed out for applying beyond an index: it comes again."""
        self._node.handed_index = applied_index

    def _changed_configuration(self) -> Configuration | None:
        configuration = self._node.history.latest
        beyond = membership.linked_beyond(self._node)
        if configuration is self._reported_configuration and beyond == self._reported_beyond:
            return None
        self._reported_configuration = configuration
        self._reported_beyond = beyond
        return configuration

    @property
    def has_committed(self) -> bool:
        """Return whether the next ``ready()`` may hand out committed entries."""
        return self._node.handed_index < self._node.commit_index

    @property
    def known_index(self) -> int | None:
        """Return the highest commit index that this node heard of; None while a snapshot is installed."""
        node = self._node
        return None if node.receiving.installing else max(node.commit_index, node.known_index)

    @property
    def contact_ms(self) -> float:
        """Return until when the leader is known to have heard this node, and on the leader a majority.

        By this node's clock; inf where it needs nobody, -inf without a leader.
        """
        role = self._node.role
        if isinstance(role, Leader):
            return leading.quorum_contact_ms(self._node, role, confirmed=True)
        return self._node.timer.echoed_ms if role.leader_id else NEVER

    @property
    def deadline_ms(self) -> float:
        """Return when the next Tick has something to do; a Tick may come earlier."""
        role = self._node.role
        if not isinstance(role, Leader):
            return self._node.timer.campaign_ms
        return min(role.heartbeat_ms, role.transfer_until_ms) if role.transfer_target else role.heartbeat_ms

    # --- questions

    @property
    def founding_term(self) -> int | None:
        """Return the term of a founder whose log is empty, None of any other node."""
        node = self._node
        return node.term if node.identity.founders and node.history.latest is None else None

    @property
    def founding_obstacles(self) -> tuple[Mapping[int, str], tuple[int, ...]]:
        """Return, for an empty log, {peer: the cluster it belongs to} and the founders not heard of yet."""
        return self._node.clusters, founding.missing_founders(self._node)

    @property
    def configuration(self) -> Configuration | None:
        """Return the latest configuration in the log, committed or not; None before the founding."""
        return self._node.history.latest

    def configuration_at(self, index: int) -> Configuration | None:
        """Return the configuration as of ``index``, for a snapshot of it (defect D17 of pysyncobj)."""
        return self._node.history.at(index)

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at ``index``, None if it is not known any more or not there."""
        return self._node.log.term_at(index)

    def check_invariants(self) -> None:
        """Check what must hold between any two stimuli."""
        self._node.check_invariants()

    def linked_members(self) -> dict[int, str]:
        """Return {node id: address} of the peers to keep a connection with.

        More than the members while one of them leaves. An empty address: keep the link if there is one. It
        changes only with ``Ready.configuration``.
        """
        return membership.linked_members(self._node)

    def status(self) -> Status:
        """Return what this node is and knows."""
        return describe(self._node)
