"""Forwarding of batches to the leader: exactly once, in order, across leader changes.

A batch is named (origin node, origin incarnation, batch number). `OriginOutbox` is the origin's half: it
keeps every batch until this node has applied it and decides what to send again after a leader change, a lost
connection or a refusal. `Inbox` is the leader's half: it lets a batch into the log only if it is exactly
the next of its origin, counting what is in the leader's unapplied tail. The state machine keeps the third
copy of the rule (it applies only the exact successor), so a mistake here can delay a batch but never apply
it twice or out of order.

The module also holds the shell's other messages between nodes (touched sessions, long logs, digests), which
know no rules here.

All of this is soft state but the origin incarnation, which the shell makes durable before the first batch
of it leaves. Neither half knows the network, the clock (times come in as arguments) or what a batch
contains.

Source: ARCHITECTURE.md, "Life of a write"; Raft §8 (client interaction).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from random import Random
from typing import Any, Final, Generic, NamedTuple, TypeVar

Token = TypeVar("Token")


#: An origin incarnation above another disk's is drawn from so many. Below 2**32, as connection ids need it,
#: that leaves room for thousands of disks of one node.
LEAP_MAX: Final = 1 << 20


def incarnation_above(known: int, random: Random) -> int:
    """Draw an origin incarnation for a disk whose node id another disk has used.

    The other disk counts on by one at each start and each batch that it gives up, and the log need not know
    how far it got: the next number may be its own, and a disk that was removed, not replaced, may come back
    with it.

    Args:
        known: what the log knows of the other disk.
        random: the node's source of randomness.
    """
    return known + 1 + random.randrange(LEAP_MAX)


class Forward(NamedTuple):
    """A batch on its way from its origin (the sender) to the leader."""

    term: int
    sender: int
    receiver: int
    incarnation: int
    number: int
    payload: bytes


class ForwardExpected(NamedTuple):
    """The leader names the number that it expects next: after a gap, and once when it becomes ready to
    accept.

    `incarnation` is the origin incarnation that the leader knows of the receiver (0: none registered).
    """

    term: int
    sender: int
    receiver: int
    incarnation: int
    number: int


class RegisterOrigin(NamedTuple):
    """An origin asks the leader to register its origin incarnation through the log."""

    term: int
    sender: int
    receiver: int
    incarnation: int


class SessionTouches(NamedTuple):
    """Which sessions the clients of a follower touched since its last report; at most one per heartbeat."""

    term: int
    sender: int
    receiver: int
    session_ids: tuple[int, ...]


class LogIsLong(NamedTuple):
    """The leader's clients wait for a snapshot: the receiver's are to wait with them, for some heartbeats."""

    term: int
    sender: int
    receiver: int


class DigestNotice(NamedTuple):
    """The digests of the leader's state as of the entry that it applied last; for the receiver to compare."""

    term: int
    sender: int
    receiver: int
    log_index: int
    state_digest: bytes
    apply_digest: bytes


class DigestDifference(NamedTuple):
    """The digests of the sender's state as of an entry, and those that its leader said, which differ."""

    term: int
    sender: int
    receiver: int
    log_index: int
    state_digest: bytes
    apply_digest: bytes
    leaders_state_digest: bytes
    leaders_apply_digest: bytes


#: Tags of these messages on the wire; never reuse one. The core's own end below 32.
FORWARDING_MESSAGE_TYPES: Final[Mapping[int, type[Any]]] = {
    32: Forward,
    33: ForwardExpected,
    34: RegisterOrigin,
    35: SessionTouches,
    36: DigestNotice,
    37: DigestDifference,
    38: LogIsLong,
}


class Batch(NamedTuple, Generic[Token]):
    """A batch that its origin has not applied yet."""

    number: int
    payload: bytes
    #: the caller that waits for the outcome of each run, in the order of the runs
    tokens: tuple[Token, ...]
    #: monotonic milliseconds after which the outcome is given up as unknown
    deadline_ms: float


class OriginOutbox(Generic[Token]):
    """The origin's half: its unapplied batches, in order, and how far the current leader was handed them.

    Invariants: the numbers of `_batches` are consecutive and end in `next_number - 1`; every batch below
    `_cursor` was handed to the current leader at least once; nothing is handed out before `registered`.
    """

    def __init__(self, incarnation: int, *, window_bytes_max: int) -> None:
        """Start empty.

        Args:
            incarnation: the durable origin incarnation, ≥ 1.
            window_bytes_max: payload bytes that may be handed to a leader and not applied yet; more wait
                here.
        """
        self.incarnation = incarnation
        self.registered = False
        self.next_number = 1
        self.bytes = 0
        self._window_bytes_max = window_bytes_max
        self._window_bytes = 0
        self._batches: deque[Batch[Token]] = deque()
        self._cursor = 1

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, payload: bytes, tokens: tuple[Token, ...], deadline_ms: float) -> int:
        """Keep a new batch, packed under `next_number`, and return that number."""
        number = self.next_number
        self._batches.append(Batch(number, payload, tokens, deadline_ms))
        self.next_number = number + 1
        self.bytes += len(payload)
        return number

    def take_sendable(self) -> list[Batch[Token]]:
        """Return the batches to hand to the leader now, in order, within the window."""
        if not self.registered or self._cursor >= self.next_number:
            return []
        taken: list[Batch[Token]] = []
        first = self._batches[0].number
        while self._cursor < self.next_number:
            batch = self._batches[self._cursor - first]
            if self._window_bytes and self._window_bytes + len(batch.payload) > self._window_bytes_max:
                break
            self._window_bytes += len(batch.payload)
            taken.append(batch)
            self._cursor += 1
        return taken

    def rewind(self, number: int | None = None) -> None:
        """Hand out again from `number` on (None: everything), for a new leader or link, or after a gap."""
        first = self._batches[0].number if self._batches else self.next_number
        target = first if number is None else min(max(number, first), self.next_number)
        if number is None or target < self._cursor:
            self._cursor = target
            handed = self._cursor - first
            self._window_bytes = sum(len(self._batches[position].payload) for position in range(handed))

    def applied(self, number: int) -> Batch[Token] | None:
        """Drop the batch that this node just applied; None if `number` is not the oldest unapplied one."""
        if not self._batches or self._batches[0].number != number:
            return None
        batch = self._batches.popleft()
        self.bytes -= len(batch.payload)
        if number < self._cursor:
            self._window_bytes -= len(batch.payload)
        else:
            # An earlier leader had appended it: it came back before this leader was handed it.
            self._cursor = number + 1
        return batch

    def applied_through(self, number: int) -> list[Batch[Token]]:
        """Drop and return every batch up to `number`: a snapshot covers them and hides their outcomes."""
        dropped: list[Batch[Token]] = []
        while self._batches and self._batches[0].number <= number:
            batch = self.applied(self._batches[0].number)
            assert batch is not None
            dropped.append(batch)
        return dropped

    def overdue(self, now_ms: float) -> bool:
        """Tell whether the oldest unapplied batch is past its deadline."""
        return bool(self._batches) and self._batches[0].deadline_ms <= now_ms

    def abandon(self, incarnation: int) -> list[Batch[Token]]:
        """Give up every unapplied batch as unknown and start again under a larger, durable incarnation.

        The numbers of the old incarnation are never used again: its batches are void once the new one is
        registered.
        """
        if incarnation <= self.incarnation:
            raise ValueError(f"origin incarnation must rise: {incarnation} after {self.incarnation}")
        given_up = list(self._batches)
        self._batches.clear()
        self.incarnation = incarnation
        self.registered = False
        self.next_number = 1
        self._cursor = 1
        self.bytes = 0
        self._window_bytes = 0
        return given_up


class BatchVerdict(Enum):
    """What the leader does with a forwarded batch."""

    ACCEPT = auto()
    DUPLICATE = auto()
    GAP = auto()
    UNREGISTERED = auto()


class Inbox:
    """The leader's half: which batch number it lets into its log next, for each origin, during one term."""

    def __init__(self) -> None:
        #: {origin node: (incarnation, next number)}, ahead of the applied state by the leader's unapplied
        #: tail
        self._expected: dict[int, tuple[int, int]] = {}

    def reset(self) -> None:
        """Forget everything: a new term begins, and its leader has applied all that came before."""
        self._expected.clear()

    def expected(self, origin: int, applied: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
        """Return (incarnation, next number) of an origin.

        Args:
            origin: the node.
            applied: the state machine's {origin: (incarnation, last applied number)}.
        """
        applied_incarnation, applied_number = applied.get(origin, (0, 0))
        known = self._expected.get(origin)
        # A tail that a reset forgot may have been applied meanwhile, beyond what was offered since.
        if known is None or known[0] != applied_incarnation or known[1] <= applied_number:
            return applied_incarnation, applied_number + 1
        return known

    def offer(
        self, origin: int, incarnation: int, number: int, applied: Mapping[int, tuple[int, int]]
    ) -> BatchVerdict:
        """Judge a batch; ACCEPT moves the expectation: the caller must append the batch or withdraw it."""
        known_incarnation, next_number = self.expected(origin, applied)
        if incarnation != known_incarnation:
            return BatchVerdict.UNREGISTERED
        if number < next_number:
            return BatchVerdict.DUPLICATE
        if number > next_number:
            return BatchVerdict.GAP
        self._expected[origin] = (incarnation, number + 1)
        return BatchVerdict.ACCEPT

    def withdraw(self, origin: int) -> None:
        """Take back the last ACCEPT of an origin: its batch could not be appended."""
        incarnation, number = self._expected[origin]
        self._expected[origin] = (incarnation, number - 1)
