"""The engine: hosts the pure Raft core inside pysyncobj's SyncObj.

SyncObj gives the configuration and node classes, the transport contract, the tick, the proposal entry
(`_applyCommand`), FAIL_REASON and the public status API; the core decides. Every method of SyncObj through
which its own replication would run is replaced here, so none of its journal, serializer, pickles or threads
is ever reached. The engine turns events (messages, ticks, finished fsyncs) into stimuli and carries out
each `Ready` in the order that it contracts: persist, send, apply. It decides nothing about terms, votes or
commit, and knows nothing about znodes.

Within one turn of the event loop all stimuli are taken in first and one `ready()` follows, so a burst of
proposals becomes one append per peer and one group in the journal. An exception anywhere below the event loop
stops the node with its story: it never goes on with half a step done.

Source: Raft §5; etcd-io/raft (Ready); the design of pysyncobj 0.3.17.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVarTuple

from pysyncobj import FAIL_REASON

from quorum.errors import NodeStoppedError, NotLeaderError, ProposalRefusedError, QuorateError
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.core import errors as core_errors
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import (
    Halt,
    Message,
    PeerDown,
    PeerUp,
    Persisted,
    Ready,
    Receive,
    Resume,
    Role,
    SoftState,
    Stimulus,
    Tick,
)
from quorum.raft.core.raft import Raft
from quorum.raft.engine.contracts import (
    Application,
    JournalSink,
    MemberTransport,
    ShellMessage,
    SnapshotExchange,
)
from quorum.raft.engine.syncobj_host import SyncObjHost, library_settings, refuse_foreign_library
from quorum.raft.engine.undurable import Undurable
from quorum.raft.journal.format import OriginIncarnation, Record
from quorum.raft.peers.peers import PeerNode, speaks_for_member
from quorum.raft.requests.origins import incarnation_above

log = logging.getLogger("quorate.raft")

#: between two ticks while no leader is known, or leadership is being handed over
TICK_INTERVAL_MS = 10.0
#: share of the heartbeat interval between two ticks otherwise; the core's deadline may ask for an earlier one
STEADY_TICK_SHARE = 0.4
SAME_LIMITS_REMEDY = "give all members the same raft.batch_bytes_max and limits.frame_bytes_max"
#: how long one turn of the loop goes on carrying out one Ready after the other
TURN_MS_MAX = 5.0

Arguments = TypeVarTuple("Arguments")


class Engine(SyncObjHost):
    """One node of the replicated log."""

    def __init__(
        self,
        core: Raft,
        transport: MemberTransport,
        journal: JournalSink,
        runtime: Runtime,
        *,
        node_id: int,
        peer_ids: Iterable[int],
        applied_index: int,
        election_timeout_ms: tuple[int, int],
        heartbeat_interval_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Join core and transport; nothing runs before `start`.

        Args:
            core: the decider, restored from journal and snapshot.
            transport: carries messages between members; its callbacks become this engine's.
            journal: makes persists durable.
            runtime: clock and event loop.
            node_id: this node's id.
            peer_ids: the other members as far as known at the start.
            applied_index: last index that the restored state covers.
            election_timeout_ms: lower and upper bound.
            heartbeat_interval_ms: also how often touched sessions are reported.
            on_failure: told once, with the story, when the engine stopped itself.

        Raises:
            QuorateError: another release of pysyncobj is installed, or a subclass has a @replicated method.
        """
        refuse_foreign_library(type(self))
        self.node_id = node_id
        self._core = core
        self._journal = journal
        self._runtime = runtime
        self._peer_transport = transport
        self._on_failure = on_failure
        self._application: Application | None = None
        self._exchange: SnapshotExchange | None = None
        self._election_timeout_max_ms = election_timeout_ms[1]
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self.soft_state = SoftState(Role.FOLLOWER, core.status().term, 0, 0, "")
        #: ids of the other members in the latest configuration, ascending
        self._peers = tuple(sorted(peer_ids))
        self.applied_index = applied_index
        #: True on a leader that applied the first entry of its own term and hands leadership to nobody
        self.accepts_proposals = False
        self._connected: dict[int, PeerNode] = {}
        self._named = frozenset(self._peers)
        #: ids of the links that the log asks for
        self._linked: set[int] = set()
        #: {node id: monotonic ms until when it is known to have heard this node in the current term}
        self._contacts: dict[int, float] = {}
        #: {index: [(term, callback)]} of proposals that asked for their fate
        self._waiting: dict[int, list[tuple[int, Callable[[int | None, int], None]]]] = {}
        self._undurable = Undurable()
        self._pump_scheduled = False
        self._timer: TimerHandle | None = None
        #: when the next tick is due
        self._tick_ms = runtime.monotonic_ms()
        self.failure: BaseException | None = None
        self._stopped = False
        self._join_syncobj(transport, election_timeout_ms)

    def _join_syncobj(self, transport: MemberTransport, election_timeout_ms: tuple[int, int]) -> None:
        """Let SyncObj take the transport, and then take its callbacks for ourselves."""
        conf = library_settings(election_timeout_ms, self._heartbeat_interval_ms)
        peers = [PeerNode(peer) for peer in self._peers]
        super().__init__(PeerNode(self.node_id), peers, conf=conf, transport=transport)
        for word in ("status", "add", "remove", "set_version", "transfer"):
            transport.setOnUtilityMessageCallback(word, None)
        transport.setOnNodeConnectedCallback(self._on_connected)
        transport.setOnNodeDisconnectedCallback(self._on_disconnected)
        transport.setOnMessageReceivedCallback(self._on_message)
        transport.setOnChunkReceivedCallback(self._on_chunk)
        transport.setOnReadonlyNodeConnectedCallback(None)
        transport.setOnReadonlyNodeDisconnectedCallback(None)

    # --- life -------------------------------------------------------------------------------------

    def attach(self, application: Application, exchange: SnapshotExchange) -> None:
        """Set what stands on top; once, before `start`."""
        self._application = application
        self._exchange = exchange

    def start(self) -> None:
        """Begin to tick."""
        self._arm_timer(self._runtime.monotonic_ms())
        self._schedule_pump()

    def stop(self) -> None:
        """Stop ticking and listening to the transport; what is not durable stays unacknowledged."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._peer_transport.setOnMessageReceivedCallback(None)
        self._peer_transport.setOnChunkReceivedCallback(None)
        self._peer_transport.setOnNodeConnectedCallback(None)
        self._peer_transport.setOnNodeDisconnectedCallback(None)

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

    def halt(self, reason: str) -> None:
        """The disk is full: the core acknowledges nothing until `resume`."""
        self.step(Halt(reason))

    def resume(self) -> None:
        """The disk takes writes again."""
        self.step(Resume())

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to this leader's log, stamped now.

        Returns:
            Its log index. It is committed only if `Application.apply` sees it.

        Raises:
            NotLeaderError: definite; this node does not lead, hands leadership over, or has too much
                uncommitted.
            ProposalRefusedError: definite; the payload is too large for this node's limits, or of a kind that
                only the core appends.
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
        self._transmit(message.receiver, message)

    def make_incarnation_durable(self, incarnation: int, then: Callable[[], None]) -> None:
        """Write an origin incarnation to the journal and call back after the fsync that covers it."""
        self._journal.submit((OriginIncarnation(incarnation),), then)

    def draw_incarnation_above(self, known: int) -> int:
        """Draw an origin incarnation above that of another disk of this node."""
        return incarnation_above(known, self._runtime.random)

    # --- events -----------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        self._timer = None
        if not self._stopped:
            self._onTick()

    def _arm_timer(self, now_ms: float) -> None:
        """Ask for the next tick: when the core has something to do, or in the usual time if that is sooner.

        One that is due earlier, or overdue because this process stood still, stays as it is.
        """
        unsettled = not self.soft_state.leader_id or self.soft_state.transfer_target
        usual_ms = TICK_INTERVAL_MS if unsettled else STEADY_TICK_SHARE * self._heartbeat_interval_ms
        tick_ms = now_ms + max(1.0, min(usual_ms, self._core.deadline_ms - now_ms))
        if self._timer is not None:
            if self._tick_ms <= tick_ms:
                return
            self._timer.cancel()
        self._tick_ms = tick_ms
        self._timer = self._runtime.call_later(tick_ms - now_ms, self._on_timer)

    def _onTick(self, timeToWait: float = 0.0) -> None:  # noqa: ARG002, N802, N803 - SyncObj's name
        """Take one tick; SyncObj's own polling loop is not used, so `timeToWait` does nothing."""
        now_ms = self._runtime.monotonic_ms()
        late_ms = now_ms - self._tick_ms
        self.step(Tick(self._runtime.wall_ms(), self._undurable.age_ms(now_ms)))
        if not self._stopped:
            self._arm_timer(now_ms)
        if self._application is not None and not self._stopped:
            self._guard(
                "tick",
                self._application.tick,
                now_ms,
                late_ms if late_ms > self._heartbeat_interval_ms else 0.0,
            )

    def _on_connected(self, node: PeerNode) -> None:
        self._connected[node.node_id] = node
        self.step(PeerUp(node.node_id))
        if self._application is not None:
            self._guard("peer_connected", self._application.peer_connected, node.node_id)

    def _on_disconnected(self, node: PeerNode) -> None:
        self._connected.pop(node.node_id, None)
        self.step(PeerDown(node.node_id))

    def _on_message(self, node: PeerNode, message: Message | ShellMessage) -> None:
        counts = not self.leads or speaks_for_member(self.configuration, node)
        if isinstance(message, ShellMessage):
            if counts and message.term == self.term and self._application is not None:
                self._guard("receive", self._application.receive, message)
        else:
            self.step(Receive(message, node.incarnation))
        if counts and message.term == self.term:
            self._note_contact(message)

    def guarded(self, what: str, call: Callable[[*Arguments], None]) -> Callable[[*Arguments], None]:
        """Return a callback for the event loop in which an exception stops the node with its story."""

        def callback(*arguments: *Arguments) -> None:
            self._guard(what, call, *arguments)

        return callback

    def _guard(self, what: str, call: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self.fail(_story(error, what))

    # --- carrying out -----------------------------------------------------------------------------

    def pump_now(self) -> None:
        """Carry out now what this turn asked for; for a caller that has collected the turn itself."""
        if self._pump_scheduled:
            self._pump()
        else:
            self._peer_transport.flush()

    def _on_chunk(self) -> None:
        """A peer's chunk of messages is taken: answer it as one, and at once if it lets something be applied.

        A leader waits for the end of the loop's turn otherwise: what several peers forward becomes one group.
        """
        if not self.leads or self._core.has_committed:
            self.pump_now()

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._runtime.call_soon(self._pump)

    def _pump(self) -> None:
        # Twice at most: what becomes durable within the first pass is acknowledged by the second.
        for _ in range(2):
            if not self._pump_scheduled or self._stopped:
                return
            self._pump_scheduled = False
            self._pump_once()

    def _pump_once(self) -> None:
        applied = False
        begun_ms = self._runtime.monotonic_ms()
        try:
            while not self._stopped and (ready := self._core.ready()) is not None:
                if not self._carry_out(ready, begun_ms):
                    break
                applied = True
                if self._runtime.monotonic_ms() > begun_ms + TURN_MS_MAX:
                    # A long log is applied in many turns, so that heartbeats are answered in between.
                    self._schedule_pump()
                    break
            if applied and self._application is not None:
                self._application.turn_ended()
            # In this order: what was sent is on its way during the fsync.
            self._peer_transport.flush()
            self._journal.flush_turn()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self.fail(_story(error, f"after applied index {self.applied_index}"))

    def _carry_out(self, ready: Ready, now_ms: float) -> bool:
        """Do what a Ready asks in the order of its contract; True if something was applied."""
        application, exchange = self._application, self._exchange
        assert application is not None
        assert exchange is not None
        if ready.configuration is not None:
            self._take_configuration(ready.configuration)
        if ready.persist is not None:
            seq, hard_state, entries = ready.persist
            records: tuple[Record, ...] = entries if hard_state is None else (hard_state, *entries)
            self._undurable.handed_over(seq, now_ms)
            self._journal.submit(records, partial(self._on_durable, seq))
        for message in ready.messages:
            self._transmit(message.receiver, message)
        if ready.persist is not None:
            # New entries go out before anything is applied; a mere advance of the commit index waits for the
            # replies of this turn.
            self._peer_transport.flush()
        if ready.soft_state is not None:
            self._take_soft_state(ready.soft_state)
        for entry in ready.committed:
            self._apply(application, entry)
        if ready.snapshot_reads or ready.snapshot_releases or ready.snapshot_writes or ready.snapshot_aborts:
            exchange.carry_out(ready)
        return bool(ready.committed)

    def _apply(self, application: Application, entry: Entry) -> None:
        try:
            application.apply(entry)
        except Exception as error:
            what = f"applying entry {entry.index} ({entry.kind!r}, term {entry.term}) failed"
            raise NodeStoppedError.during(what, error) from error
        self.applied_index = entry.index
        if entry.index in self._waiting:
            for term, callback in self._waiting.pop(entry.index):
                known = term == entry.term
                callback(
                    entry.index if known else None, FAIL_REASON.SUCCESS if known else FAIL_REASON.DISCARDED
                )

    def _on_durable(self, seq: int) -> None:
        """An fsync covers this persist: what waited for it may leave in this very turn."""
        self._undurable.became_durable(seq)
        self.step(Persisted(seq))

    def _transmit(self, receiver: int, message: Message | ShellMessage) -> None:
        node = self._connected.get(receiver)
        if node is not None:
            self._peer_transport.send(node, message)

    def _take_soft_state(self, soft_state: SoftState) -> None:
        previous, self.soft_state = self.soft_state, soft_state
        if previous.term != soft_state.term:
            self._contacts.clear()
        if previous.leader_id != soft_state.leader_id or not self._contacts:
            # A new leader grants every session its full timeout; one that is found again grants nothing.
            followed = (soft_state.leader_id,) if soft_state.leader_id else ()
            for node_id in self._peers if soft_state.role is Role.LEADER else followed:
                self._contacts.setdefault(node_id, self._runtime.monotonic_ms())
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
        self._arm_timer(self._runtime.monotonic_ms())
        if soft_state.leader_id:
            self._drop_links()
        if self._application is not None:
            self._application.leadership_changed(soft_state)

    def _take_configuration(self, configuration: Configuration) -> None:
        self._peers = configuration.peer_ids(self.node_id)
        for node_id, address in self._core.linked_members().items():
            if address:
                self._peer_transport.addNode(PeerNode(node_id, address))
        self._drop_links()

    def _drop_links(self) -> None:
        """Close links that neither the log nor [members] asks for; an old log does not know who leads now."""
        links = set(self._core.linked_members())
        kept = links | (self._named - self._linked)
        for node_id in sorted((self._linked | self._connected.keys()) - kept):
            self._connected.pop(node_id, None)
            self._peer_transport.dropNode(PeerNode(node_id))
        self._linked = links

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
        return list(self._peers)


def _story(error: BaseException, where: str) -> BaseException:
    if isinstance(error, QuorateError):
        return error
    return NodeStoppedError(
        f"{where}: {type(error).__name__}: {error}", "the other members go on; report this with the log"
    )
