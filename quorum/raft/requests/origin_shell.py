"""The shell around forwarding: hands this node's batches to the leader, and lets others' batches into the
log when leading.

It owns the origin incarnation of this process (raised durably at start and at every passed deadline), one
`OriginOutbox`, one `Inbox`, and nothing else: which node leads, what is applied and how messages travel it
asks its `ForwardingHost`.

Only the deadline makes an outcome unknown. A leader change, a lost connection or a gap only makes it send
again under the same numbers, so clients of a surviving node see a pause. A batch that the leader finds too
large, because the limits of the two differ, waits for its deadline, too; the leader's log says why.

Source: ARCHITECTURE.md, "Life of a write".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import msgpack

from quorum.errors import NotLeaderError, ProposalRefusedError
from quorum.raft.core.entry import EntryKind
from quorum.raft.requests.origins import (
    Batch,
    BatchVerdict,
    Forward,
    ForwardExpected,
    Inbox,
    OriginOutbox,
    RegisterOrigin,
)
from quorum.raft.requests.payloads import REGISTER_FORMAT

Token = TypeVar("Token")
ForwardingMessage = Forward | ForwardExpected | RegisterOrigin
log = logging.getLogger("quorate.forwarder")

#: payload bytes of one origin that may be with the leader and not applied yet
WINDOW_BYTES_MAX = 32 * 1024 * 1024
#: an unapplied batch with no progress for this long is handed to the leader again (the leader drops repeats)
RESEND_AFTER_MS = 500.0


class ForwardingHost(Protocol):
    """What the forwarder asks of the node around it."""

    node_id: int

    @property
    def term(self) -> int:
        """The current term."""

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term as far as this node knows; None while there is none."""

    @property
    def accepts_proposals(self) -> bool:
        """True on a leader that has applied its own no-op, and so everything of earlier terms."""

    def peer_ids(self) -> list[int]:
        """The other members."""

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to the leader's log; only while `accepts_proposals`."""

    def send(self, message: ForwardingMessage) -> None:
        """Send to `message.receiver`, best effort."""

    def make_incarnation_durable(self, incarnation: int, then: Callable[[], None]) -> None:
        """Write an origin incarnation to the journal and call back after the fsync that covers it."""

    def draw_incarnation_above(self, known: int) -> int:
        """Draw one above that of another disk of this node; see `origins.incarnation_above`."""


class Forwarder(Generic[Token]):
    """Batches from this node to the leader, and from all nodes into the leader's log."""

    def __init__(
        self,
        host: ForwardingHost,
        applied_origins: Callable[[], Mapping[int, tuple[int, int]]],
        on_unknown: Callable[[list[Batch[Token]]], None],
        *,
        incarnation: int,
        deadline_ms: float,
    ) -> None:
        """Start unregistered.

        Args:
            host: the engine.
            applied_origins: the state machine's {origin: (incarnation, last applied batch number)}.
            on_unknown: gets the batches whose outcome will not be known; their clients must be disconnected.
            incarnation: this process's origin incarnation, already durable.
            deadline_ms: how long a batch may stay unapplied before it is given up.
        """
        self._host = host
        self._applied_origins = applied_origins
        self._on_unknown = on_unknown
        self._deadline_ms = deadline_ms
        self._outbox: OriginOutbox[Token] = OriginOutbox(incarnation, window_bytes_max=WINDOW_BYTES_MAX)
        self._durable_incarnation = incarnation
        self._inbox = Inbox()
        #: {origin: incarnation} whose registration is in the unapplied tail of this leader
        self._registering: dict[int, int] = {}
        #: {origin: the expected number of the last answer}: one answer per gap, not per batch after it
        self._answered: dict[int, int] = {}
        self._progress_ms = 0.0
        self._resend_after_ms = RESEND_AFTER_MS
        self.batches_abandoned = 0

    @property
    def incarnation(self) -> int:
        """The origin incarnation under which new batches are packed."""
        return self._outbox.incarnation

    @property
    def next_number(self) -> int:
        """The number under which the next batch must be packed."""
        return self._outbox.next_number

    @property
    def backlog_bytes(self) -> int:
        """Payload bytes of all batches of this node that it has not applied yet."""
        return self._outbox.bytes

    @property
    def is_registered(self) -> bool:
        """Whether the log knows the origin incarnation, so that batches of it can be applied."""
        return self._outbox.registered

    def submit(self, payload: bytes, tokens: tuple[Token, ...], now_ms: float) -> None:
        """Take a batch packed under `incarnation` and `next_number`; it goes on once a leader accepts."""
        if not len(self._outbox):
            self._progress_ms = now_ms
        self._outbox.add(payload, tokens, now_ms + self._deadline_ms)
        self._hand_out()

    def leader_changed(self) -> None:
        """Start again towards the leader of the host's current term, if it is known."""
        self._resend_after_ms = RESEND_AFTER_MS
        self._inbox.reset()
        self._registering.clear()
        self._answered.clear()
        self._outbox.rewind()
        self._register_or_send()

    def leader_ready(self) -> None:
        """This node leads and has applied its no-op: accept, and tell every origin where to go on."""
        self._inbox.reset()
        self._registering.clear()
        self._answered.clear()
        for peer in self._host.peer_ids():
            self._tell_expected(peer)
        self._outbox.rewind()
        self._register_or_send()

    def leader_reconnected(self) -> None:
        """The link to the leader is new: whatever was on the old one may be lost."""
        self._outbox.rewind()
        self._register_or_send()

    def applied(self, number: int, incarnation: int, now_ms: float) -> Batch[Token] | None:
        """This node applied a batch of its own; returns it, or None if its outcome was given up before."""
        if incarnation != self._outbox.incarnation:
            return None
        self._progress_ms = now_ms
        self._resend_after_ms = RESEND_AFTER_MS
        batch = self._outbox.applied(number)
        if batch is not None and len(self._outbox):
            self._hand_out()
        return batch

    def registered(self, node_id: int, incarnation: int) -> None:
        """A registration was applied."""
        self._registering.pop(node_id, None)
        if node_id == self._host.node_id and incarnation == self._outbox.incarnation:
            self._outbox.registered = True
            self._outbox.rewind()
            self._hand_out()

    def installed(self, last_number: int, incarnation: int) -> None:
        """A snapshot replaced the state: batches that it covers have outcomes that nobody here will learn."""
        if incarnation == self._outbox.incarnation:
            self._on_unknown(self._outbox.applied_through(last_number))
            self._outbox.registered = True
        self._outbox.rewind()
        self._register_or_send()

    def tick(self, now_ms: float) -> None:
        """Give up what is overdue; send again what makes no progress."""
        if self._outbox.overdue(now_ms):
            self._abandon(self._outbox.incarnation + 1)
        elif now_ms - self._progress_ms >= self._resend_after_ms and (
            len(self._outbox) or not self._outbox.registered
        ):
            self._progress_ms = now_ms
            # Longer each time: a slow link must not be filled with repeats of what is on it.
            self._resend_after_ms *= 2
            self._outbox.rewind()
            self._register_or_send()

    def receive(self, message: ForwardingMessage) -> None:
        """Handle a message of the host's current term; others are the host's to drop."""
        match message:
            case Forward():
                self._receive_forward(message)
            case RegisterOrigin():
                self._receive_register(message.sender, message.incarnation)
            case ForwardExpected():
                self._receive_expected(message)

    def _abandon(self, raised: int) -> None:
        given_up = self._outbox.abandon(raised)
        self._resend_after_ms = RESEND_AFTER_MS
        self.batches_abandoned += len(given_up)
        log.warning(
            "gave up %d batches without an outcome; origin incarnation raised to %d", len(given_up), raised
        )
        self._on_unknown(given_up)
        self._host.make_incarnation_durable(raised, lambda: self._incarnation_durable(raised))

    def _incarnation_durable(self, incarnation: int) -> None:
        self._durable_incarnation = incarnation
        self._register_or_send()

    def _register_or_send(self) -> None:
        if self._outbox.registered:
            self._hand_out()
            return
        incarnation = self._outbox.incarnation
        leader = self._host.leader_id
        if leader is None or self._durable_incarnation != incarnation:
            return
        if leader != self._host.node_id:
            self._host.send(RegisterOrigin(self._host.term, self._host.node_id, leader, incarnation))
        elif self._host.accepts_proposals:
            self._receive_register(self._host.node_id, incarnation)

    def _hand_out(self) -> None:
        host = self._host
        leader = host.leader_id
        if leader is None or not self._outbox.registered:
            return
        if leader == host.node_id:
            if not host.accepts_proposals:
                return
            for batch in self._outbox.take_sendable():
                self._offer(host.node_id, self._outbox.incarnation, batch.number, batch.payload)
            return
        for batch in self._outbox.take_sendable():
            host.send(
                Forward(
                    host.term, host.node_id, leader, self._outbox.incarnation, batch.number, batch.payload
                )
            )

    def _offer(self, origin: int, incarnation: int, number: int, payload: bytes) -> BatchVerdict | None:
        """Judge a batch, and append it if it is the next; None if the log does not take it."""
        verdict = self._inbox.offer(origin, incarnation, number, self._applied_origins())
        if verdict is BatchVerdict.ACCEPT:
            try:
                self._host.propose(EntryKind.BATCH, payload)
            except NotLeaderError:
                # Its origin sends it again, to the leader of that time.
                self._inbox.withdraw(origin)
                return None
            except ProposalRefusedError as error:
                self._inbox.withdraw(origin)
                log.error("batch %d of node %d: %s", number, origin, error)
                return None
        return verdict

    def _receive_forward(self, message: Forward) -> None:
        if not self._host.accepts_proposals:
            return
        verdict = self._offer(message.sender, message.incarnation, message.number, message.payload)
        if verdict is BatchVerdict.ACCEPT:
            self._answered.pop(message.sender, None)
        elif verdict in (BatchVerdict.GAP, BatchVerdict.UNREGISTERED):
            _, number = self._inbox.expected(message.sender, self._applied_origins())
            if self._answered.get(message.sender) != number:
                self._answered[message.sender] = number
                self._tell_expected(message.sender)

    def _receive_register(self, origin: int, incarnation: int) -> None:
        if not self._host.accepts_proposals:
            return
        applied = self._applied_origins().get(origin, (0, 0))[0]
        known = max(applied, self._registering.get(origin, 0))
        if incarnation < applied:
            # An earlier disk of this node used higher ones.
            self._tell_expected(origin)
        if incarnation <= known:
            return
        try:
            self._host.propose(EntryKind.REGISTER, msgpack.packb([REGISTER_FORMAT, origin, incarnation]))
        except NotLeaderError:
            # Leadership went in this very turn; the origin asks the next leader.
            return
        self._registering[origin] = incarnation

    def _tell_expected(self, origin: int) -> None:
        incarnation, number = self._inbox.expected(origin, self._applied_origins())
        message = ForwardExpected(self._host.term, self._host.node_id, origin, incarnation, number)
        if origin == self._host.node_id:
            self._receive_expected(message)
        else:
            self._host.send(message)

    def _receive_expected(self, message: ForwardExpected) -> None:
        if message.sender != self._host.leader_id:
            return
        if message.incarnation > self._outbox.incarnation:
            self._abandon(self._host.draw_incarnation_above(message.incarnation))
            return
        if message.incarnation == self._outbox.incarnation and self._outbox.registered:
            self._outbox.rewind(message.number)
        self._register_or_send()
