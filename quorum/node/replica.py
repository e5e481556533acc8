"""The replica: one node's state machine between the Raft engine below and the client front end above.

It packs the runs of one turn of the event loop into a batch, applies committed entries in order, hands each
outcome to whoever waits for it, lets the leader propose the end of silent sessions and of nodes past their
lifetime, reports touched sessions to the leader, and lets members compare their states. The only hard state
is the machine; it changes only in `apply` and `install`. Sockets, frames and files belong to others.

Order contract, kept in `_apply_batch`: an entry is applied as a whole, one run at a time; between two runs
the front end answers the reads that wait behind the first, so a read sees every write before it on its
connection and none behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgpack

from quorum.core.machine import StateMachine, config_version
from quorum.core.reaping import Rounds
from quorum.core.watches import WatchTable
from quorum.errors import NotLeaderError, ProposalRefusedError, QuorateError, shown
from quorum.node.catching_up import CatchingUp
from quorum.node.digests import DigestCheck
from quorum.platform.runtime import Runtime
from quorum.raft.core.configuration import Configuration, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Role, SoftState
from quorum.raft.datadir.founding import parse_founding
from quorum.raft.engine.contracts import ShellMessage
from quorum.raft.engine.engine import Engine
from quorum.raft.requests.administration import Administration, Asked, Told
from quorum.raft.requests.origin_shell import Forwarder
from quorum.raft.requests.origins import Batch, DigestDifference, DigestNotice, SessionTouches
from quorum.raft.requests.payloads import BATCH_FORMAT, BATCH_HEAD, CONTROL_FORMAT, REQUEST_FORMAT, fields_of
from quorum.raft.requests.requests import Action, LeaderRequest
from quorum.server.connection import ClientConnection
from quorum.server.frontend import Frontend
from quorum.server.sessions import SessionTracker

log = logging.getLogger("quorate.replica")

#: unapplied payload bytes of this node above which client connections are no longer read
BACKLOG_BYTES_MAX = 64 * 1024 * 1024
#: of an encoded batch, besides its runs
BATCH_HEAD_BYTES_MAX = 64
#: sessions that one expiry entry names at most; the others come with the next
EXPIRIES_PER_ENTRY_MAX = 1000
#: sessions that one report to the leader names at most; the others come with the next
TOUCHES_PER_REPORT_MAX = 10_000
#: deletions of containers and TTL nodes that one entry holds at most, and fewer if their paths are as long as
#: a batch may be; the others come with the next
REAPS_PER_ENTRY_MAX = 1000


class Observer(Protocol):
    """Who must know what became part of the state: snapshots and the node's identity."""

    def entry_applied(self, entry: Entry) -> None:
        """An entry became part of the state."""


class NodeReplica:
    """One node's copy of the state, and its part in changing it."""

    #: what is told of every state that replaces this one
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
        frontend: Frontend,
        *,
        incarnation: int,
        forward_deadline_ms: float,
        heartbeat_interval_ms: float,
        batch_bytes_max: int,
        entry_bytes_max: int,
        container_check_interval_ms: float,
    ) -> None:
        """Join the parts; nothing is submitted before the engine starts.

        Args:
            machine: the state, as restored from a snapshot; the log behind it is applied through `apply`.
            engine: the Raft log.
            runtime: clock and loop.
            frontend: the client side; gets outcomes and events.
            incarnation: this process's durable origin incarnation.
            forward_deadline_ms: after this long without an outcome a batch's outcome is unknown.
            heartbeat_interval_ms: how often touched sessions are reported.
            batch_bytes_max: a batch is closed when it reaches this size; a single run may exceed it by one
                frame.
            entry_bytes_max: what the log takes; a run that no batch of this size can hold is refused.
            container_check_interval_ms: how often the leader looks for containers and TTL nodes that are due.
        """
        self.machine = machine
        self.watches: WatchTable[ClientConnection] = WatchTable()
        self.sessions = SessionTracker()
        self._engine = engine
        self._runtime = runtime
        self._frontend = frontend
        self._observer: Observer | None = None
        self._forwarder: Forwarder[ClientConnection] = Forwarder(
            engine,
            lambda: self.machine.origins,
            self._outcome_unknown,
            incarnation=incarnation,
            deadline_ms=forward_deadline_ms,
        )
        #: what operators ask of the cluster through this node
        self.administration = Administration(
            engine,
            self._forwarder,
            lambda: config_version(self.machine),
            deadline_ms=forward_deadline_ms,
        )
        self.digests = DigestCheck(engine, machine)
        self._batch_bytes_max = batch_bytes_max
        self._run_bytes_max = entry_bytes_max - BATCH_HEAD_BYTES_MAX
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._packer = msgpack.Packer(use_bin_type=True, autoreset=True)
        self._pack = self._packer.pack
        self._open_runs: list[bytes] = []
        self._open_tokens: list[ClientConnection] = []
        self._open_bytes = 0
        self._close_scheduled = False
        self._close_batch_soon = engine.guarded("closing a batch", self._close_batch)
        self._nonce = incarnation << 32
        self._ready_term = 0
        self._reported_ms = 0.0
        self._late = False
        self._catching_up = CatchingUp()
        self._reaping = Rounds(container_check_interval_ms)
        self._when_deposed: list[Callable[[], None]] = []
        self.when_installed = []

    def attach(self, observer: Observer) -> None:
        """Set who is told of every applied entry; once, before the engine starts."""
        self._observer = observer

    # --- client writes going down -----------------------------------------------------------------

    def next_nonce(self) -> int:
        """Return a connection id that this node never used before, in any of its lives."""
        self._nonce += 1
        return self._nonce

    def submit(
        self,
        connection: ClientConnection,
        session_id: int,
        nonce: int,
        identities: list[list[str]] | None,
        commands: list[list[Any]],
    ) -> bool:
        """Take a run: consecutive writes of one connection with no read between them.

        Its outcome comes to `Frontend.run_applied` once this node applied it, or to `Frontend.lost` if it
        never will be known. Runs of one connection keep their order.

        Returns:
            False if it is refused, because no entry could hold it; nothing happened then.
        """
        packed = self._pack([session_id, nonce, identities, commands])
        if len(packed) > self._run_bytes_max:
            return False
        if self._open_bytes and self._open_bytes + len(packed) > self._batch_bytes_max:
            # Without a pump: what it applies would be answered to connections that are being read.
            self._hand_over()
        self._open_runs.append(packed)
        self._open_tokens.append(connection)
        self._open_bytes += len(packed)
        if not self._close_scheduled:
            self._close_scheduled = True
            self._runtime.call_soon(self._close_batch_soon)
        return True

    def saturated(self) -> bool:
        """Tell whether so much waits for commit that client connections must not be read for now."""
        return self.backlog_bytes > BACKLOG_BYTES_MAX

    @property
    def node_id(self) -> int:
        """The node's id."""
        return self._engine.node_id

    @property
    def registered(self) -> bool:
        """Whether this node's batches can be applied: its origin incarnation went through the log."""
        return self._forwarder.is_registered

    @property
    def backlog_bytes(self) -> int:
        """Payload bytes of this node's clients that wait for their outcome."""
        return self._forwarder.backlog_bytes + self._open_bytes

    @property
    def batches_abandoned(self) -> int:
        """Batches whose outcome was given up as unknown."""
        return self._forwarder.batches_abandoned

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

    def _close_batch(self) -> None:
        """Hand what was submitted in this turn to the leader, and carry that out."""
        self._close_scheduled = False
        if self._open_runs:
            self._hand_over()
            self._engine.pump_now()

    def _hand_over(self) -> None:
        """Give the open runs a number, as one batch, and hand it to the leader."""
        runs = self._open_runs
        forwarder = self._forwarder
        head = self._pack([BATCH_FORMAT, self._engine.node_id, forwarder.incarnation, forwarder.next_number])
        # An array of five: the four of `head` (without its own header byte), then the array of runs.
        payload = b"".join((b"\x95", head[1:], self._packer.pack_array_header(len(runs)), *runs))
        tokens = tuple(self._open_tokens)
        self._open_runs = []
        self._open_tokens = []
        self._open_bytes = 0
        forwarder.submit(payload, tokens, self._runtime.monotonic_ms())

    # --- committed entries coming up --------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Apply one committed entry; called in log order, each entry once.

        Raises:
            PayloadFormatError: a newer version wrote it: the node must stop, and be updated.
            Exception: the entry cannot be decoded or the machine is not total: the node must stop.
        """
        index, term, kind, stamp_ms, payload = entry
        if kind == EntryKind.BATCH:
            self._apply_batch(index, term, stamp_ms, payload)
        elif kind == EntryKind.NOOP:
            self.machine.apply_noop(index, term, stamp_ms)
            self._maybe_ready(term)
        elif kind == EntryKind.CONTROL:
            (proposals,) = fields_of(kind, payload)
            self._frontend.observe_results(self.machine.apply_control(index, term, stamp_ms, proposals))
            self.administration.answers_applied(proposals)
        elif kind == EntryKind.REGISTER:
            node_id, incarnation = fields_of(kind, payload)
            self.machine.apply_register(index, term, stamp_ms, node_id, incarnation)
            self._forwarder.registered(node_id, incarnation)
        else:
            self._apply_configuration(entry)
        if index == self.digests.wanted_index:
            self.digests.compare(self._runtime.monotonic_ms())
        if self._observer is not None:
            self._observer.entry_applied(entry)

    def _apply_batch(self, index: int, term: int, stamp_ms: int, payload: bytes) -> None:
        if payload[:2] != BATCH_HEAD:
            fields_of(EntryKind.BATCH, payload)
        shape, origin, incarnation, number, runs = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        if shape == REQUEST_FORMAT:
            self._apply_request(index, term, stamp_ms, Asked(origin, incarnation, number), runs)
            return
        frontend = self._frontend
        outcomes = self.machine.apply_batch(index, term, stamp_ms, origin, incarnation, number, runs)
        batch = None
        if origin == self._engine.node_id:
            batch = self._forwarder.applied(number, incarnation, self._runtime.monotonic_ms())
        if batch is None:
            for outcome in outcomes:
                frontend.observe(outcome)
            return
        for token, outcome in zip(batch.tokens, outcomes, strict=True):
            frontend.run_applied(token, outcome)

    def _apply_request(self, index: int, term: int, stamp_ms: int, asked: Asked, request: object) -> None:
        """Apply an operator's request: to the machine it is a batch of one run that does nothing."""
        if not list(self.machine.apply_batch(index, term, stamp_ms, *asked, [None])):
            return
        if asked.origin == self._engine.node_id:
            self._forwarder.applied(asked.number, asked.incarnation, self._runtime.monotonic_ms())
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
            self._frontend.observe_results([result])

    def configuration(self) -> Configuration | None:
        """The applied configuration; None before the founding."""
        payload = self.machine.configuration
        return parse_configuration(payload) if payload else None

    def ask(self, request: LeaderRequest, told: Told) -> None:
        """Take an operator's request; `told` gets its outcome, once, by the forward deadline."""
        submit = self._engine.guarded("a request of an operator", self.administration.submit)
        submit(request, told, self._runtime.monotonic_ms())

    def change_member(
        self,
        node_id: int,
        address: str | None,
        config_version: int | None,
        told: Callable[[QuorateError | None], None],
    ) -> None:
        """Let a node join, or go if no address is given, for a client of this node."""
        action = Action.REMOVE if address is None else Action.ADD
        request = LeaderRequest(action, node_id, address or "", config_version)
        self.ask(request, lambda result: told(result if isinstance(result, QuorateError) else None))

    def turn_ended(self) -> None:
        """Everything that was committed in this turn is applied: let the answers go."""
        self._frontend.end_of_turn()

    def install(self, machine: StateMachine) -> None:
        """Replace the state by that of a snapshot; clients of this node come back and arm their watches."""
        self.machine = machine
        self.digests.installed(machine)
        self.watches = WatchTable()
        self._frontend.installed()
        incarnation, number = machine.origins.get(self._engine.node_id, (0, 0))
        self._forwarder.installed(number, incarnation)
        for callback in self.when_installed:
            callback(machine)

    # --- leadership, peers, time ------------------------------------------------------------------

    def leadership_changed(self, soft_state: SoftState) -> None:
        """React to a new role, term or leader."""
        self.digests.leadership_changed()
        self.administration.leadership_changed(soft_state.transfer_target)
        self.sessions.report_again()
        waited_ms = self._engine.undurable_ms()
        if soft_state.transfer_target and waited_ms >= self._frontend.options.contact_loss_ms_max:
            log.warning("begins to hand over: this disk made nothing durable for %.0f ms", waited_ms)
        if soft_state.role is not Role.LEADER or soft_state.term != self._ready_term:
            self._ready_term = 0
            self._engine.accepts_proposals = False
            self.sessions.step_down()
            self._forwarder.leader_changed()
            if soft_state.leader_id and not self._engine.leads:
                for callback in self._when_deposed:
                    callback()
                self._when_deposed.clear()
        else:
            # A transfer of leadership began, or was given up.
            self._engine.accepts_proposals = not soft_state.transfer_target
            if self._engine.accepts_proposals:
                self._forwarder.leader_ready()

    def _maybe_ready(self, term: int) -> None:
        """Accept from here on: a leader that applied its term's first entry has applied all before it."""
        engine = self._engine
        if self._ready_term or not engine.leads or engine.term != term:
            return
        self._ready_term = term
        timeouts_ms = [(session.session_id, session.timeout_ms) for session in self.machine.sessions.values()]
        now_ms = self._runtime.monotonic_ms()
        self.sessions.become_leader(timeouts_ms, now_ms)
        self._reaping.restart(now_ms)
        if engine.soft_state.transfer_target:
            # Leadership is being handed over already; if that is given up, leadership_changed accepts.
            return
        engine.accepts_proposals = True
        self._forwarder.leader_ready()

    def when_deposed(self, callback: Callable[[], None]) -> None:
        """Call back once when another node leads."""
        self._when_deposed.append(callback)

    def peer_connected(self, node_id: int) -> None:
        """A link is new: to the leader, what was on the old one may be lost."""
        self.digests.peer_connected()
        if node_id == self._engine.leader_id:
            self._forwarder.leader_reconnected()
            self.sessions.report_again()

    def receive(self, message: ShellMessage) -> None:
        """Take a message of the current term."""
        if isinstance(message, SessionTouches):
            if self.sessions.leading:
                now_ms = self._runtime.monotonic_ms()
                for session_id in message.session_ids:
                    self.sessions.touched(session_id, now_ms)
        elif isinstance(message, DigestNotice | DigestDifference):
            self.digests.receive(message, self._runtime.monotonic_ms())
        else:
            self._forwarder.receive(message)

    def tick(self, now_ms: float, stall_ms: float) -> None:
        """Expire on the leader, report, give up what is overdue."""
        # After a pause what has arrived is read first: outcomes that are there already are not given up.
        if not stall_ms or self._late:
            self._forwarder.tick(now_ms)
            self.administration.tick(now_ms)
        self._late = stall_ms > 0
        self.caught_up()
        self.digests.tick()
        if self.sessions.leading:
            if stall_ms:
                self.sessions.add_stall(stall_ms)
            if self._engine.accepts_proposals:
                self._expire(now_ms)
                self._reap(now_ms)
        if now_ms - self._reported_ms >= self._heartbeat_interval_ms:
            self._report(now_ms)
        self._frontend.tick(now_ms)

    def _expire(self, now_ms: float) -> None:
        judged_index = self.machine.applied_index
        due = self.sessions.due(now_ms, EXPIRIES_PER_ENTRY_MAX)
        sessions = self.machine.sessions
        proposals = [["expire", sid, sessions[sid].nonce, judged_index] for sid in due if sid in sessions]
        if proposals:
            log.info("proposing to expire %d sessions that were silent: %s", len(proposals), _ids(due))
            self._propose(proposals)

    def _reap(self, now_ms: float) -> None:
        """Propose the deletion of containers and TTL nodes that are due; apply judges them again."""
        machine = self.machine
        stamp_ms = max(self._runtime.wall_ms(), machine.last_stamp_ms)
        due = self._reaping.look(machine.tree, now_ms, stamp_ms, REAPS_PER_ENTRY_MAX, self._batch_bytes_max)
        if due:
            log.info("proposing to delete %d containers and TTL nodes: %s, …", len(due), shown(due[0][0]))
            self._propose([["reap", path, czxid] for path, czxid in due])

    def _propose(self, proposals: list[list[Any]]) -> None:
        """Append proposals of this leader; what it cannot append stays until the next round."""
        try:
            self._engine.propose(EntryKind.CONTROL, msgpack.packb([CONTROL_FORMAT, proposals]))
        except NotLeaderError as error:
            log.info("left what is due to the next leader: %s", error)
        except ProposalRefusedError as error:
            # A path that a member with larger limits let in.
            log.error("left what is due as it is: %s", error)

    def _report(self, now_ms: float) -> None:
        leader = self._engine.leader_id
        if leader is None:
            return
        self._reported_ms = now_ms
        if self._engine.leads:
            self.digests.say()
        elif touched := self.sessions.take_report(
            TOUCHES_PER_REPORT_MAX, now_ms, self._engine.heard_by_leader_ms
        ):
            self._engine.send(SessionTouches(self._engine.term, self._engine.node_id, leader, tuple(touched)))

    def _outcome_unknown(self, batches: list[Batch[ClientConnection]]) -> None:
        lost = {token for batch in batches for token in batch.tokens}
        kept = [
            (run, token)
            for run, token in zip(self._open_runs, self._open_tokens, strict=True)
            if token not in lost
        ]
        self._open_runs = [run for run, _ in kept]
        self._open_tokens = [token for _, token in kept]
        self._open_bytes = sum(map(len, self._open_runs))
        for batch in batches:
            for token in batch.tokens:
                self._frontend.lost(token)


def _ids(session_ids: list[int]) -> str:
    """Print the first few session ids as ZooKeeper's tools do."""
    head = ", ".join(f"0x{session_id:x}" for session_id in session_ids[:5])
    return head if len(session_ids) <= 5 else f"{head}, …"
