"""The log of one partition: what is appended, read, truncated and expired, and when that is durable.

A leader's append checks what a producer sent and gives it offsets; a follower's takes the leader's bytes
as they are. Order: a batch is written, then noted in the indexes, the producers' state and the epochs,
then answered; it is fsynced when its segment is closed, every 64 MiB and as flush.messages and flush.ms
say, in another thread (broker/log/flushing.py). A log knows no high watermark: callers decide what may be
read and truncated.

The event loop waits for no disk here: it asks `before_append` what an append must wait for, and waits for
`settled` before and after it truncates.

Hard state: the files. Soft state: everything in memory, rebuilt by broker/log/recovery.py.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means"; ARCHITECTURE.md, "Life of a
record"; Kafka's UnifiedLog (3.9).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from broker.log.batches import CONTROL, NO_PRODUCER, PREFIX, BatchHeader, Buffer
from broker.log.cleaning.swapping import Cleanable, CleanedSegment, finish, put_in_place, stage, unstage
from broker.log.copied import copied_batches
from broker.log.cutting import CutJob, CutPlan, plan_cut
from broker.log.disk_threads import finished
from broker.log.errors import AppendError
from broker.log.files import FilePool, replace_file
from broker.log.flushing import Flusher, FlushJob
from broker.log.log_start import LogStart
from broker.log.markers import end_marker_in
from broker.log.pending import PendingJobs
from broker.log.produced import CheckedBatch, ProducedBatch, produced_batch, with_times
from broker.log.producers import ActiveProducer, Producers
from broker.log.recovery import EPOCHS_NAME, recover_log
from broker.log.results import Appended
from broker.log.retention import Retention
from broker.log.segment import RELATIVE_OFFSET_MAX, Segment, file_name, remove_all
from broker.log.segments import Segments
from broker.log.unsaved import Unsaved
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings

#: bytes after which an open segment is made durable, so that a start after a kill has little to check
FLUSH_BYTES: Final = 64 * 1024 * 1024
#: jobs of one log that may wait for the disk; a writer that is faster waits for it then
FLUSHES_PENDING_MAX: Final = 2


class PartitionLog:
    """One partition's log, open."""

    def __init__(
        self,
        folder: str,
        key: PartitionKey,
        topic_id: uuid.UUID | None,
        settings: TopicSettings,
        files: FilePool,
        flusher: Flusher,
        now_ms: int,
        unsynced: Sequence[tuple[str, bytes]] = (),
        *,
        is_clean: bool = False,
        on_shortened: Callable[[], None] = lambda: None,
    ) -> None:
        """Open the log in a folder that exists, and recover what it holds.

        Args:
            folder: the log's own.
            key: which partition's.
            topic_id: of the topic's present life; None if that has none.
            settings: the topic's.
            files: where its files are opened.
            flusher: where its fsyncs are done.
            now_ms: the time, for the expiry of producers.
            unsynced: (path, content) of files that must be durable before the first record is.
            is_clean: whether the log was closed when the process before ended.
            on_shortened: called before the log is cut; what it notes must be durable on return.
        """
        self.key = key
        self.topic_id = topic_id
        self.folder = folder
        self._settings = settings
        self._files = files
        recovered = recover_log(files, folder, now_ms, is_clean=is_clean, on_shortened=on_shortened)
        self._epochs = recovered.epochs
        self._producers = recovered.producers
        self._start = LogStart(folder, recovered.log_start_offset)
        self.segments = Segments(
            key, recovered.segments, self._start, recovered.producers.aborted, flusher.readers
        )
        self._pending = PendingJobs(flusher)
        #: what a truncation has still to do on the disk; nothing is appended before
        self._cutting: CutJob | None = None
        #: the last time that was given, for producers that are found again in the log
        self._now_ms = now_ms
        self._unsaved = Unsaved(folder, unsynced, recovered.segments)
        if recovered.unsaved:
            replace_file(f"{folder}/{EPOCHS_NAME}", self._epochs.to_bytes())
            for segment in recovered.unsaved:
                self._unsaved.job(segment, self._epochs).run()
                segment.release_indexes()

    @property
    def _active(self) -> Segment:
        """The newest segment, which is written to."""
        return self.segments.listed[-1]

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return max(self._start.offset, self.segments.listed[0].base_offset)

    @property
    def durable_start_offset(self) -> int:
        """The log start offset after a crash, at least."""
        return max(self._start.durable_offset, self.segments.listed[0].base_offset)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.segments.listed[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments.listed)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there is none."""
        return self._epochs.latest

    def active_producers(self) -> list[ActiveProducer]:
        """Return the producers that are remembered; see Producers.active()."""
        return self._producers.active()

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer of an epoch has one."""
        return self._producers.is_open(producer_id, producer_epoch)

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of a producer is known."""
        return self._producers.is_fenced(producer_id, producer_epoch)

    def oldest_open_ms(self) -> int | None:
        """Return the time of the last append of the transaction that is open for longest; None: none is."""
        return self._producers.oldest_open_ms()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end (exclusive) of what a reader of committed records may see."""
        stable = self._producers.last_stable_offset(high_watermark)
        return stable if stable == high_watermark else max(stable, self.log_start_offset)

    def configure(self, settings: TopicSettings) -> None:
        """Obey other settings from now on."""
        self._settings = settings

    def check(self, records: Buffer) -> ProducedBatch:
        """Check what a producer sent, but for its records; see produced_batch()."""
        return produced_batch(records, self._settings, self.key)

    def append_produced(
        self, batch: CheckedBatch, leader_epoch: LeaderEpoch, now_ms: int, *, must_be_open: bool = False
    ) -> Appended:
        """Append a batch that was checked, with the next offsets.

        Args:
            batch: what checked_batch_of() made of what check() returned, or end_batch() made.
            leader_epoch: this leader's.
            now_ms: the time.
            must_be_open: whether its transaction was, when it was looked at.
        """
        self._look_at_disk()
        header = batch.header
        if header.producer_id != NO_PRODUCER:
            marker = end_marker_in(header, (batch.content,)) if header.attributes & CONTROL else None
            known = self._producers.check(header, marker)
            if known is not None:
                return Appended(known.base_offset, known.last_offset, True, known.append_time_ms)
            if must_be_open and not self._producers.is_open(header.producer_id, header.producer_epoch):
                problem = "the transaction ended before the batch was appended"
                raise AppendError(ErrorCode.INVALID_TXN_STATE, problem)
        batch = with_times(batch, self._settings, self.key, now_ms)
        header = batch.header
        offset = self.log_end_offset
        prefix = PREFIX.pack(offset, header.batch_length, leader_epoch)
        stored = BatchHeader._make((offset, header.batch_length, leader_epoch, *header[3:]))
        self._store([stored], [(prefix, batch.content[PREFIX.size :])], now_ms)
        return Appended(offset, stored.last_offset, False, stored.append_time_ms)

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended:
        """Append batches as the leader has them.

        Args:
            records: one or more whole batches, the first of which begins at this log's end.
            now_ms: the time, for the expiry of producers.
        """
        self._look_at_disk()
        is_empty = not self._active.size and len(self.segments.listed) == 1
        headers, buffers = copied_batches(records, self.log_end_offset, self.key, is_empty=is_empty)
        self._store(headers, buffers, now_ms)
        return Appended(headers[0].base_offset, headers[-1].last_offset, False)

    def _look_at_disk(self) -> None:
        """Refuse an append after any failure."""
        self._pending.check()
        assert self._cutting is None, "before_append() was not waited for"

    def _store(
        self, headers: Sequence[BatchHeader], buffers: Sequence[tuple[Buffer, ...]], now_ms: int
    ) -> None:
        """Write batches, as many in one call as fit in a segment, and note them."""
        first, size = 0, 0
        for number, header in enumerate(headers):
            if self._is_full(self._active.size + size, header.size, header.last_offset):
                self._write(headers[first:number], buffers[first:number], now_ms)
                self._roll(header.base_offset)
                first, size = number, 0
            size += header.size
        self._write(headers[first:], buffers[first:], now_ms)
        unflushed_bytes = self._active.size - self._unsaved.flushed_bytes
        if self._flushes_after(0) or (unflushed_bytes > FLUSH_BYTES and not self._pending):
            self._flush()

    async def before_append(self, size_bytes: int, records_count: int) -> None:
        """Return when the next append may go; in that turn it may, later it may have to wait again.

        An append that begins another segment waits while FLUSHES_PENDING_MAX jobs of this log wait for the
        disk, one that flush.messages fsyncs waits for all of them, and every append waits until a truncation
        is durable. Whatever else happens meanwhile is for the caller to look at. Raises nothing: the append
        itself says why it cannot go.
        """
        while (ahead := self._flushes_ahead(size_bytes, records_count)) is not None:
            await finished(ahead)

    def must_wait(self, size_bytes: int, records_count: int) -> bool:
        """Whether before_append() waits."""
        return self._flushes_ahead(size_bytes, records_count) is not None

    def _flushes_ahead(self, size_bytes: int, records_count: int) -> Future[None] | None:
        """Return the job that an append has to wait for."""
        pending = self._pending.unfinished()
        if not pending or self._cutting is not None or self._flushes_after(records_count):
            return pending[-1] if pending else None
        rolls = self._is_full(self._active.size, size_bytes, self.log_end_offset + records_count - 1)
        return pending[0] if rolls and len(pending) >= FLUSHES_PENDING_MAX else None

    def _flushes_after(self, records_count: int) -> bool:
        """Whether so many more records are as many as flush.messages leaves without an fsync."""
        unflushed = self.log_end_offset - self._unsaved.flushed_offset
        return unflushed + records_count >= self._settings.flush_messages

    def _is_full(self, before_bytes: int, size_bytes: int, last_offset: int) -> bool:
        return before_bytes > 0 and (
            before_bytes + size_bytes > self._settings.segment_bytes
            or last_offset - self._active.base_offset > RELATIVE_OFFSET_MAX
        )

    def _write(
        self, headers: Sequence[BatchHeader], buffers: Sequence[tuple[Buffer, ...]], now_ms: int
    ) -> None:
        if not headers:
            return
        segment = self._active
        self._unsaved.is_anything = True
        segment.write(buffers[0] if len(buffers) == 1 else [part for parts in buffers for part in parts])
        for number, header in enumerate(headers):
            segment.note(header)
            self._epochs.assign(header.partition_leader_epoch, max(header.base_offset, segment.base_offset))
            if header.producer_id != NO_PRODUCER:
                marker = end_marker_in(header, buffers[number]) if header.attributes & CONTROL else None
                aborted = self._producers.record(header, now_ms, marker)
                if aborted is not None:
                    self._producers.aborted.note(segment.base_offset, aborted)

    def _roll(self, base_offset: int) -> None:
        """Close the active segment and begin the next one."""
        closed = self._active
        closed.note_time()
        job = self._unsaved.job(closed, self._epochs, self._producers)
        self._pending.add(job.steps, partial(self._is_closed, closed), closed)
        self.segments.listed.append(Segment.create(self._files, self.folder, base_offset))
        self._unsaved.flushed_bytes = 0
        self._unsaved.flushed_offset = base_offset

    def _is_closed(self, segment: Segment) -> None:
        segment.release_indexes()
        self._producers.aborted.release(segment.base_offset)

    def flush_by_age(self, now_ms: int) -> None:
        """Begin to make durable what is not, every flush.ms; now_ms is of a clock that never goes back."""
        if now_ms - self._unsaved.flushed_ms < self._settings.flush_ms:
            return
        self._pending.check()
        if self._active.size > self._unsaved.flushed_bytes and not self._pending:
            self._unsaved.flushed_ms = now_ms
            self._flush()

    def _flush(self) -> None:
        """Make what the active segment has durable."""
        self._pending.add(self._unsaved.job(self._active, self._epochs).steps)
        self._unsaved.flushed_bytes = self._active.size
        self._unsaved.flushed_offset = self.log_end_offset

    def settle_flushes(self) -> None:
        """Wait until what was begun is durable; raises LogStorageError."""
        self._pending.settle()

    async def settled(self) -> None:
        """Wait, in the event loop, until what was begun is durable; raises LogStorageError."""
        await self._pending.settled()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `leader_epoch`, and its end; (-1, -1): unknown."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and go on at an offset: what the leader has left begins there.

        On return it is so in memory; it is durable once what was begun is (`settled`).
        """
        self.settle_flushes()
        self._cut(CutPlan(self.segments.version, self.log_end_offset, 0, None, offset))

    async def truncate_patiently(self, offset: int, is_wanted: Callable[[], bool]) -> bool:
        """Cut every batch that ends at this offset or after it; one that spans it goes as a whole.

        On return it is so in memory; it is durable once what was begun is (`settled`). What must be read for
        it is read in a thread. Returns False, and does nothing, if others changed the log meanwhile or it is
        wanted no longer.
        """
        await self.settled()
        segments, version, start = list(self.segments.listed), self.segments.version, self.log_start_offset
        found = self.segments.readers.run(partial(plan_cut, segments, version, offset, start))
        await finished(found)
        known = (version, segments[-1].next_offset)
        if known != (self.segments.version, self.log_end_offset) or self._pending or not is_wanted():
            return False
        self._cut(found.result())
        return True

    def _cut(self, plan: CutPlan) -> None:
        if plan.end_offset >= self.log_end_offset and plan.kept:
            return
        kept, removed = self.segments.listed[: plan.kept], self.segments.listed[plan.kept :]
        self.segments.become(kept or [Segment(self._files, self.folder, plan.end_offset)])
        for segment in removed:
            segment.close()
        if plan.cut is not None:
            self._active.apply_cut(plan.cut)
            self._epochs.truncate_to(plan.end_offset)
            recovers = not self._producers.truncate_to(plan.end_offset, self._active.base_offset)
        else:
            self._start.clear()
            self._epochs.clear()
            self._take_producers(Producers(self.folder))
            recovers = False
        self._unsaved.flushed_bytes = self._unsaved.flushed_offset = 0
        self._unsaved.is_anything = True
        epochs = self._epochs.to_bytes()
        self._cutting = CutJob(
            self.folder, plan, removed, self.segments.listed, epochs, self._now_ms if recovers else None
        )
        self._pending.add(self._cutting.steps, self._cut_is_durable)

    def _cut_is_durable(self) -> None:
        assert self._cutting is not None
        if self._cutting.producers is not None:
            self._take_producers(self._cutting.producers)
        self._cutting = None

    def _take_producers(self, producers: Producers) -> None:
        self._producers = producers
        self.segments.aborted = producers.aborted

    def advance_start(self, offset: int) -> None:
        """Hide the records below an offset, which the log has; durable once what was begun is (`settled`).

        Their segments go with the next delete_expired().
        """
        if offset > self.log_start_offset:
            self._pending.check()
            self._start.advance(offset, self._pending)
            self._epochs.start_at(offset)

    def delete_expired(self, *, high_watermark: int, now_ms: int, by_age: bool = True) -> int:
        """Remove segments before the log start, older than retention.ms or too much by retention.bytes.

        Nothing above the high watermark goes. The active segment goes by age only: it is closed first, as
        soon as its first record is older than segment.ms or retention.ms. What the disk still works on stays
        until the next time. Where `by_age` is not set the time cannot be believed: nothing goes for its age.

        Returns:
            The new log_start_offset.
        """
        self._now_ms = now_ms
        if by_age:
            self._producers.expire(now_ms)
        self._producers.last_stable_offset(high_watermark)
        self._pending.check()
        if self._cutting is not None:
            return self.log_start_offset
        limits = Retention(self._settings, high_watermark, self.log_start_offset, now_ms, by_age=by_age)
        if not self._pending and limits.closes(self._active):
            self._roll(self.log_end_offset)
        expired = limits.expired(self.segments.listed)
        while expired and self._pending.closes(expired[-1]):
            expired.pop()
        if expired:
            self._remove_oldest(expired)
        self._epochs.start_at(self.log_start_offset)
        return self.log_start_offset

    def cleanable(self) -> Cleanable:
        """Return what there is to compact."""
        closed = [each for each in self.segments.listed[:-1] if not self._pending.closes(each)]
        producers = self._producers
        return Cleanable(self.segments.version, closed, producers.last_offsets(), producers.fencing_epochs())

    async def swap_in(self, version: int, cleaned: CleanedSegment) -> int | None:
        """Put a compacted segment in the place of those that it was made of.

        Args:
            version: of the log that it was made of.
            cleaned: whose files are there, and durable.

        Returns:
            The log's version; None: the log has changed, and stays as it is.
        """
        await self.settled()
        if version != self.segments.version:
            return None
        stem = f"{self.folder}/{file_name(cleaned.base_offset)}"
        self._pending.add(
            partial(stage, stem, cleaned.next_offset), partial(self._put_in_place, version, cleaned, stem)
        )
        await self.settled()
        return version + 1 if self.segments.version == version + 1 else None

    def _put_in_place(self, version: int, cleaned: CleanedSegment, stem: str) -> None:
        if version != self.segments.version:
            self._pending.add(partial(unstage, stem))
            return
        listed = self.segments.listed
        replaced = [each for each in listed if each.base_offset in cleaned.replaced]
        first = listed.index(replaced[0])
        for each in replaced:
            each.retire()
        segment = put_in_place(self._files, self.folder, cleaned)
        self.segments.become([*listed[:first], segment, *listed[first + len(replaced) :]])
        self._producers.aborted = self.segments.aborted = self._producers.aborted.swapped(
            cleaned.base_offset, cleaned.replaced, has_any=cleaned.has_aborted
        )
        ended = partial(finish, segment, replaced[1:], has_aborted=cleaned.has_aborted)
        self._pending.add(ended, is_slow=True)

    def _remove_oldest(self, expired: Sequence[Segment]) -> None:
        """Let segments go; their files go in a thread, the oldest first: a crash leaves no gap."""
        self.segments.become(self.segments.listed[len(expired) :])
        for segment in expired:
            segment.close()
            self._producers.aborted.remove(segment.base_offset)
        self._pending.add(partial(remove_all, expired), is_slow=True)

    def closing_job(self) -> FlushJob | None:
        """Return what must be written before the log may be closed; None: the files have everything."""
        self.settle_flushes()
        if not self._unsaved.is_anything:
            return None
        self._active.note_time()
        return self._unsaved.job(self._active, self._epochs, self._producers)

    def abandon(self) -> None:
        """Let go of the files as they are: the disk has failed, or nothing is left to be done."""
        self._pending.forget()
        self._unsaved.is_anything = False
        for segment in self.segments.listed:
            segment.close()
