"""The log of one partition: what is appended, read, truncated and expired, and in which order that is
durable.

A leader's append checks what a producer sent and gives it offsets; a follower's takes the leader's bytes
as they are. Order: a batch is written, then noted in the indexes, the producers' state and the epochs,
then answered; it is fsynced when its segment is closed or every 64 MiB, in another thread
(broker/log/flushing.py). Whoever calls decides what may be read and truncated: the high watermark is no
concern of a log.

Hard state: the files. Soft state: everything in memory, rebuilt by broker/log/recovery.py.
Source: control-plane design, "Log", "Produce", "Durability"; Kafka's UnifiedLog (3.9).
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.batches import (
    NO_PRODUCER,
    PREFIX,
    BatchHeader,
    Buffer,
    check_produced,
    checked_batches,
)
from broker.log.errors import AppendError, DamagedSegmentError, OffsetOutOfRangeError
from broker.log.files import FilePool, remove_file, replace_file, sync_folder
from broker.log.flushing import Flusher, FlushJob
from broker.log.recovery import (
    EPOCHS_NAME,
    RecoveredLog,
    recover_producers,
    recover_segments,
    remove_snapshots,
)
from broker.log.segment import RELATIVE_OFFSET_MAX, Segment, distrust, file_name
from broker.log.time_lookup import first_at_or_after, newest
from controller.messages.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings

log = logging.getLogger("quorate.broker.log")

#: bytes after which an open segment is made durable, so that a start after a kill has little to check
FLUSH_BYTES: Final = 64 * 1024 * 1024
#: jobs of one log that may wait for the disk; a writer that is faster waits for it then
FLUSHES_PENDING_MAX: Final = 2


class Appended(NamedTuple):
    """Where records are in the log."""

    base_offset: int
    #: of the last record, inclusive
    last_offset: int
    #: an idempotent producer's repeat: nothing was appended, the offsets are those of the first time
    duplicate: bool


class Read(NamedTuple):
    """Whole batches; the first one may begin before the offset that was asked for."""

    records: bytes
    #: behind the last record
    next_offset: int


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

        Raises:
            LogStorageError: the disk refuses.
        """
        self.key = key
        self.topic_id = topic_id
        self.folder = folder
        self._name = f"{key.topic}-{key.partition}"
        self._settings = settings
        self._files = files
        self._flusher = flusher
        recovered = None
        while recovered is None:
            try:
                recovered = self._recover(now_ms, is_clean, on_shortened)
            except DamagedSegmentError as error:
                # The segment is read whole now, and the log ends where it is damaged.
                log.error("%s", error)
                distrust(error)
                files.forget_indexes(error.stem)
                is_clean = False
        self._unsynced = tuple(unsynced)
        #: (the segment that is complete with it, the job), in order; None: the segment goes on
        self._flushes: deque[tuple[Segment | None, Future[None]]] = deque()
        #: bytes of the active segment that are durable or on their way
        self._flushed_bytes = 0
        #: the last time that was given, for producers that are found again in the log
        self._now_ms = now_ms
        #: whether the files lack something that only memory has
        self._unsaved = self._active.size > 0 and not Path(self._snapshot_path()).exists()
        if recovered.unsaved:
            self._save_epochs()
            for segment in recovered.unsaved:
                self._job(segment, closed=True).run()
                segment.release_indexes()

    def _recover(self, now_ms: int, is_clean: bool, on_shortened: Callable[[], None]) -> RecoveredLog:
        recovered = recover_segments(self._files, self.folder, is_clean=is_clean, on_shortened=on_shortened)
        self._segments = recovered.segments
        self._active = self._segments[-1]
        self._epochs = recovered.epochs
        self._producers = recover_producers(self.folder, self._segments, self.log_end_offset, now_ms)
        return recovered

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._active.next_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, -1 if there is none."""
        return self._epochs.latest

    def configure(self, settings: TopicSettings) -> None:
        """Obey other settings from now on."""
        self._settings = settings

    def append_as_leader(self, records: Buffer, leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Append what a producer sent, with the next offsets.

        Args:
            records: one or more whole batches of format 2; one only from an idempotent producer.
            leader_epoch: this leader's.
            now_ms: the time, for the expiry of producers.

        Raises:
            AppendError: refused, definite.
            LogStorageError: the disk refuses, indefinite.
        """
        view = memoryview(records)
        headers = checked_batches(view)
        alone = len(headers) == 1
        for header in headers:
            check_produced(header, self._settings, alone=alone)
        if headers[0].producer_id != NO_PRODUCER:
            known = self._producers.check(headers[0])
            if known is not None:
                return Appended(known.base_offset, known.last_offset, True)
        base_offset = offset = self.log_end_offset
        buffers: list[tuple[Buffer, ...]] = []
        position = 0
        for number, header in enumerate(headers):
            rest = view[position + PREFIX.size : position + header.size]
            buffers.append((PREFIX.pack(offset, header.batch_length, leader_epoch), rest))
            headers[number] = BatchHeader._make((offset, header.batch_length, leader_epoch, *header[3:]))
            position += header.size
            offset += header.last_offset_delta + 1
        self._store(headers, buffers, now_ms)
        return Appended(base_offset, offset - 1, False)

    def append_as_follower(self, records: Buffer, now_ms: int) -> Appended:
        """Append batches as the leader has them.

        Args:
            records: one or more whole batches, the first of which begins at this log's end.
            now_ms: the time, for the expiry of producers.

        Raises:
            AppendError: a wrong checksum, or offsets that do not continue this log; definite.
            LogStorageError: the disk refuses, indefinite.
        """
        view = memoryview(records)
        headers = checked_batches(view)
        offset = self.log_end_offset
        buffers: list[tuple[Buffer, ...]] = []
        position = 0
        for header in headers:
            if header.base_offset != offset:
                raise AppendError(
                    ErrorCode.INVALID_RECORD,
                    f"batch at offset {header.base_offset} of the leader; {self._name} goes on at {offset}",
                )
            buffers.append((view[position : position + header.size],))
            position += header.size
            offset = header.last_offset + 1
        base_offset = headers[0].base_offset
        self._store(headers, buffers, now_ms)
        return Appended(base_offset, offset - 1, False)

    def _store(
        self, headers: Sequence[BatchHeader], buffers: Sequence[tuple[Buffer, ...]], now_ms: int
    ) -> None:
        """Write batches, as many in one call as fit in a segment, and note them."""
        if self._flushes:
            self._collect_flushes()
        first, size = 0, 0
        for number, header in enumerate(headers):
            if self._must_roll(header, size):
                self._write(headers[first:number], buffers[first:number], now_ms)
                self._roll(header.base_offset)
                first, size = number, 0
            size += header.size
        self._write(headers[first:], buffers[first:], now_ms)
        if self._active.size - self._flushed_bytes > FLUSH_BYTES and not self._flushes:
            self._submit(self._active, closed=False)

    def _must_roll(self, header: BatchHeader, pending_bytes: int) -> bool:
        segment = self._active
        before = segment.size + pending_bytes
        return before > 0 and (
            before + header.size > self._settings.segment_bytes
            or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        )

    def _write(
        self, headers: Sequence[BatchHeader], buffers: Sequence[tuple[Buffer, ...]], now_ms: int
    ) -> None:
        if not headers:
            return
        segment = self._active
        self._unsaved = True
        segment.write(buffers[0] if len(buffers) == 1 else [part for parts in buffers for part in parts])
        for header in headers:
            segment.note(header)
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            self._producers.record(header, now_ms)

    def _roll(self, base_offset: int) -> None:
        """Close the active segment and begin the next one."""
        closed = self._active
        closed.note_time()
        while len(self._flushes) >= FLUSHES_PENDING_MAX:
            self._settle_flush()
        self._submit(closed, closed=True)
        self._active = Segment.create(self._files, self.folder, base_offset)
        self._segments.append(self._active)
        self._flushed_bytes = 0

    def _job(self, segment: Segment, *, closed: bool) -> FlushJob:
        """Collect what makes a segment durable up to now; a closed one with the producers at its end."""
        files = [*self._unsynced, (f"{self.folder}/{EPOCHS_NAME}", self._epochs.to_bytes())]
        self._unsynced = ()
        if closed and segment is self._active:
            files.append((self._snapshot_path(), self._producers.to_bytes()))
        files.append((segment.stem + ".timeindex", segment.times.to_bytes()))
        files.append((segment.stem + ".index", segment.offsets.to_bytes()))
        return FlushJob(segment.log_path, tuple(files))

    def _snapshot_path(self) -> str:
        return f"{self.folder}/{file_name(self.log_end_offset)}.snapshot"

    def _submit(self, segment: Segment, *, closed: bool) -> None:
        job = self._job(segment, closed=closed)
        self._flushes.append((segment if closed else None, self._flusher.submit(job.run)))
        self._flushed_bytes = segment.size

    def _collect_flushes(self) -> None:
        while self._flushes and self._flushes[0][1].done():
            self._settle_flush()

    def _settle_flush(self) -> None:
        """Wait for the oldest job; raises LogStorageError if it failed."""
        closed, done = self._flushes.popleft()
        done.result()
        if closed is not None:
            closed.release_indexes()

    def settle_flushes(self) -> None:
        """Wait until what was begun is durable; raises LogStorageError."""
        while self._flushes:
            self._settle_flush()

    def read(self, offset: int, max_bytes: int, *, below: int, at_least_one: bool) -> Read:
        """Read whole batches.

        Args:
            offset: of the first record that is wanted.
            max_bytes: what the reader has room for.
            below: only batches that end below this offset: the high watermark for a consumer.
            at_least_one: the first batch also where it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRangeError: before the log's start or behind its end.
            DamagedSegmentError: what is there is not as it was written.
            LogStorageError: the disk refuses.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self._name}: "
                f"the log has {self.log_start_offset} to {self.log_end_offset}"
            )
        if offset < min(below, self.log_end_offset):
            segment = self._segment_of(offset)
            span = segment.span(offset, max_bytes, below, at_least_one=at_least_one)
            if span is not None and span.size:
                records = segment.read(span.position, span.size)
                segment.check(span.position, records)
                return Read(records, span.next_offset)
        return Read(b"", offset)

    def _segment_of(self, offset: int) -> Segment:
        """Return the segment that holds an offset of this log."""
        if offset >= self._active.base_offset:
            return self._active
        low, high = 0, len(self._segments)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._segments[middle].base_offset <= offset else (low, middle)
        return self._segments[low]

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `leader_epoch`, and its end; (-1, -1): unknown."""
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record whose timestamp is at least this one.

        Raises:
            UnreadableBatchError: its batch cannot be opened.
        """
        return first_at_or_after(self._segments, timestamp_ms)

    def max_timestamp(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the first record with the largest timestamp; (-1, -1): none has one.

        Raises:
            UnreadableBatchError: its batch cannot be opened.
        """
        return newest(self._segments) or (-1, -1)

    def truncate_to(self, offset: int) -> None:
        """Cut every batch that ends at this offset or behind it; one that spans it goes as a whole.

        Raises:
            LogStorageError: the disk refuses.
        """
        if offset >= self.log_end_offset:
            return
        if offset <= self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.settle_flushes()
        # First what must never be taken for the state of other batches at these offsets.
        remove_snapshots(self.folder, offset + 1)
        self._remove_segments(above=offset)
        segment = self._active = self._segments[-1]
        position = segment.position_of(offset)
        end_offset = offset if position is None else segment.base_offset_at(position)
        segment.truncate(segment.size if position is None else position, end_offset)
        self._epochs.truncate_to(end_offset)
        self._save_epochs()
        sync_folder(self.folder)
        if not self._producers.truncate_to(end_offset):
            self._producers = recover_producers(self.folder, self._segments, end_offset, self._now_ms)
        self._flushed_bytes = 0
        self._unsaved = True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and go on at an offset: what the leader has left begins there.

        Raises:
            LogStorageError: the disk refuses.
        """
        self.settle_flushes()
        remove_snapshots(self.folder, 0)
        remove_file(f"{self.folder}/{EPOCHS_NAME}")
        self._remove_segments(above=-1)
        self._active = Segment.create(self._files, self.folder, offset)
        self._segments.append(self._active)
        sync_folder(self.folder)
        self._epochs.clear()
        self._producers.clear()
        self._flushed_bytes = 0
        self._unsaved = True

    def _remove_segments(self, *, above: int) -> None:
        """Remove the segments that begin above an offset, the last one first: a crash leaves no gap."""
        while self._segments and self._segments[-1].base_offset > above:
            self._segments.pop().remove()

    def _save_epochs(self) -> None:
        replace_file(f"{self.folder}/{EPOCHS_NAME}", self._epochs.to_bytes())

    def delete_expired(self, *, high_watermark: int, now_ms: int) -> int:
        """Remove segments that are older than retention.ms or make the log larger than retention.bytes.

        Nothing above the high watermark goes. The active segment goes by age only: it is closed first.

        Returns:
            The new log_start_offset.

        Raises:
            LogStorageError: the disk refuses, or refused an fsync meanwhile.
        """
        self._now_ms = now_ms
        self._producers.expire(now_ms)
        self._collect_flushes()
        if self._active.size and self._is_old(self._active, now_ms) and self.log_end_offset <= high_watermark:
            self._roll(self.log_end_offset)
        total = self.size_bytes
        retention_bytes = self._settings.retention_bytes
        while len(self._segments) > 1 and self._segments[1].base_offset <= high_watermark:
            oldest = self._segments[0]
            too_much = 0 <= retention_bytes <= total - oldest.size
            if not (too_much or self._is_old(oldest, now_ms)):
                break
            while any(closed is oldest for closed, _ in self._flushes):
                self._settle_flush()
            total -= oldest.size
            del self._segments[0]
            self._flusher.remove(oldest.set_aside())
        self._epochs.start_at(self.log_start_offset)
        return self.log_start_offset

    def _is_old(self, segment: Segment, now_ms: int) -> bool:
        retention_ms = self._settings.retention_ms
        return 0 <= retention_ms < now_ms - segment.newest_ms()

    def flush(self) -> None:
        """Make everything durable before returning; raises LogStorageError."""
        self.settle_flushes()
        self._job(self._active, closed=False).run()
        self._flushed_bytes = self._active.size

    def closing_job(self) -> FlushJob | None:
        """Return what must be written before the log may be closed; None: the files have everything."""
        self.settle_flushes()
        if not self._unsaved:
            return None
        self._active.note_time()
        return self._job(self._active, closed=True)

    def close(self) -> None:
        """Make everything durable and let go of the files; raises LogStorageError."""
        job = self.closing_job()
        if job is not None:
            job.run()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are: the disk has failed, or nothing is left to be done."""
        while self._flushes:
            self._flushes.popleft()[1].exception()
        for segment in self._segments:
            segment.close()
