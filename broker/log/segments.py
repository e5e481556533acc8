"""The segments of one log, from the oldest on, and what is read in them, in the event loop or in a thread.

The log alone changes the list: it appends to the last segment, adds another one behind it, or has another
list. Then the version rises: what was read before may be another log's.
Source: Kafka's LogSegments and LocalLog.read (3.9).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from broker.log.aborted import AbortedLists
from broker.log.disk_threads import DiskThreads, finished
from broker.log.errors import OffsetOutOfRangeError
from broker.log.files import NotCachedError
from broker.log.log_start import LogStart
from broker.log.reading import read_segment, segment_of
from broker.log.results import Read
from broker.log.segment import Segment
from broker.log.time_lookup import TimedBatch, batch_at_or_after, newest_batch
from quorum.metadata.paths import PartitionKey

T = TypeVar("T")


class Segments:
    """At least one segment."""

    __slots__ = ("_key", "_start", "aborted", "listed", "readers", "version")

    def __init__(
        self,
        key: PartitionKey,
        segments: list[Segment],
        start: LogStart,
        aborted: AbortedLists,
        readers: DiskThreads,
    ) -> None:
        """Hold them.

        Args:
            key: the partition, for errors.
            segments: from the oldest on, without a gap.
            start: of the log; records before it are not read.
            aborted: the log's aborted transactions.
            readers: the threads that read what is not in memory.
        """
        self._key = key
        self._start = start
        self.listed = segments
        self.aborted = aborted
        self.readers = readers
        #: rises whenever records go
        self.version = 0

    def become(self, segments: list[Segment]) -> None:
        """Have other segments."""
        self.version += 1
        # Another list: a thread may look for a segment in the old one.
        self.listed = segments

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        below: int,
        at_least_one: bool,
        wait: bool = True,
        with_aborted: bool = False,
    ) -> Read:
        """Read whole batches; with `wait`, which waits for the disk, any thread may do so.

        Args:
            offset: of the first record that is wanted.
            max_bytes: what the reader has room for.
            below: only batches that end below this offset: the high watermark for a consumer.
            at_least_one: the first batch also where it is larger than `max_bytes`.
            wait: see above.
            with_aborted: and the aborted transactions that reach into them.
        """
        listed = self.listed
        start_offset, end_offset = max(self._start.offset, listed[0].base_offset), listed[-1].next_offset
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self._key.topic}-{self._key.partition}: "
                f"the log has {start_offset} to {end_offset}"
            )
        if offset >= min(below, end_offset):
            return Read(b"", offset, () if with_aborted else None)
        segment = segment_of(listed, offset)
        found = read_segment(segment, offset, max_bytes, below, at_least_one=at_least_one, wait=wait)
        if not with_aborted:
            return found
        between = self.aborted.between
        return found._replace(aborted=between(segment.base_offset, offset, found.next_offset, wait=wait))

    async def read_patiently(
        self, offset: int, max_bytes: int, *, below: int, at_least_one: bool, with_aborted: bool = False
    ) -> Read:
        """Read as read(), in a thread where the disk must be read."""
        read = partial(
            self.read,
            offset,
            max_bytes,
            below=below,
            at_least_one=at_least_one,
            with_aborted=with_aborted,
        )
        try:
            return read(wait=False)
        except NotCachedError:
            found = await self.in_thread(read)
        if found.records:
            segment_of(self.listed, offset).warm()
        return found

    async def in_thread(self, read: Callable[[], T]) -> T:
        """Read in a thread; again where records went meanwhile: others may have come to their place."""
        while True:
            version = self.version
            found = self.readers.run(read)
            await finished(found)
            if version == self.version:
                return found.result()

    def batch_for_time(self, timestamp_ms: int, from_offset: int) -> TimedBatch | int | None:
        """Return the first batch that may have a record at or after a time; see batch_at_or_after()."""
        return batch_at_or_after(self.listed, timestamp_ms, from_offset)

    def newest_batch(self) -> TimedBatch | None:
        """Return the first batch with the largest timestamp; None: no record has one."""
        listed = self.listed
        return newest_batch(listed, max(self._start.offset, listed[0].base_offset))
