"""The replica: one node's state machine between the Raft engine below and the client front end above.

It applies committed entries in order, hands each outcome to the caller that waits for it, and joins what
packs the writes of clients (batches.py), what ends by time (expiry.py) and the comparison of digests. The
only hard state is the machine; it changes only in `apply` and `install`. It knows its clients by `Clients`
alone.

Order contract, kept in `_apply_batch`: an entry is applied as a whole, one run at a time; between two runs
the front end answers the reads that wait for the first, so a read sees every write before it on its
connection and none after it.

Source: ARCHITECTURE.md, "Life of a write"; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgpack

from quorum.core.feature_levels import FEATURE_LEVEL
from quorum.core.machine import StateMachine
from quorum.core.queries import config_version
from quorum.core.quotas import QuotaRule
from quorum.core.results import RunOutcome
from quorum.core.session_tracker import SessionTracker
from quorum.core.watches import WatchTable
from quorum.errors import QuorateError
from quorum.node.batches import BACKLOG_BYTES_MAX, Batches
from quorum.node.catching_up import CatchingUp
from quorum.node.digests import DigestCheck
from quorum.node.expiry import Expiry
from quorum.node.importing import OnStep
from quorum.node.levels import Levels
from quorum.platform.histogram import Histogram
from quorum.platform.runtime import Runtime
from quorum.raft.core.configuration import Configuration, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Role, SoftState
from quorum.raft.datadir.founding import parse_founding
from quorum.raft.engine.contracts import ShellMessage
from quorum.raft.engine.engine import Engine
from quorum.raft.requests.administration import Administration, Asked, OnOutcome
from quorum.raft.requests.origins import DigestDifference, DigestNotice, LogIsLong, SessionTouches
from quorum.raft.requests.payloads import (
    BATCH_FORMAT,
    BATCH_HEADS,
    CONTROL_FORMAT,
    ENFORCING_BATCH_FORMAT,
    IMPORT_FORMAT,
    REQUEST_FORMAT,
    fields_of,
)
from quorum.raft.requests.requests import Action, LeaderRequest

log = logging.getLogger("quorate.replica")

#: for how many heartbeats clients of the others wait after a leader said that its log is long
HOLD_HEARTBEATS = 5.0
#: {format of a batch: what it does about quotas}
QUOTA_RULES = {BATCH_FORMAT: QuotaRule.KEPT, ENFORCING_BATCH_FORMAT: QuotaRule.ENFORCED}


class Clients(Protocol):
    """The client side of this node, as the replica sees it; `Frontend` says what each call does."""

    def applied(self, connection: Any, outcome: RunOutcome) -> None:
        """Take an outcome: of a run of this node, or with None of anything else that was applied."""

    def lost(self, connection: Any) -> None:
        """Give a connection up: a run of it has an outcome that will never be known here."""

    def end_of_turn(self) -> None:
        """Let the answers go."""

    def installed(self) -> None:
        """The state was replaced."""

    def tick(self, now_ms: float) -> None:
        """Judge time limits."""


class NodeReplica:
    """One node's copy of the state, and its part in changing it."""

    #: called with every entry that became part of the state, in this order
    when_applied: list[Callable[[Entry], None]]
    #: called with every state that replaces this one
    when_installed: list[Callable[[StateMachine], None]]
    #: term in which this node applied its own no-op as the leader; proposals are accepted only then
    _ready_term: int
    #: whether the last tick came late because this process stood still
    _late: bool

    def __init__(
        self,
        machine: StateMachine,
        engine: Engine,
        runtime: Runtime,
        clients: Clients,
        *,
        incarnation: int,
        forward_deadline_ms: float,
        heartbeat_interval_ms: float,
        batch_bytes_max: int,
        entry_bytes_max: int,
        container_check_interval_ms: float,
        enforce_quota: bool = False,
        feature_level: int = FEATURE_LEVEL,
    ) -> None:
        """Join the parts; nothing is submitted before the engine starts.

        Args:
            machine: the state, as restored from a snapshot; the log after it is applied through `apply`.
            engine: the Raft log.
            runtime: clock and loop.
            clients: the client side; gets outcomes and events.
            incarnation: this process's durable origin incarnation.
            forward_deadline_ms: after this long without an outcome a batch's outcome is unknown.
            heartbeat_interval_ms: how often touched sessions are reported.
            batch_bytes_max: a batch is closed when it reaches this size; a single run may exceed it by one
                frame.
            entry_bytes_max: what the log takes; a run that no batch of this size can hold is refused.
            container_check_interval_ms: how often the leader looks for containers and TTL nodes that are due.
            enforce_quota: whether hard limits of quotas count for the writes of this node's clients.
            feature_level: the highest that this node supports.
        """
        self.machine = machine
        self.watches: WatchTable[Any] = WatchTable()
        self._engine = engine
        self._runtime = runtime
        self._clients = clients
        self.batches = Batches(
            engine,
            runtime,
            lambda: self.machine.origins,
            clients.lost,
            incarnation=incarnation,
            deadline_ms=forward_deadline_ms,
            batch_bytes_max=batch_bytes_max,
            entry_bytes_max=entry_bytes_max,
            enforce_quota=enforce_quota,
        )
        self._expiry = Expiry(engine, runtime, batch_bytes_max, container_check_interval_ms)
        #: what operators ask of the cluster through this node
        self.administration = Administration(
            engine,
            self.batches.forwarder,
            lambda: config_version(self.machine),
            deadline_ms=forward_deadline_ms,
        )
        self.digests = DigestCheck(engine, machine)
        self.levels = Levels(engine, feature_level)
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._ready_term = 0
        self._reported_ms = 0.0
        self._late = False
        self._catching_up = CatchingUp()
        self.applies = Histogram()
        self.elections = Histogram()
        #: since when no leader is known; None while one is
        self._leaderless_ms: float | None = runtime.monotonic_ms()
        self.when_applied = []
        self.when_installed = []

    # --- client writes going down -----------------------------------------------------------------

    def next_nonce(self) -> int:
        """Return a connection id that this node never used before, in any of its lives."""
        return self.batches.next_nonce()

    def submit(
        self,
        connection: Any,
        session_id: int,
        nonce: int,
        identities: list[list[str]] | None,
        commands: list[list[Any]],
    ) -> bool:
        """Take a run; see ReplicaView."""
        return self.batches.submit(connection, [session_id, nonce, identities, commands])

    def saturated(self) -> bool:
        """Tell whether so much waits for commit that client connections must not be read for now."""
        batches = self.batches
        held = batches.log_is_long or batches.leader_holds_until_ms is not None
        return held or batches.backlog_bytes > BACKLOG_BYTES_MAX

    @property
    def log_is_long(self) -> bool:
        """Whether clients must not write until a snapshot covers more of the log; set by the snapshotter."""
        return self.batches.log_is_long

    @log_is_long.setter
    def log_is_long(self, is_long: bool) -> None:
        self.batches.log_is_long = is_long

    @property
    def sessions(self) -> SessionTracker:
        """Deadlines of sessions, on the leader, and those that this node is to report."""
        return self._expiry.sessions

    @property
    def node_id(self) -> int:
        """The node's id."""
        return self._engine.node_id

    def contact_age_ms(self) -> float:
        """Milliseconds since this node can last have known what is committed; see ReplicaView."""
        return max(self._engine.contact_age_ms(), self._engine.undurable_ms())

    def caught_up(self) -> bool:
        """Tell whether what was committed is applied, all of it once, but a short lag later."""
        return self._catching_up.look(self._engine.known_index(), self.machine.applied_index)

    def mode(self) -> str:
        """This node's part, as the four-letter words say it: leader, follower, standalone or looking."""
        engine = self._engine
        if engine.leader_id is None:
            return "looking"
        if not engine.peer_ids():
            return "standalone"
        return "leader" if engine.leads else "follower"

    def followers(self) -> tuple[int, int] | None:
        """Return (connected members, those of them that have all that is committed); None: no leader."""
        return self._engine.followers() if self._engine.leads else None

    # --- committed entries coming up --------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Apply one committed entry; called in log order, each entry once."""
        began_ms = self._runtime.monotonic_ms()
        index, term, kind, stamp_ms, payload = entry
        if kind == EntryKind.BATCH:
            self._apply_batch(index, term, stamp_ms, payload, began_ms)
        elif kind == EntryKind.NOOP:
            self.machine.apply_noop(index, term, stamp_ms)
            self._maybe_ready(term)
        elif kind == EntryKind.CONTROL:
            shape, proposals = fields_of(kind, payload)
            rule = QuotaRule.KEPT if shape >= CONTROL_FORMAT else QuotaRule.IGNORED
            results = self.machine.apply_control(index, term, stamp_ms, proposals, rule)
            self.levels.check(self.machine)
            self._clients.applied(None, RunOutcome(0, 0, results))
            self.administration.answers_applied(proposals)
        elif kind == EntryKind.REGISTER:
            _, node_id, incarnation = fields_of(kind, payload)
            self.machine.apply_register(index, term, stamp_ms, node_id, incarnation)
            self.batches.forwarder.registered(node_id, incarnation)
        else:
            self._apply_configuration(entry)
        if index == self.digests.wanted_index:
            self.digests.compare(self._runtime.monotonic_ms())
        for call in self.when_applied:
            call(entry)
        self.applies.add(self._runtime.monotonic_ms() - began_ms)

    def _apply_batch(self, index: int, term: int, stamp_ms: int, payload: bytes, now_ms: float) -> None:
        if payload[:2] not in BATCH_HEADS:
            fields_of(EntryKind.BATCH, payload)
        shape, origin, incarnation, number, runs = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        if shape == REQUEST_FORMAT:
            self._apply_request(index, term, stamp_ms, Asked(origin, incarnation, number), runs)
            return
        clients = self._clients
        if shape == IMPORT_FORMAT:
            asked, before = Asked(origin, incarnation, number), self.machine.transaction.import_source
            given = list(self.machine.apply_batch(index, term, stamp_ms, *asked, runs, imports=True))
            for outcome in given:
                clients.applied(None, outcome)
            if given and origin == self._engine.node_id:
                self.batches.forwarder.applied(number, incarnation, now_ms)
            self.batches.imports.applied(asked, given, before, self.machine.transaction.import_source)
            return
        rule = QUOTA_RULES.get(shape, QuotaRule.IGNORED)
        outcomes = self.machine.apply_batch(index, term, stamp_ms, origin, incarnation, number, runs, rule)
        batch = None
        if origin == self._engine.node_id:
            batch = self.batches.forwarder.applied(number, incarnation, now_ms)
        if batch is None:
            for outcome in outcomes:
                clients.applied(None, outcome)
            return
        for token, outcome in zip(batch.tokens, outcomes, strict=True):
            clients.applied(token, outcome)

    def _apply_request(self, index: int, term: int, stamp_ms: int, asked: Asked, request: object) -> None:
        """Apply an operator's request: to the machine it is a batch of one run that does nothing."""
        if not list(self.machine.apply_batch(index, term, stamp_ms, *asked, [None])):
            return
        if asked.origin == self._engine.node_id:
            self.batches.forwarder.applied(asked.number, asked.incarnation, self._runtime.monotonic_ms())
        self.administration.applied(asked, request, index, term)

    def _apply_configuration(self, entry: Entry) -> None:
        if entry.kind == EntryKind.FOUND:
            founding = parse_founding(entry.payload)
            cluster_id = founding.configuration.cluster_id
            self.machine.apply_found(
                entry.index, entry.term, entry.stamp_ms, cluster_id, founding.session_key, entry.payload
            )
            self._maybe_ready(entry.term)
        else:
            result = self.machine.apply_configuration(entry.index, entry.term, entry.stamp_ms, entry.payload)
            self._clients.applied(None, RunOutcome(0, 0, [result]))

    def configuration(self) -> Configuration | None:
        """The applied configuration; None before the founding."""
        payload = self.machine.configuration
        return parse_configuration(payload) if payload else None

    def ask(self, request: LeaderRequest, on_outcome: OnOutcome) -> None:
        """Take an operator's request; `on_outcome` gets its outcome, once, by the forward deadline."""
        submit = self._engine.guarded("a request of an operator", self.administration.submit)
        submit(request, on_outcome, self._runtime.monotonic_ms())

    def import_step(self, step: list[Any], on_step: OnStep) -> None:
        """Take a step of an import; `on_step` gets its result, once, by the forward deadline."""
        submit = self._engine.guarded("a step of an import", self.batches.imports.submit)
        submit(step, on_step, self._runtime.monotonic_ms())

    def change_member(
        self,
        node_id: int,
        address: str | None,
        config_version: int | None,
        on_outcome: Callable[[QuorateError | None], None],
    ) -> None:
        """Let a node join, or go if no address is given, for a client of this node."""
        action = Action.REMOVE if address is None else Action.ADD
        request = LeaderRequest(action, node_id, address or "", config_version)
        self.ask(request, lambda result: on_outcome(result if isinstance(result, QuorateError) else None))

    def turn_ended(self) -> None:
        """Everything that was committed in this turn is applied: let the answers go."""
        self._clients.end_of_turn()

    def install(self, machine: StateMachine) -> None:
        """Replace the state by that of a snapshot; clients of this node come back and arm their watches."""
        self.levels.check(machine)
        self.machine = machine
        self.digests.installed(machine)
        self.watches = WatchTable()
        self._clients.installed()
        incarnation, number = machine.origins.get(self._engine.node_id, (0, 0))
        self.batches.forwarder.installed(number, incarnation)
        for callback in self.when_installed:
            callback(machine)

    # --- leadership, peers, time ------------------------------------------------------------------

    def leadership_changed(self, soft_state: SoftState) -> None:
        """React to a new role, term or leader; a node without one counts an election once it knows one."""
        if not soft_state.leader_id:
            if self._leaderless_ms is None:
                self._leaderless_ms = self._runtime.monotonic_ms()
        elif self._leaderless_ms is not None:
            self.elections.add(self._runtime.monotonic_ms() - self._leaderless_ms)
            self._leaderless_ms = None
        self.digests.leadership_changed()
        self.administration.leadership_changed(soft_state.transfer_target)
        self.sessions.report_again()
        if soft_state.transfer_target:
            waited_ms = self._engine.undurable_ms()
            log.info("hands over; the oldest write that this disk owes waits for %.0f ms", waited_ms)
        if soft_state.role is not Role.LEADER or soft_state.term != self._ready_term:
            self._ready_term = 0
            self._engine.accepts_proposals = False
            self.sessions.step_down()
            self.batches.forwarder.leader_changed()
        else:
            # A transfer of leadership began, or was given up.
            self._engine.accepts_proposals = not soft_state.transfer_target
            if self._engine.accepts_proposals:
                self.batches.forwarder.leader_ready()

    def _maybe_ready(self, term: int) -> None:
        """Accept from here on: a leader that applied its term's first entry has applied all before it."""
        engine = self._engine
        if self._ready_term or not engine.leads or engine.term != term:
            return
        self._ready_term = term
        self._expiry.become_leader(self.machine, self._runtime.monotonic_ms())
        if engine.soft_state.transfer_target:
            # Leadership is being handed over already; if that is given up, leadership_changed accepts.
            return
        engine.accepts_proposals = True
        self.batches.forwarder.leader_ready()

    def peer_connected(self, node_id: int) -> None:
        """A link is new: to the leader, what was on the old one may be lost."""
        self.digests.peer_connected()
        if node_id == self._engine.leader_id:
            self.batches.forwarder.leader_reconnected()
            self.sessions.report_again()

    def receive(self, message: ShellMessage) -> None:
        """Take a message of the current term."""
        if isinstance(message, SessionTouches):
            self._expiry.receive(message)
        elif isinstance(message, LogIsLong):
            hold_ms = HOLD_HEARTBEATS * self._heartbeat_interval_ms
            self.batches.leader_holds_until_ms = self._runtime.monotonic_ms() + hold_ms
        elif isinstance(message, DigestNotice | DigestDifference):
            self.digests.receive(message, self._runtime.monotonic_ms())
        else:
            self.batches.forwarder.receive(message)

    def tick(self, now_ms: float, stall_ms: float) -> None:
        """Expire on the leader, report, give up what is overdue."""
        # After a pause what has arrived is read first: outcomes that are there already are not given up.
        if not stall_ms or self._late:
            self.batches.forwarder.tick(now_ms)
            self.administration.tick(now_ms)
            self.batches.imports.tick(now_ms)
        self._late = stall_ms > 0
        held_ms = self.batches.leader_holds_until_ms
        if held_ms is not None and held_ms <= now_ms:
            # Unless the leader goes on to say so.
            self.batches.leader_holds_until_ms = None
        caught_up = self.caught_up() and bool(self._ready_term or not self._engine.leads)
        known_index = self._engine.known_index()
        if self._catching_up.is_to_say(now_ms, done=caught_up or known_index is None):
            log.info("applied %d of %d committed entries", self.machine.applied_index, known_index)
        self.digests.tick()
        if self.sessions.leading:
            self._expiry.tick(self.machine, now_ms, stall_ms)
        if now_ms - self._reported_ms >= self._heartbeat_interval_ms:
            self._report(now_ms)
        self._clients.tick(now_ms)

    def _report(self, now_ms: float) -> None:
        leader = self._engine.leader_id
        if leader is None:
            return
        self._reported_ms = now_ms
        if self._engine.leads:
            self.digests.say()
            if self._engine.accepts_proposals:
                self.levels.maybe_raise(self.machine)
            if self.log_is_long:
                for node_id in self._engine.peer_ids():
                    self._engine.send(LogIsLong(self._engine.term, self._engine.node_id, node_id))
        else:
            self._expiry.report(leader, now_ms)
