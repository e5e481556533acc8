"""The order of writing: what is submitted while an fsync runs becomes the next group.

Decides what goes into a group, whether it is written inline or in the journal's thread, and which callers
hear of its end. A submission never writes within the call: the flush is a later callback of the loop, so that
network writes of the same turn leave first. Inline writing is for a quick disk: most of the last eight groups
took less than a millisecond, none was very slow, none stalled within the last minutes, and the group is
small; the thread costs two hand-overs of the interpreter, several times as much as such a write. A disk is
judged by its own time: what a thread waited for a core is no time of the disk. A group is staged only after
the one before is durable.

After an error that is final nothing is acknowledged any more. When the disk is full, the group stays staged
and what comes later waits for it, until `retry` is called. Soft state only; what is durable is
journal.py's.

Source: docs/internals/consensus.md, "Journal".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from quorum.errors import NodeStoppedError
from quorum.platform.histogram import Histogram
from quorum.platform.runtime import Runtime
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.journal.format import Record
from quorum.raft.journal.journal import Journal, JournalFailedError, JournalFullError, StagedGroup

#: The lane of Runtime.run_in_thread in which groups are written and segments removed.
JOURNAL_LANE = "journal"
#: A group takes no further submission beyond this.
GROUP_BYTES_MAX = 16 * 1024 * 1024
#: What may wait in all; the core's own bounds are far below, so more means that somebody ignores them.
QUEUE_BYTES_MAX = 512 * 1024 * 1024
#: A larger group would hold up the loop even on a quick disk.
INLINE_BYTES_MAX = 64 * 1024
INLINE_WRITE_MS_MAX = 1.0
#: One write as slow as this among the last ones is enough not to risk the next in the loop.
INLINE_WRITE_MS_WORST = 10.0
#: A disk that takes so long stalls: two heartbeats would have been late, had it been in the loop.
STALL_MS = 100.0
#: After a stall nothing is written in the loop for so long: a disk that stalled once does so again, and a
#: stall in the loop may cost the leadership.
INLINE_REST_MS = 120_000.0
#: How many of the last writes are looked at; most of them must have been quick.
INLINE_PROBES = 8
#: After what segments are removed again that a full disk, or a lack of files, did not let go.
REMOVAL_RETRY_MS = 1000.0
_DURATIONS_MAX = 1024
#: What a record that is not an entry counts.
_RECORD_BYTES = 64


class _Submission(NamedTuple):
    """Records that were submitted together."""

    records: tuple[Record, ...]
    size: int
    on_durable: Callable[[], object]


class JournalStatistics:
    """What the journal did since it was opened.

    Attributes:
        groups: groups made durable.
        fsyncs: fsyncs of group data.
        inline_fsyncs: those that ran in the loop.
        records: records made durable.
        bytes_written: bytes of durable groups.
        group_bytes_last: size of the newest group.
        durations: how long the disk took for a group.
    """

    def __init__(self) -> None:
        self.groups = 0
        self.fsyncs = 0
        self.inline_fsyncs = 0
        self.records = 0
        self.bytes_written = 0
        self.group_bytes_last = 0
        self.durations = Histogram()
        self._durations_ms: deque[float] = deque(maxlen=_DURATIONS_MAX)

    def add(self, group: StagedGroup, disk_ms: float, *, inline: bool) -> None:
        """Count a group that became durable."""
        size = group.end - group.place.offset
        self.groups += 1
        self.fsyncs += 1
        self.inline_fsyncs += inline
        self.records += group.record_count
        self.bytes_written += size
        self.group_bytes_last = size
        self._durations_ms.append(disk_ms)
        self.durations.add(disk_ms)

    def write_ms(self, quantile: float) -> float:
        """Return a quantile of how long the disk took for one of the last 1,024 groups; 0.0 for none.

        Args:
            quantile: 0.5 for the median, 0.99 for the 99th percentile.
        """
        ordered = sorted(self._durations_ms)
        return ordered[min(int(len(ordered) * quantile), len(ordered) - 1)] if ordered else 0.0


class JournalWriter:
    """Writes submissions to a journal, in order, in groups. Belongs to the loop's thread."""

    def __init__(
        self,
        journal: Journal,
        runtime: Runtime,
        on_fatal: Callable[[Exception], object],
        on_full: Callable[[JournalFullError], object],
    ) -> None:
        """Begin with nothing to write.

        Args:
            journal: written by nobody else from now on.
            runtime: the loop and its threads.
            on_fatal: called once; the node must stop, nothing is acknowledged any more.
            on_full: called at each attempt that found no room; nothing is acknowledged until a `retry`
                succeeds.
        """
        self.statistics = JournalStatistics()
        self._journal = journal
        self._runtime = runtime
        self._on_fatal = on_fatal
        self._on_full = on_full
        self._queue: deque[_Submission] = deque()
        self._queued_bytes = 0
        self._flush_asked = False
        #: what the staged group covers; empty if none is staged
        self._taken: list[_Submission] = []
        self._staged: StagedGroup | None = None
        self._writing = False
        self._full = False
        self._failed = False
        #: how long the disk took for the last groups
        self._recent_ms: deque[float] = deque(maxlen=INLINE_PROBES)
        #: until when nothing is written inline, because the disk stalled
        self._rest_until_ms = float("-inf")

    @property
    def full(self) -> bool:
        """Whether the last attempt found no room on the disk."""
        return self._full

    @property
    def failed(self) -> bool:
        """Whether an error was final."""
        return self._failed

    @property
    def idle(self) -> bool:
        """Whether everything submitted is durable."""
        return not (self._queue or self._taken or self._writing)

    @property
    def queued_bytes(self) -> int:
        """What waits to be written, the group that is being written included."""
        return self._queued_bytes

    def submit(self, records: Sequence[Record], on_durable: Callable[[], object]) -> None:
        """Have records written after everything submitted before; never writes within this call.

        After a final error they are dropped: the node is stopping.

        Args:
            records: in order; none makes `on_durable` follow everything before.
            on_durable: called when they and all before them are durable, in the order of submission.
        """
        if self._failed:
            return
        size = 0
        for record in records:
            size += size_bytes(record) if isinstance(record, Entry) else _RECORD_BYTES
        if self._queue and self._queued_bytes + size > QUEUE_BYTES_MAX:
            raise NodeStoppedError(
                f"{self._queued_bytes} bytes wait for the journal, {QUEUE_BYTES_MAX} is the most"
            )
        self._queue.append(_Submission(tuple(records), size, on_durable))
        self._queued_bytes += size
        self._ask_flush()

    def flush_now(self) -> None:
        """Write everything submitted before this returns; for the start, while no thread writes."""
        if self._writing:
            raise NodeStoppedError("flush_now was called while the journal's thread writes")
        while not (self._failed or self._full or self.idle):
            self._begin(inline=True)

    def flush_turn(self) -> None:
        """Begin with what this turn submitted, without waiting for the next one.

        For a caller that has handed everything it sends in this turn to the sockets: with a quick disk the
        group is durable, and its callbacks were called, when this returns.
        """
        if self._flush_asked:
            self._flush()

    def retry(self) -> None:
        """Try again to write what found no room."""
        if self._full and not self._writing:
            self._full = False
            self._ask_flush()

    def stop(self) -> None:
        """Write and acknowledge nothing more; a group that a thread writes may still become durable."""
        self._failed = True
        self._queue.clear()
        self._taken.clear()
        self._staged = None
        self._queued_bytes = 0

    def compact(self, keep_from_index: int, done: Callable[[int], object]) -> None:
        """Drop segments that hold only entries below an index; the files go in the journal's thread.

        Args:
            keep_from_index: first log index that must stay.
            done: called with the number of dropped segments once they are gone.
        """
        paths = [] if self._failed else self._journal.detach(keep_from_index)
        if not paths:
            self._runtime.call_soon(done, 0)
            return

        self._remove(paths, done)

    def _remove(self, paths: list[str], done: Callable[[int], object]) -> None:
        def removed(_: object, error: BaseException | None) -> None:
            if isinstance(error, JournalFullError):
                self._runtime.call_later(REMOVAL_RETRY_MS, self._remove_again, paths, done)
            elif error is not None:
                self._fail(error)
            else:
                done(len(paths))

        self._runtime.run_in_thread(JOURNAL_LANE, lambda: self._journal.remove(paths), removed)

    def _remove_again(self, paths: list[str], done: Callable[[int], object]) -> None:
        if not self._failed:
            self._remove(paths, done)

    def _ask_flush(self) -> None:
        if not (self._flush_asked or self._writing or self._full):
            self._flush_asked = True
            self._runtime.call_soon(self._flush)

    def _flush(self) -> None:
        if not self._flush_asked:
            # The turn's end has done it already.
            return
        self._flush_asked = False
        if (self._queue or self._taken) and not (self._writing or self._full or self._failed):
            self._begin(inline=False)

    def _begin(self, *, inline: bool) -> None:
        """Write the staged group, or stage the next one and write that."""
        if self._staged is None:
            self._take()
            records: list[Record] = []
            for submission in self._taken:
                records += submission.records
            if not records:
                self._acknowledge()
                return
            try:
                # A record that does not follow from those before, or that is too long: a fault of the core.
                self._staged = self._journal.stage(records)
            except ValueError as error:
                self._fail(error)
                return
        group = self._staged
        size = group.end - group.place.offset
        quick = self._is_quick() and size <= INLINE_BYTES_MAX and group.header is None
        if inline or (quick and not self._queue):
            self._write_inline(group)
        else:
            self._write_in_lane(group)

    def _is_quick(self) -> bool:
        """Return whether the next group is likely to be quick: one that is not costs the loop a pause."""
        recent = self._recent_ms
        if len(recent) < INLINE_PROBES or max(recent) >= INLINE_WRITE_MS_WORST:
            return False
        if sorted(recent)[INLINE_PROBES // 2] >= INLINE_WRITE_MS_MAX:
            return False
        return self._rest_until_ms <= self._runtime.monotonic_ms()

    def _take(self) -> None:
        size = 0
        while self._queue and (size == 0 or size + self._queue[0].size <= GROUP_BYTES_MAX):
            submission = self._queue.popleft()
            self._taken.append(submission)
            size += submission.size

    def _write_inline(self, group: StagedGroup) -> None:
        try:
            disk_ms = self._runtime.disk_ms(self._journal.write, group)
        except (JournalFullError, JournalFailedError) as error:
            self._refuse(error)
        else:
            self._complete(group, disk_ms, inline=True)

    def _write_in_lane(self, group: StagedGroup) -> None:
        self._writing = True

        def done(disk_ms: float | None, error: BaseException | None) -> None:
            self._writing = False
            if error is not None:
                self._refuse(error)
            elif not self._failed:
                self._complete(group, disk_ms or 0.0, inline=False)

        work = partial(self._runtime.disk_ms, self._journal.write, group)
        self._runtime.run_in_thread(JOURNAL_LANE, work, done)

    def _complete(self, group: StagedGroup, disk_ms: float, *, inline: bool) -> None:
        self._recent_ms.append(disk_ms)
        if disk_ms >= STALL_MS:
            self._rest_until_ms = self._runtime.monotonic_ms() + INLINE_REST_MS
        self.statistics.add(group, disk_ms, inline=inline)
        self._journal.finish(group)
        self._staged = None
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Tell the submitters of the group that is done, in order, and see to the next one."""
        taken, self._taken = self._taken, []
        for submission in taken:
            self._queued_bytes -= submission.size
        if self._queue:
            self._ask_flush()
        for submission in taken:
            submission.on_durable()

    def _refuse(self, error: BaseException) -> None:
        if isinstance(error, JournalFullError) and not self._failed:
            self._full = True
            self._on_full(error)
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Acknowledge nothing from here on, and have the node stopped."""
        if self._failed:
            return
        self.stop()
        if not isinstance(error, Exception):
            raise error
        self._on_fatal(error)
