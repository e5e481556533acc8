"""Incremental fetch sessions: what a reader asks for again and again is named once.

A session knows the partitions of its reader and which of them are due: named or changed since the last fetch,
or not settled by it. A fetch reads those alone, so its cost grows with what changes. An answer holds what has
records, an error, or another high watermark or log start than the reader was sent last. Sessions are bounded
in number, and those of clients in their partitions together. Pure; soft state.
Source: KIP-227; Kafka's FetchSession.scala (3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from broker.core import fences
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

#: In place of a session's id: none.
NO_SESSION: Final = 0
#: Epochs of requests that name all their partitions: the first of a session, and one without a session.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
#: A session that was not used for so long may go.
UNUSED_MAX_MS: Final = 120_000
#: Of the sessions of all clients together.
CLIENT_PARTITIONS_MAX: Final = 200_000
_EPOCH_MAX: Final = 2**31 - 1
_NOTHING_SENT: Final = (-1, -1)

#: Broker id and generation of a follower; an id below 0: a consumer.
Owner = tuple[int, int]


class Position(Protocol):
    """From where a reader reads a partition."""

    @property
    def topic_id(self) -> Hashable | None:
        """The topic that it means; None: it goes by the name."""


class Outcome(Protocol):
    """What a fetch found in one partition."""

    @property
    def error_code(self) -> ErrorCode:
        """Of the partition."""

    @property
    def high_watermark(self) -> int:
        """Exclusive; -1: unknown."""

    @property
    def log_start_offset(self) -> int:
        """Of the log; -1: unknown."""

    @property
    def records(self) -> bytes | memoryview:
        """What was read."""

    @property
    def diverging_epoch(self) -> tuple[int, int] | None:
        """Where the logs part."""

    @property
    def preferred_read_replica(self) -> int:
        """Where to read instead; -1: here."""


class Waiting(Protocol):
    """A fetch of a session that waits."""

    def wake(self, key: PartitionKey, *, is_news: bool = False) -> None:
        """Read a partition again."""

    def end(self) -> None:
        """Answer with what there is."""


P = TypeVar("P", bound=Position)
Found = TypeVar("Found", bound=Outcome)


class FetchSession(Generic[P]):
    """One session: it stands among those that wait for each of its partitions, also between its fetches."""

    __slots__ = (
        *("_on_due", "_sent", "by_id", "created_ms", "due", "epoch", "owner", "partitions", "session_id"),
        *("unknown", "used_ms", "waiting"),
    )

    def __init__(
        self,
        session_id: int,
        owner: Owner,
        now_ms: int,
        *,
        by_id: bool,
        on_due: Callable[[FetchSession[P], PartitionKey], None],
    ) -> None:
        """Know no partition yet.

        Args:
            session_id: not NO_SESSION.
            owner: whose it is; nobody else may use it.
            now_ms: monotonic.
            by_id: whether its requests name topics by their ids.
            on_due: called when a partition changes that was settled.
        """
        self.session_id = session_id
        self.owner = owner
        self.by_id = by_id
        self.created_ms = self.used_ms = now_ms
        #: of the next request
        self.epoch = 1
        self.partitions: dict[PartitionKey, P] = {}
        #: {(id of a topic that is not known here, partition): position}; asked for anew with each fetch
        self.unknown: dict[tuple[Hashable, int], P] = {}
        #: To be read by the next fetch; a dict, for its order.
        self.due: dict[PartitionKey, None] = {}
        #: {partition: (high watermark, log start offset) that the reader was sent last}
        self._sent: dict[PartitionKey, tuple[int, int]] = {}
        #: The fetch that waits now, if any.
        self.waiting: Waiting | None = None
        self._on_due = on_due

    @property
    def is_follower(self) -> bool:
        """Whether a broker reads; Kafka calls such a session privileged."""
        return self.owner[0] >= 0

    def __len__(self) -> int:
        """Return how many partitions it holds."""
        return len(self.partitions) + len(self.unknown)

    def name(self, positions: Mapping[PartitionKey, P]) -> None:
        """Read these from here on."""
        self.partitions.update(positions)
        self.due.update(dict.fromkeys(positions))

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Read these no longer."""
        for key in keys:
            self.partitions.pop(key, None)
            self.due.pop(key, None)
            self._sent.pop(key, None)

    def positions(self) -> dict[PartitionKey, P]:
        """Return where to read what is due, in this order."""
        return {key: self.partitions[key] for key in self.due}

    # -- what happens to its partitions ----------------------------------------------------------------------

    def mark(self, key: PartitionKey) -> None:
        """Let the next fetch look at a partition."""
        if key not in self.due and key in self.partitions:
            self.due[key] = None
            self._on_due(self, key)

    def wake(self, key: PartitionKey, *, is_news: bool = False) -> None:
        """Let the fetch that waits read a partition again, or the next one."""
        self.mark(key)
        if self.waiting is not None and key in self.partitions:
            self.waiting.wake(key, is_news=is_news)

    def end(self) -> None:
        """Let the fetch that waits answer."""
        if self.waiting is not None:
            self.waiting.end()

    def looked(self, key: PartitionKey, outcome: Outcome, *, is_settled: bool) -> None:
        """Note what a fetch found.

        Args:
            key: the partition.
            outcome: what was found.
            is_settled: whether there is nothing more to read or to learn before the partition changes.
        """
        if is_settled and not _must_answer(outcome):
            self.due.pop(key, None)
        elif key in self.partitions:
            if outcome.records:
                # Last in the next fetch, so that a busy partition does not crowd others out.
                self.due.pop(key, None)
            self.due[key] = None

    def answer(self, outcomes: Mapping[PartitionKey, Found], *, is_full: bool) -> dict[PartitionKey, Found]:
        """Return what the reader has to be sent of what was found, and note it."""
        answered = {}
        for key, outcome in outcomes.items():
            sent = (outcome.high_watermark, outcome.log_start_offset)
            if not is_full and sent == self._sent.get(key) and not _must_answer(outcome):
                continue
            answered[key] = outcome
            if key in self.partitions:
                # Once an error is over, that is worth an answer.
                self._sent[key] = sent if outcome.error_code is ErrorCode.NONE else _NOTHING_SENT
        return answered


def _must_answer(outcome: Outcome) -> bool:
    return (
        outcome.error_code is not ErrorCode.NONE
        or bool(outcome.records)
        or outcome.diverging_epoch is not None
        or outcome.preferred_read_replica >= 0
    )


class FetchSessions(Generic[P]):
    """The sessions of one broker."""

    def __init__(
        self,
        slots: int,
        ids: Iterator[int],
        *,
        on_due: Callable[[FetchSession[P], PartitionKey], None],
        on_end: Callable[[FetchSession[P], Collection[PartitionKey]], None],
    ) -> None:
        """Hold none yet.

        Args:
            slots: how many there may be; 0: none are given.
            ids: numbers of 1 to 2**31 - 1 that nobody guesses.
            on_due: see FetchSession.
            on_end: called with the partitions that a session leaves.
        """
        self._slots = slots
        self._ids = ids
        self._on_due = on_due
        self._on_end = on_end
        #: {id: session}, the one first that was used the longest ago
        self._sessions: dict[int, FetchSession[P]] = {}
        self.evictions = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sessions)

    def partition_count(self, *, of_clients_alone: bool = False) -> int:
        """Return how many partitions they hold together."""
        return sum(
            len(each) for each in self._sessions.values() if not (of_clients_alone and each.is_follower)
        )

    def take(
        self, session_id: int, epoch: int, owner: Owner, now_ms: int, *, by_id: bool
    ) -> FetchSession[P] | ErrorCode:
        """Return the session of a request that names what has changed, or why there is none."""
        self._evict_unused(now_ms)
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not fences.is_next_of_session(epoch, session.epoch):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if by_id is not session.by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def begin(self, owner: Owner, now_ms: int, *, size: int, by_id: bool) -> FetchSession[P] | None:
        """Return a new session; None: there is no room, or nothing to hold.

        Args:
            owner: whose.
            now_ms: monotonic.
            size: of its partitions.
            by_id: see FetchSession.
        """
        self._evict_unused(now_ms)
        is_follower = owner[0] >= 0
        if is_follower:
            # A follower has one fetcher for each leader: what it had before is of a lost connection.
            for each in [each for each in self._sessions.values() if each.owner[0] == owner[0]]:
                self.end(each)
        elif self.partition_count(of_clients_alone=True) + size > CLIENT_PARTITIONS_MAX:
            return None
        if not size or (len(self._sessions) >= self._slots and not self._evict(is_follower, size, now_ms)):
            return None
        session_id = next(each for each in self._ids if each not in self._sessions)
        session = FetchSession(session_id, owner, now_ms, by_id=by_id, on_due=self._on_due)
        self._sessions[session_id] = session
        return session

    def has_room(self, session: FetchSession[P]) -> bool:
        """Whether a session may keep what its reader has added."""
        return session.is_follower or self.partition_count(of_clients_alone=True) <= CLIENT_PARTITIONS_MAX

    def end_of(self, session_id: int, owner: Owner) -> None:
        """End a session that its owner gives up."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner[0] == owner[0]:
            self.end(session)

    def end(self, session: FetchSession[P]) -> None:
        """End a session."""
        if self._sessions.pop(session.session_id, None) is session:
            session.end()
            # A fetch that reads the disk meanwhile finds that nothing is its session's any more.
            partitions, session.partitions = session.partitions, {}
            session.due.clear()
            self._on_end(session, partitions)

    def forget(self, session: FetchSession[P], keys: Collection[PartitionKey]) -> None:
        """Take partitions out of a session."""
        session.forget(keys)
        self._on_end(session, keys)

    # -- evictions -------------------------------------------------------------------------------------------

    def _evict_unused(self, now_ms: int) -> None:
        """Evict what was not used for long: a session costs each append a little."""
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_ms <= UNUSED_MAX_MS:
                return
            self._take_out(oldest)

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Evict the smallest that gives way: one of a client to a follower, an old one to a larger one."""
        candidates = [
            (each.is_follower, len(each), each.session_id)
            for each in self._sessions.values()
            if (is_follower or not each.is_follower)
            and (now_ms - each.created_ms > UNUSED_MAX_MS or (is_follower and not each.is_follower))
        ]
        if not candidates or min(candidates)[:2] > (is_follower, size):
            return False
        self._take_out(self._sessions[min(candidates)[2]])
        return True

    def _take_out(self, session: FetchSession[P]) -> None:
        self.evictions += 1
        self.end(session)
