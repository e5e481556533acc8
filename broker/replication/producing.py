"""Produce: records are appended by the leader; acks=all waits until they are committed.

The records are looked at first, in a thread where that may take long.
Batches of one partition are appended in the order in which they came, whatever one of them waits for: what
comes behind one that waits, waits as well. The first ones of a transaction come once the coordinator has said
that it has the partition; until then their producer alone waits. Leadership, min.insync.replicas (19) and the
sequence are judged in the turn of the append; the ISR again when the high watermark has passed (20). A leader
that steps down answers 6 for what it has not committed and for what still waits for its turn; the former may
be lost or may survive, so the producer repeats it. Knows no connection.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means"; Kafka's
ReplicaManager.appendRecords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Final

from broker.log.batches import CONTROL, TRANSACTIONAL, BatchHeader
from broker.log.errors import AppendError, LogStorageError
from broker.log.markers import EndMarker, end_batch
from broker.log.produced import CheckedBatch, ProducedBatch, checked_batch_of
from broker.replication.clock import wall_ms
from broker.replication.outcomes import Counters, ProduceOutcome
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from broker.replication.verifying import Claim, Verifier
from broker.replication.waiting import WAITING_MAX, Unverified, WaitingAppend, WaitingProduce
from broker.stores.producer_ids import ProducerIds
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import NodeStoppedError, QuorateError
from quorum.metadata.paths import PartitionKey
from quorum.platform.pace import Pace

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

#: Of batches that wait for their turn, in one broker.
APPENDS_BYTES_MAX: Final = 256 * 1024 * 1024
#: Of one request, unfolded, whose records are looked at before its first await; the rest goes to a thread.
INLINE_BYTES_MAX: Final = 1024 * 1024
#: A compressed batch that is unfolded there, and what it may unfold to: most need less.
INLINE_COMPRESSED_BYTES_MAX: Final = 32 * 1024
INLINE_UNFOLDED_BYTES_MAX: Final = 256 * 1024
#: What a record costs there at least.
RECORD_COST_BYTES: Final = 64
#: Of records that are not in columns there: half a microsecond a byte at worst.
INLINE_PLAIN_BYTES_MAX: Final = 32 * 1024
#: Threads that look at records.
THREADS_MAX: Final = 2


class Producing:
    """Appends for producers."""

    def __init__(
        self,
        registry: Registry,
        counters: Counters,
        producer_ids: ProducerIds,
        verifier: Verifier,
        on_storage_error: Callable[[QuorateError], None],
    ) -> None:
        """Append to the replicas of a registry."""
        self._registry = registry
        self._counters = counters
        self._producer_ids = producer_ids
        self._verifier = verifier
        self._on_storage_error = on_storage_error
        #: Requests that wait now.
        self.waiting = 0
        #: Batches that wait for their turn, and their bytes.
        self._appends = 0
        self._appends_bytes = 0
        #: One for each replica with batches that wait for their turn, and for each question of _verify().
        self._turns: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="records")

    async def stop(self) -> None:
        """Append nothing more; the replicas lead no longer, so what waited has its answer."""
        for task in self._turns:
            task.cancel()
        await self._verifier.stop()
        await asyncio.gather(*self._turns, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def produce(
        self,
        batches: Mapping[PartitionKey, bytes | memoryview],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> dict[PartitionKey, ProduceOutcome]:
        """Append batches and wait as far as acks says.

        Each batch has its place in the order of its partition before this gives way for the first time.

        Args:
            batches: {partition: one record batch}.
            acks: ACKS_NONE, ACKS_LEADER or ACKS_ALL.
            timeout_ms: how long it may take; then 7, though the records are in the log, or come into it.
            transactional_id: of the producer; without it no batch is transactional.
        """
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            return dict.fromkeys(batches, ProduceOutcome(ErrorCode.INVALID_REQUIRED_ACKS))
        if acks == ACKS_ALL and self.waiting >= WAITING_MAX:
            text = f"{WAITING_MAX} requests wait already; nothing was appended"
            return dict.fromkeys(batches, ProduceOutcome(ErrorCode.REQUEST_TIMED_OUT, message=text))
        request = WaitingProduce(
            acks_all=acks == ACKS_ALL, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        for key, records in batches.items():
            self._take(key, records, request)
        self.waiting += 1
        try:
            return await request.answered()
        finally:
            self.waiting -= 1

    async def write_markers(
        self,
        keys: Sequence[PartitionKey],
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> dict[PartitionKey, ProduceOutcome]:
        """End a producer's transaction in partitions, and wait until that is committed.

        Args:
            keys: which partitions.
            producer_id: whose transaction.
            producer_epoch: what has a lower one is fenced then.
            is_commit: how it ends.
            coordinator_epoch: coordinators of lower ones are fenced then.
            timeout_ms: as in produce().
        """
        request = WaitingProduce(acks_all=True, timeout_ms=timeout_ms)
        marker = EndMarker(is_commit, coordinator_epoch)
        for key in keys:
            replica = self._registry.replicas.get(key)
            if replica is None:
                request.settle(key, ProduceOutcome(self._registry.why_missing(key)))
                continue
            # It may be of the transaction that ends; whoever is asked may have answered before it ended.
            replica.waiters.end_unverified(producer_id, producer_epoch)
            batch = end_batch(producer_id, producer_epoch, marker, wall_ms())
            self._place(replica, batch.header, batch, None, request)
        return await request.answered()

    def _take(self, key: PartitionKey, records: bytes | memoryview, request: WaitingProduce) -> None:
        """Append a batch now, or give it its place behind those that wait."""
        replica = self._registry.replicas.get(key)
        if replica is None:
            request.settle(key, ProduceOutcome(self._registry.why_missing(key)))
            return
        refused = replica.machine.may_append(acks_all=False)
        if refused is not ErrorCode.NONE:
            request.settle(key, ProduceOutcome(refused))
            return
        unverified = None
        try:
            produced = replica.log.check(records)
            if produced.header.attributes & TRANSACTIONAL:
                _check_transactional(request)
                unverified = self._unverified(replica, produced.header)
            batch = self._check_now(produced, request)
        except AppendError as error:
            request.settle(key, refusal(error))
            return
        self._place(replica, produced.header, batch, produced, request, unverified)

    def _place(
        self,
        replica: Replica,
        header: BatchHeader,
        batch: CheckedBatch | None,
        produced: ProducedBatch | None,
        request: WaitingProduce,
        unverified: Unverified | None = None,
    ) -> None:
        """Append a batch now, or give it its place; one that was not checked yet is as it was produced."""
        size_bytes = header.size
        must_wait = replica.waiters.appends or replica.log.must_wait(size_bytes, header.records_count)
        if batch is not None and unverified is None and not must_wait:
            self._append(replica, batch, request)
            return
        if self._appends >= WAITING_MAX or self._appends_bytes + size_bytes > APPENDS_BYTES_MAX:
            text = f"{self._appends} batches ({self._appends_bytes} bytes) wait already; nothing was appended"
            request.settle(replica.key, ProduceOutcome(ErrorCode.REQUEST_TIMED_OUT, message=text))
            return
        # What waits may outlive its request, and must not hold all of its frame.
        checking: asyncio.Future[CheckedBatch | AppendError] | None = None
        if batch is not None:
            batch = batch._replace(content=memoryview(bytes(batch.content)))
        elif produced is not None:
            produced = produced._replace(content=bytes(produced.content))
            checking = asyncio.ensure_future(self._check(produced))
        append = WaitingAppend(request, batch, size_bytes=size_bytes, checking=checking)
        request.wait_for_turn(replica.waiters)
        self._appends += 1
        self._appends_bytes += size_bytes
        if unverified is None:
            # A marker may be before it.
            append.must_be_open = bool(
                self._verifier.is_on and produced and header.attributes & TRANSACTIONAL
            )
            self._queue(replica, append)
            return
        unverified.appends.append(append)
        if len(unverified.appends) == 1:
            assert request.transactional_id is not None, "it was looked at"
            producer = request.transactional_id, header.producer_id, header.producer_epoch
            claim = Claim(*producer, replica.key, request.timeout_ms)
            self._run(self._verify(replica, claim, unverified), f"verification for {replica.key}")

    def _check_now(self, batch: ProducedBatch, request: WaitingProduce) -> CheckedBatch | None:
        """Check a batch's records before the first await of its request; None: a thread has to."""
        header = batch.header
        size_bytes = INLINE_UNFOLDED_BYTES_MAX if batch.is_compressed else header.size
        cost_bytes = max(size_bytes, header.records_count * RECORD_COST_BYTES)
        if (
            request.inline_bytes + cost_bytes > INLINE_BYTES_MAX
            or (batch.is_compressed and header.size > INLINE_COMPRESSED_BYTES_MAX)
            or header.producer_id >= self._producer_ids.given_end
        ):
            return None
        request.inline_bytes += cost_bytes
        try:
            return checked_batch_of(
                batch, unfolded_bytes_max=size_bytes, plain_bytes_max=INLINE_PLAIN_BYTES_MAX
            )
        except AppendError:
            # It may exceed these bounds alone; a thread decides.
            return None

    async def _check(self, batch: ProducedBatch) -> CheckedBatch | AppendError:
        """Check a batch's records in a thread; a refusal is an answer, also where nobody waits any more."""
        producer_id = batch.header.producer_id
        try:
            if producer_id >= self._producer_ids.given_end and not await self._producer_ids.was_given(
                producer_id
            ):
                problem = f"producer id {producer_id} was never given out: ask by InitProducerId"
                return AppendError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, problem)
        except QuorateError as error:
            problem = f"whether producer id {producer_id} was given out is not known: {error.message}"
            return AppendError(code_of_error(error), problem)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, checked_batch_of, batch)
        except AppendError as error:
            return error

    # -- batches whose transaction has to be looked up -------------------------------------------------------

    def _unverified(self, replica: Replica, header: BatchHeader) -> Unverified | None:
        """Return where a batch waits until its transaction is looked up; None: it need not be."""
        waiters, producer_id, epoch = replica.waiters, header.producer_id, header.producer_epoch
        found = waiters.unverified.get(producer_id)
        is_asked = found is not None and found.appends
        if not is_asked and (
            not self._verifier.is_on
            or replica.log.has_open_transaction(producer_id, epoch)
            # The log refuses it, and names both epochs.
            or replica.log.is_fenced(producer_id, epoch)
        ):
            return None
        return waiters.unverified_of(producer_id, epoch, header.base_sequence)

    async def _verify(self, replica: Replica, claim: Claim, unverified: Unverified) -> None:
        """Ask whether a transaction has a partition, and give its batches their places, or refuse them."""
        try:
            refused = await self._verifier.refusal(claim)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._give_up(replica, NodeStoppedError.during("a verification", error))
            return
        waiting, unverified.appends = unverified.appends, []
        known = replica.waiters.unverified
        may_pass = refused is not None and refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
        if known.get(claim.producer_id) is unverified and not may_pass:
            del known[claim.producer_id]
        for append in waiting:
            if refused is not None:
                append.refuse(replica.key, refusal(refused))
            if append.refused:
                self._count_out(append)
            else:
                self._queue(replica, append)

    # -- batches that wait for their turn --------------------------------------------------------------------

    def _queue(self, replica: Replica, append: WaitingAppend) -> None:
        replica.waiters.appends.append(append)
        if len(replica.waiters.appends) == 1:
            self._run(self._take_turns(replica), f"appends to {replica.key}")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    async def _take_turns(self, replica: Replica) -> None:
        """Append what waits, one batch after the other, until nothing waits."""
        try:
            pace = Pace()
            while replica.waiters.appends:
                await pace.rest()
                append = replica.waiters.appends[0]
                if append.checking is not None:
                    checked = await append.checking
                    if isinstance(checked, AppendError):
                        append.refuse(replica.key, refusal(checked))
                    else:
                        append.batch = checked
                batch = append.batch
                if batch is not None:
                    await replica.log.before_append(batch.header.size, batch.header.records_count)
                self._leave(replica)
                if batch is None or append.refused:
                    continue
                self._append(replica, batch, append.request, must_be_open=append.must_be_open)
        except LogStorageError as error:
            self._give_up(replica, error)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._give_up(replica, NodeStoppedError.during("an append", error))
        finally:
            # What is left when this task is cancelled has its answer.
            while replica.waiters.appends:
                self._leave(replica)

    def _leave(self, replica: Replica) -> None:
        self._count_out(replica.waiters.appends.popleft())

    def _count_out(self, append: WaitingAppend) -> None:
        self._appends -= 1
        self._appends_bytes -= append.size_bytes

    def _give_up(self, replica: Replica, error: QuorateError) -> None:
        waiters = replica.waiters
        waiting = (waiters.appends, *(each.appends for each in waiters.unverified.values()))
        for append in chain.from_iterable(waiting):
            append.refuse(replica.key, ProduceOutcome(ErrorCode.KAFKA_STORAGE_ERROR))
        self._on_storage_error(error)

    # -- the append ------------------------------------------------------------------------------------------

    def _append(
        self, replica: Replica, batch: CheckedBatch, request: WaitingProduce, *, must_be_open: bool = False
    ) -> None:
        key, machine = replica.key, replica.machine
        refused = machine.may_append(request.acks_all)
        if refused is not ErrorCode.NONE:
            request.settle(key, ProduceOutcome(refused))
            return
        try:
            appended = replica.log.append_produced(
                batch, machine.role.leader_epoch, wall_ms(), must_be_open=must_be_open
            )
        except AppendError as error:
            request.settle(key, refusal(error))
            return
        except LogStorageError as error:
            self._on_storage_error(error)
            request.settle(key, ProduceOutcome(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error)))
            return
        replica.log_grew()
        if not (appended.duplicate or batch.header.attributes & CONTROL):
            self._counters.records_produced += appended.last_offset + 1 - appended.base_offset
            self._counters.bytes_produced += len(batch.content)
        outcome = ProduceOutcome(
            ErrorCode.NONE,
            appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=replica.log.log_start_offset,
        )
        if request.acks_all and not request.ended and replica.high_watermark <= appended.last_offset:
            request.wait_for(replica.waiters, appended.last_offset + 1, outcome)
        else:
            request.settle(key, outcome)


def _check_transactional(request: WaitingProduce) -> None:
    """Refuse a transactional batch that no transaction of its request can have."""
    if request.transactional_id is None:
        raise AppendError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    if not request.acks_all:
        raise AppendError(ErrorCode.INVALID_REQUIRED_ACKS, "a transactional batch is sent with acks = all")


def refusal(error: AppendError) -> ProduceOutcome:
    """Return the outcome of a batch that was refused."""
    return ProduceOutcome(ErrorCode(error.error_code), message=str(error), record_errors=error.record_errors)
