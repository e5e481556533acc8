"""Requests that wait: a produce for its turns and the high watermark, a fetch for records, a deletion.

A produce waits on several partitions and ends when each has an answer, or at its deadline; a fetch ends when
a partition that it reads has changed, or at its deadline; a deletion looks again when a replica may have
followed. Each kind is bounded in number by `WAITING_MAX`: a request beyond that does not wait. Soft state: a
broker that stops answers none of them.
Source: Kafka's purgatories (DelayedProduce, DelayedFetch).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from broker.core.fetch_sessions import FetchSession
from broker.log.errors import AppendError, fenced
from broker.log.produced import CheckedBatch
from broker.replication.outcomes import ProduceOutcome
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

#: Of each kind, in one broker.
WAITING_MAX: Final = 10_000
#: Producers of one partition that have to begin with what was refused; more are forgotten.
UNVERIFIED_MAX: Final = 1_000


class WaitingProduce:
    """One produce request: what became of each partition's batch, and those for which it waits.

    A batch waits for its turn in the log, and with acks=all then for the high watermark.
    """

    __slots__ = (
        "_done",
        "_missing",
        "acks_all",
        "ended",
        "inline_bytes",
        "outcomes",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(self, *, acks_all: bool, timeout_ms: int, transactional_id: str | None = None) -> None:
        self.acks_all = acks_all
        #: how long answered() waits
        self.timeout_ms = timeout_ms
        #: of the producer; None: it has none
        self.transactional_id = transactional_id
        #: {partition: its outcome}; those that still wait may have one already, of the append
        self.outcomes: dict[PartitionKey, ProduceOutcome] = {}
        self._missing: dict[PartitionKey, Waiters] = {}
        #: None: nobody waits
        self._done: asyncio.Future[None] | None = None
        #: The answer was given: what comes later changes nothing.
        self.ended = False
        #: Of its batches, whose records were looked at in the event loop.
        self.inline_bytes = 0

    def wait_for_turn(self, waiters: Waiters) -> None:
        """Wait until settle() for a partition."""
        self._missing[waiters.key] = waiters

    def wait_for(self, waiters: Waiters, required_offset: int, appended: ProduceOutcome) -> None:
        """Wait until a partition's high watermark reaches required_offset (exclusive)."""
        self.outcomes[waiters.key] = appended
        self._missing[waiters.key] = waiters
        waiters.produces[self] = required_offset

    def answer(self, key: PartitionKey, error_code: ErrorCode) -> None:
        """Give the outcome of a batch that was appended."""
        self.settle(key, self.outcomes[key] if error_code is ErrorCode.NONE else ProduceOutcome(error_code))

    def settle(self, key: PartitionKey, outcome: ProduceOutcome) -> None:
        """Give one partition's outcome."""
        if self.ended:
            return
        self.outcomes[key] = outcome
        self._missing.pop(key, None)
        if not self._missing and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def answered(self) -> dict[PartitionKey, ProduceOutcome]:
        """Wait until each partition has its outcome; those that have none in time get REQUEST_TIMED_OUT."""
        try:
            if self._missing:
                self._done = asyncio.get_running_loop().create_future()
                async with asyncio.timeout(self.timeout_ms / 1000):
                    await self._done
        except TimeoutError:
            for key in self._missing:
                self.outcomes[key] = ProduceOutcome(ErrorCode.REQUEST_TIMED_OUT)
        finally:
            self.ended = True
            for waiters in self._missing.values():
                waiters.produces.pop(self, None)
        return self.outcomes


class WaitingAppend:
    """One batch that waits for its turn in a partition's log."""

    __slots__ = ("batch", "checking", "must_be_open", "refused", "request", "size_bytes")

    def __init__(
        self,
        request: WaitingProduce,
        batch: CheckedBatch | None,
        *,
        size_bytes: int,
        checking: asyncio.Future[CheckedBatch | AppendError] | None = None,
    ) -> None:
        self.request = request
        #: None: while it is checked.
        self.batch = batch
        self.size_bytes = size_bytes
        #: Its records are looked at, in a thread.
        self.checking = checking
        #: Its producer's transaction was open here when it came, and still has to be.
        self.must_be_open = False
        #: It has its outcome already.
        self.refused = False

    def refuse(self, key: PartitionKey, outcome: ProduceOutcome) -> None:
        """Append it no more."""
        self.refused = True
        self.request.settle(key, outcome)


class Unverified:
    """A producer whose transaction is not known yet to have a partition, and its batches until then.

    After a refusal that passes there are none for a while; meanwhile the producer's later batches must not
    come before those that were refused.
    """

    __slots__ = ("appends", "producer_epoch", "sequence")

    def __init__(self, producer_epoch: int, sequence: int) -> None:
        self.producer_epoch = producer_epoch
        #: of the first batch
        self.sequence = sequence
        self.appends: list[WaitingAppend] = []

    def refuse(self, key: PartitionKey, outcome: ProduceOutcome) -> None:
        """Append none of its batches."""
        for append in self.appends:
            append.refuse(key, outcome)


class WaitingFetch:
    """One fetch request that found too little."""

    __slots__ = ("_changed", "_ended", "_partitions", "changed_keys", "has_news", "is_follower")

    def __init__(self, *, is_follower: bool) -> None:
        #: A follower waits for the end of the log, a consumer for the high watermark.
        self.is_follower = is_follower
        #: Partitions to read again; a dict, for its order.
        self.changed_keys: dict[PartitionKey, None] = {}
        #: The log of one of them begins elsewhere now: that is worth an answer without records.
        self.has_news = False
        self._changed = asyncio.Event()
        self._ended = False
        self._partitions: list[Waiters] = []

    def join(self, partitions: Iterable[Waiters]) -> None:
        """Wait for these."""
        self._partitions = list(partitions)
        for waiters in self._partitions:
            waiters.fetches[self] = None

    def end(self) -> None:
        """Answer with what there is."""
        self._ended = True
        self._changed.set()

    def mark(self, key: PartitionKey) -> None:
        """Leave out what changes without need to read: whoever has no session asks again anyway."""

    def wake(self, key: PartitionKey, *, is_news: bool = False) -> None:
        """Note that a partition changed."""
        self.changed_keys[key] = None
        self.has_news |= is_news
        self._changed.set()

    async def changes(self, deadline_s: float) -> list[PartitionKey]:
        """Wait for changed partitions until a time of the loop's clock; an empty list means the end."""
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._changed.wait()
        except TimeoutError:
            return []
        if self._ended:
            return []
        changed = list(self.changed_keys)
        self.changed_keys.clear()
        self._changed.clear()
        return changed

    def close(self) -> None:
        """Wait no longer."""
        for waiters in self._partitions:
            waiters.fetches.pop(self, None)


class WaitingDeletion:
    """One deletion that waits for the followers of some partitions."""

    __slots__ = ("_changed", "_news", "_partitions")

    def __init__(self) -> None:
        self._news = asyncio.Event()
        #: To look at again; a dict, for its order.
        self._changed: dict[PartitionKey, None] = {}
        self._partitions: list[Waiters] = []

    def wait_for(self, waiters: Waiters) -> None:
        """Hear of a partition; look at it at once, too."""
        self._partitions.append(waiters)
        waiters.deletions[self] = None
        self.wake(waiters.key)

    def wake(self, key: PartitionKey) -> None:
        """Note that a follower may have deleted, or that the leader has stepped down."""
        self._changed[key] = None
        self._news.set()

    async def changes(self) -> list[PartitionKey]:
        """Wait for the next partitions to look at."""
        await self._news.wait()
        self._news.clear()
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def close(self) -> None:
        """Wait no longer."""
        for waiters in self._partitions:
            waiters.deletions.pop(self, None)


class Waiters:
    """All that waits for one partition of this broker."""

    __slots__ = ("appends", "deletions", "fetches", "key", "produces", "unverified")

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        #: Batches that wait for their turn in the log, in the order in which they came.
        self.appends: deque[WaitingAppend] = deque()
        #: {producer id: what has no turn yet}
        self.unverified: dict[int, Unverified] = {}
        #: {produce that waits: offset that the high watermark must reach}
        self.produces: dict[WaitingProduce, int] = {}
        #: A dict, for its order; sessions stay, also between their fetches.
        self.fetches: dict[WaitingFetch | FetchSession, None] = {}
        self.deletions: dict[WaitingDeletion, None] = {}

    def answer_produces(self, up_to: int, error_code: ErrorCode) -> None:
        """Answer the produces whose records end at an offset (exclusive) or before."""
        for waiting in [each for each, required in self.produces.items() if required <= up_to]:
            del self.produces[waiting]
            waiting.answer(self.key, error_code)

    def fail_produces(self, error_code: ErrorCode) -> None:
        """Answer all produces, also those whose batches wait for their turn."""
        for waiting in list(self.produces):
            del self.produces[waiting]
            waiting.answer(self.key, error_code)
        for append in self.appends:
            append.refuse(self.key, ProduceOutcome(error_code))
        for unverified in self.unverified.values():
            unverified.refuse(self.key, ProduceOutcome(error_code))
        # What is answered from now on may be older than a marker of another leader.
        self.unverified.clear()

    def unverified_of(self, producer_id: int, producer_epoch: int, sequence: int) -> Unverified:
        """Return where a batch waits until its transaction is known to have this partition."""
        found = self.unverified.get(producer_id)
        if found is None or found.producer_epoch < producer_epoch:
            self.end_unverified(producer_id, producer_epoch)
            if len(self.unverified) >= UNVERIFIED_MAX:
                idle = next((key for key, each in self.unverified.items() if not each.appends), None)
                if idle is not None:
                    del self.unverified[idle]
            found = self.unverified[producer_id] = Unverified(producer_epoch, sequence)
        elif found.producer_epoch > producer_epoch:
            raise fenced(producer_id, producer_epoch, found.producer_epoch)
        elif not found.appends and sequence > found.sequence:
            problem = f"producer {producer_id}: sequence number {sequence} where {found.sequence} comes next"
            raise AppendError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, problem)
        elif not found.appends:
            found.sequence = sequence
        return found

    def end_unverified(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse what waits of a producer up to an epoch: what is answered about it is too old."""
        found = self.unverified.get(producer_id)
        if found is None or found.producer_epoch > producer_epoch:
            return
        del self.unverified[producer_id]
        code, message = ErrorCode.INVALID_TXN_STATE, None
        if found.producer_epoch < producer_epoch:
            refused = fenced(producer_id, found.producer_epoch, producer_epoch)
            code, message = refused.error_code, refused.message
        found.refuse(self.key, ProduceOutcome(code, message=message))

    def wake_fetches(self, *, of_followers: bool, of_consumers: bool, is_news: bool = False) -> None:
        """Let fetches read the partition again; news are worth an answer without records.

        A session that need not read it now looks at it with its next fetch.
        """
        for fetch in self.fetches:
            if of_followers if fetch.is_follower else of_consumers:
                fetch.wake(self.key, is_news=is_news)
            else:
                fetch.mark(self.key)

    def mark_fetches(self) -> None:
        """Let sessions look at the partition with their next fetch: its start has moved, or its ISR."""
        self.wake_fetches(of_followers=False, of_consumers=False)

    def wake_deletions(self) -> None:
        """Let those look again that wait until all replicas have deleted records."""
        for deletion in self.deletions:
            deletion.wake(self.key)
