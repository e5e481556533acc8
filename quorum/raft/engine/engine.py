"""The engine: the shell around the pure Raft core.

It turns events (messages, ticks, finished fsyncs) into stimuli and carries out each `Ready` in the order that
it contracts: persist, send, apply. It decides nothing about terms, votes or commit, and knows nothing about
znodes, nor pysyncobj, which is around it (syncobj.py).

Within one turn of the event loop all stimuli are taken in first and one `ready()` follows, so a burst of
proposals becomes one append per peer and one group in the journal. An exception anywhere below the event loop
stops the node with its story: it never goes on with half a step done.

Source: Raft §5; etcd-io/raft (Ready).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVarTuple

from quorum.errors import NodeStoppedError, NotLeaderError, ProposalRefusedError, QuorateError
from quorum.platform.runtime import Runtime
from quorum.raft.core import errors as core_errors
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.membership import MembershipChange
from quorum.raft.core.messages import (
    Message,
    PeerDown,
    PeerUp,
    Persisted,
    Ready,
    Receive,
    Role,
    SoftState,
    Stimulus,
    Tick,
    Transfer,
)
from quorum.raft.core.raft import Raft
from quorum.raft.core.status import Status
from quorum.raft.engine.contracts import Application, MemberTransport, ShellMessage, SnapshotExchange
from quorum.raft.engine.member_links import MemberLinks
from quorum.raft.engine.ticker import Ticker
from quorum.raft.engine.turn_state import TurnState
from quorum.raft.engine.undurable import Undurable
from quorum.raft.journal.format import OriginIncarnation, Record
from quorum.raft.journal.writer import JournalWriter
from quorum.raft.peers.peers import PeerNode, speaks_for_member
from quorum.raft.requests.origins import incarnation_above

log = logging.getLogger("quorate.raft")

SAME_LIMITS_REMEDY = "give all members the same raft.batch_bytes_max and limits.frame_bytes_max"
#: how long one turn of the loop goes on applying; it ends between two entries
TURN_MS_MAX = 5.0

Arguments = TypeVarTuple("Arguments")


class Engine:
    """One node of the replicated log."""

    _application: Application
    _exchange: SnapshotExchange

    def __init__(
        self,
        core: Raft,
        transport: MemberTransport,
        journal: JournalWriter,
        runtime: Runtime,
        *,
        node_id: int,
        peer_ids: Iterable[int],
        applied_index: int,
        election_timeout_max_ms: int,
        heartbeat_interval_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Join core and transport; nothing runs before `start`.

        Args:
            core: restored from journal and snapshot.
            transport: its callbacks are to call this engine's methods.
            journal: makes persists durable.
            runtime: clock and event loop.
            node_id: this node's id.
            peer_ids: the other members as far as known at the start.
            applied_index: last index that the restored state covers.
            election_timeout_max_ms: for how long a leader that is not heard counts as heard.
            heartbeat_interval_ms: between a leader's heartbeats.
            on_failure: called once, with the story, when the engine stopped itself.
        """
        self.node_id = node_id
        self._core = core
        self._journal = journal
        self._runtime = runtime
        self._transport = transport
        self._on_failure = on_failure
        self._election_timeout_max_ms = election_timeout_max_ms
        self.soft_state = SoftState(Role.FOLLOWER, core.status().term, 0, 0, "")
        self.applied_index = applied_index
        #: True on a leader that applied the first entry of its own term and hands leadership to nobody
        self.accepts_proposals = False
        #: which members are connected, and what each proved in its hello
        self.links = MemberLinks(transport, peer_ids)
        #: {index: [(term, callback)]} of entries whose fate somebody waits for
        self._waiting: dict[int, list[tuple[int, Callable[[bool], None]]]] = {}
        self._undurable = Undurable()
        self._turn = TurnState()
        self._ticker = Ticker(runtime, heartbeat_interval_ms)
        self.failure: BaseException | None = None
        self._stopped = False

    # --- life -------------------------------------------------------------------------------------

    def attach(self, application: Application, exchange: SnapshotExchange) -> None:
        """Set what is on top; once, before anything arrives."""
        self._application = application
        self._exchange = exchange

    def start(self, tick: Callable[[], object]) -> None:
        """Begin to tick: `tick` is called when a tick is due, and is to end in this engine's."""
        self._ticker.start(tick)
        self._arm_ticker(self._runtime.monotonic_ms())
        self._schedule_pump()

    def stop(self) -> None:
        """Stop ticking and hearing the transport; what is not durable stays unacknowledged."""
        self._stopped = True
        self._ticker.stop()

    def fail(self, error: BaseException) -> None:
        """Stop this node: going on could break a promise. The first story is kept."""
        if self.failure is not None:
            return
        self.failure = error
        log.critical(
            "stopped itself: %s", error, exc_info=error if not isinstance(error, QuorateError) else None
        )
        self.stop()
        self._on_failure(error)

    # --- stimuli ----------------------------------------------------------------------------------

    def step(self, stimulus: Stimulus) -> None:
        """Hand the core a stimulus and carry out what follows in this turn of the loop, or at its end."""
        if self._stopped:
            return
        try:
            self._core.step(stimulus, self._runtime.monotonic_ms())
        except core_errors.MessageError as error:
            log.warning("ignored a message that contradicts itself: %s", error)
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self.fail(_story(error, f"step({type(stimulus).__name__})"))
            return
        if not self._core.rests:
            self._schedule_pump()

    def state_installed(self, applied_index: int) -> None:
        """A snapshot replaced the state above: entries up to its index will not be applied one by one."""
        self.applied_index = applied_index
        # Their fate is not known here: neither success nor failure is reported.
        for index in [index for index in self._waiting if index <= applied_index]:
            del self._waiting[index]

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to this leader's log, stamped now, and return its index.

        It is committed only if `Application.apply` sees it. NotLeaderError and ProposalRefusedError are
        definite: nothing was appended.
        """
        try:
            index = self._core.propose(kind, payload, self._runtime.wall_ms())
        except (core_errors.NotLeaderError, core_errors.BacklogError) as error:
            known = self.soft_state
            if known.role is Role.LEADER and not known.transfer_target:
                # It may have stepped down over this proposal.
                self._schedule_pump()
            raise NotLeaderError(self.leader_id) from error
        except core_errors.ProposalError as error:
            problem = f"node {self.node_id} refuses a proposal: {error}"
            raise ProposalRefusedError(problem, SAME_LIMITS_REMEDY) from error
        self._schedule_pump()
        return index

    def send(self, message: ShellMessage) -> None:
        """Send a message that is not the core's, best effort."""
        node = self.links.connected.get(message.receiver)
        if node is not None:
            self._turn.sent = True
            self._transport.send(node, message)
            self._schedule_pump()

    def make_incarnation_durable(self, incarnation: int, then: Callable[[], None]) -> None:
        """Write an origin incarnation to the journal and call back after the fsync that covers it."""
        self._journal.submit((OriginIncarnation(incarnation),), then)

    def draw_incarnation_above(self, known: int) -> int:
        """Draw an origin incarnation above that of another disk of this node."""
        return incarnation_above(known, self._runtime.random)

    # --- events -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Take one tick."""
        now_ms = self._runtime.monotonic_ms()
        stall_ms = self._ticker.stall_ms(now_ms)
        self.step(Tick(self._runtime.wall_ms(), self._undurable.age_ms(now_ms)))
        if not self._stopped:
            self._arm_ticker(now_ms)
            self._guard("tick", self._application.tick, now_ms, stall_ms)

    def _arm_ticker(self, now_ms: float) -> None:
        settled = bool(self.soft_state.leader_id) and not self.soft_state.transfer_target
        self._ticker.arm(now_ms, settled=settled, deadline_ms=self._core.deadline_ms)

    def peer_connected(self, node: PeerNode) -> None:
        """A link to a member is up (called by the transport)."""
        if not self._stopped:
            self.links.connected[node.node_id] = node
            self.step(PeerUp(node.node_id))
            self._guard("peer_connected", self._application.peer_connected, node.node_id)

    def peer_disconnected(self, node: PeerNode) -> None:
        """A link to a member ended (called by the transport)."""
        if not self._stopped:
            self.links.connected.pop(node.node_id, None)
            self.step(PeerDown(node.node_id))

    def receive(self, node: PeerNode, message: Message | ShellMessage) -> None:
        """Take a message from a member as its connection proved it (called by the transport)."""
        if self._stopped:
            return
        self._turn.collecting = True
        if not isinstance(message, ShellMessage):
            self.step(Receive(message, node.incarnation))
        elif message.term == self.term and (not self.leads or speaks_for_member(self.configuration, node)):
            self._guard("receive", self._application.receive, message)

    def guarded(self, what: str, call: Callable[[*Arguments], None]) -> Callable[[*Arguments], None]:
        """Return a callback for the event loop in which an exception stops the node with its story."""

        def callback(*arguments: *Arguments) -> None:
            self._guard(what, call, *arguments)

        return callback

    def collected(self, what: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a guarded callback after which what it asked for is carried out in the same turn."""

        def callback() -> None:
            self._turn.collecting = True
            self._guard(what, call)
            self._pump()

        return callback

    def _guard(self, what: str, call: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self.fail(_story(error, what))

    # --- carrying out -----------------------------------------------------------------------------

    def chunk_received(self) -> None:
        """A peer's chunk of messages is taken: answer it as one, and at once if it lets something be applied.

        A leader waits for the end of the loop's turn otherwise: what several peers forward becomes one group.
        """
        if self.soft_state.role is not Role.LEADER or self._core.has_committed:
            self._pump()
        else:
            self._turn.collecting = False
            if self._turn.wanted:
                self._schedule_pump()

    def _schedule_pump(self) -> None:
        self._turn.wanted = True
        if not (self._turn.due or self._turn.collecting):
            self._turn.due = True
            self._runtime.call_soon(self._pump_later)

    def _pump_later(self) -> None:
        self._turn.due = False
        self._pump()

    def _pump(self) -> None:
        self._turn.collecting = True
        # Twice at most: what becomes durable within the first pass is acknowledged by the second.
        for _ in range(2):
            if self._turn.wanted and not self._stopped:
                self._turn.wanted = False
                if self._pump_once():
                    # A long log is applied in many turns: ticks and what peers say come in between.
                    self._turn.wanted = True
                    break
        self._turn.collecting = False
        if self._turn.wanted and not self._stopped:
            self._schedule_pump()

    def _pump_once(self) -> bool:
        """Carry out what there is; True if the turn is over before all of it is applied."""
        applied = unfinished = False
        begun_ms = 0.0
        try:
            while not (self._stopped or unfinished) and (ready := self._core.ready()) is not None:
                begun_ms = begun_ms or self._runtime.monotonic_ms()
                unfinished = self._carry_out(ready, begun_ms)
                if not ready.committed:
                    break
                applied = True
            if applied:
                self._application.turn_ended()
            # In this order: what was sent is on its way during the fsync.
            if self._turn.sent:
                self._turn.sent = False
                self._transport.flush()
            if self._turn.submitted:
                self._turn.submitted = False
                self._journal.flush_turn()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self.fail(_story(error, f"after applied index {self.applied_index}"))
        return unfinished

    def _carry_out(self, ready: Ready, now_ms: float) -> bool:
        """Do what a Ready asks in the order of its contract; True if that took the turn's time."""
        if ready.configuration is not None:
            self._take_configuration(ready.configuration)
        if ready.persist is not None:
            seq, hard_state, entries = ready.persist
            records: tuple[Record, ...] = entries if hard_state is None else (hard_state, *entries)
            self._undurable.handed_over(seq, now_ms)
            self._journal.submit(records, partial(self._on_durable, seq))
            self._turn.submitted = True
        for message in ready.messages:
            node = self.links.connected.get(message.receiver)
            if node is not None:
                self._turn.sent = True
                self._transport.send(node, message)
        if ready.persist is not None and self._turn.sent:
            # New entries go out before anything is applied; a mere advance of the commit index waits for the
            # replies of this turn.
            self._turn.sent = False
            self._transport.flush()
        if ready.soft_state is not None:
            self._take_soft_state(ready.soft_state)
        over = False
        for entry in ready.committed:
            self._apply(entry)
            if over := self._runtime.monotonic_ms() > now_ms + TURN_MS_MAX:
                self._core.hand_back(entry.index)
                break
        if ready.snapshot_reads or ready.snapshot_releases or ready.snapshot_writes or ready.snapshot_aborts:
            self._exchange.carry_out(ready)
        return over

    def _apply(self, entry: Entry) -> None:
        try:
            self._application.apply(entry)
        except Exception as error:
            what = f"applying entry {entry.index} ({entry.kind!r}, term {entry.term}) failed"
            raise NodeStoppedError.during(what, error) from error
        self.applied_index = entry.index
        if entry.index in self._waiting:
            for term, callback in self._waiting.pop(entry.index):
                callback(term == entry.term)

    def _on_durable(self, seq: int) -> None:
        """An fsync covers this persist: what waited for it may leave in this very turn."""
        self._undurable.became_durable(seq)
        self.step(Persisted(seq))

    def _take_soft_state(self, soft_state: SoftState) -> None:
        self.soft_state = soft_state
        log.info(
            "became %s in term %d (leader: %s, last index %d, applied %d)%s",
            soft_state.role.value,
            soft_state.term,
            soft_state.leader_id or "unknown",
            self._core.status().last_index,
            self.applied_index,
            f", halted: {soft_state.halted}" if soft_state.halted else "",
        )
        # While no leader is known ticks are closer.
        self._arm_ticker(self._runtime.monotonic_ms())
        if soft_state.leader_id:
            self.links.drop_others(self._core.linked_members())
        self._application.leadership_changed(soft_state)

    def _take_configuration(self, configuration: Configuration) -> None:
        self.links.peers = configuration.peer_ids(self.node_id)
        members = self._core.linked_members()
        self.links.add(members)
        self.links.drop_others(members)

    # --- what the shell above asks ----------------------------------------------------------------

    @property
    def term(self) -> int:
        """The current term."""
        return self.soft_state.term

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term; None while unknown."""
        return self.soft_state.leader_id or None

    @property
    def leads(self) -> bool:
        """True while this node is the leader."""
        return self.soft_state.role is Role.LEADER

    def peer_ids(self) -> list[int]:
        """The other members, ascending."""
        return list(self.links.peers)

    def voter_ids(self) -> tuple[int, ...]:
        """The voters of the latest configuration; before there is one, everybody that is known."""
        configuration = self.configuration
        return (self.node_id, *self.links.peers) if configuration is None else tuple(configuration.voters)

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration in the log, committed or not; None before the founding."""
        return self._core.configuration

    @property
    def configuration_index(self) -> int:
        """Log index of the latest configuration, committed or not."""
        return self._core.status().configuration_index

    def status(self) -> Status:
        """What the core is at."""
        return self._core.status()

    def is_connected(self, node_id: int) -> bool:
        """Tell whether the link to a member is up."""
        return node_id in self.links.connected

    def followers(self) -> tuple[int, int]:
        """Return how many other members are connected to this leader, and how many have all commits."""
        status = self._core.status()
        connected = [peer for peer in status.peers if peer.node_id in self.links.connected]
        return len(connected), sum(peer.match_index >= status.commit_index for peer in connected)

    @property
    def heard_by_leader_ms(self) -> float:
        """Until when, by this node's clock, the current leader is known to have heard it; -inf: no leader."""
        return self._core.contact_ms

    def contact_age_ms(self) -> float:
        """Milliseconds since a current leader was heard; on the leader, since it last heard a majority."""
        return max(0.0, self._runtime.monotonic_ms() - self._core.contact_ms)

    def hears_leader(self) -> bool:
        """Tell whether a leader is known and was heard within the longest election timeout."""
        return self.contact_age_ms() <= self._election_timeout_max_ms

    def known_index(self) -> int | None:
        """Return the highest commit index that it heard of; None without a leader, or while installing."""
        return self._core.known_index if self.hears_leader() else None

    def undurable_ms(self) -> float:
        """Milliseconds for which the oldest group waits for this node's disk; 0.0 if all is durable."""
        # A look at the clock costs more than the usual answer.
        return 0.0 if self._undurable.idle else self._undurable.age_ms(self._runtime.monotonic_ms())

    def transfer(self, node_id: int | None) -> bool:
        """Begin to hand leadership to a voter (None: the furthest in contact); tell whether it was begun."""
        try:
            self.begin_transfer(node_id)
        except core_errors.TransferError as error:
            log.warning("leadership stays here: %s", error)
            return False
        return True

    def begin_transfer(self, node_id: int | None) -> None:
        """Begin to hand leadership to a voter; a TransferError changed nothing."""
        self._core.step(Transfer(node_id), self._runtime.monotonic_ms())
        self._schedule_pump()

    def change_members(self, change: MembershipChange) -> int:
        """Append a change of members to this leader's log and return its index; see the core's."""
        index = self._core.change_members(change)
        self._schedule_pump()
        return index

    def when_applied(self, index: int, term: int, callback: Callable[[bool], None]) -> None:
        """Call back once, when an entry was applied at `index`: whether it was that of `term`.

        Never, if a snapshot covers the index first.
        """
        self._waiting.setdefault(index, []).append((term, callback))


def _story(error: BaseException, where: str) -> BaseException:
    return error if isinstance(error, QuorateError) else NodeStoppedError.during(where, error)
