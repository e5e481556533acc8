"""Compacts the dirty logs of this broker, the dirtiest first, by a process of its own.

The process is started when a log is due, and ends when none is left. One that dies or says nothing is ended,
and the next look tries again. A log at which it fails is marked and left alone until the broker's next start,
and the others go on. Damage is mended as if a reader had met it. Up to where each log is compacted is in
cleaner-offset-checkpoint, as in Kafka; without it all is dirty.
Source: ARCHITECTURE.md, "Life of a compacted record"; Kafka's LogCleaner and LogCleanerManager (3.9).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from broker.datadir.checkpoints import checkpoint_bytes, read_checkpoint
from broker.log.aborted import AbortedTransaction
from broker.log.cleaning import process
from broker.log.cleaning.dirtiness import ClosedSegment, Dirtiness, dirtiness
from broker.log.cleaning.keys import ENTRY_BYTES
from broker.log.cleaning.swapping import Cleanable, CleanedSegment
from broker.log.cleaning.work import Job
from broker.log.disk_threads import finished
from broker.log.errors import DamagedSegmentError
from broker.log.files import replace_file
from broker.log.segment import Segment
from broker.replication.clock import monotonic_ms, wall_ms
from broker.replication.outcomes import ReplicationOptions
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.platform.wall_clock import CLOCK

CLEANER_NAME: Final = "cleaner-offset-checkpoint"
#: a cleaner that says nothing for so long hangs
SILENCE_S: Final = 60.0
#: so often in a row the process may die at one log
_DEATHS_MAX: Final = 3
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class CompactionStatus:
    """What an operator sees."""

    max_dirty_ratio: float = 0.0
    #: {partition: since when it is to be compacted; monotonic}
    due_since_ms: dict[PartitionKey, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    #: {partition: why it is not compacted any more}
    uncleanable: dict[PartitionKey, str] = field(default_factory=dict)
    failures: int = 0
    last_error: str = ""

    def waited_ms(self, now_ms: int) -> int:
        """Return for how long the log waits that has waited longest; `now_ms` is monotonic."""
        return max((now_ms - since_ms for since_ms in self.due_since_ms.values()), default=0)


class _Due(NamedTuple):
    key: PartitionKey
    replica: Replica
    found: Cleanable
    segments: Sequence[ClosedSegment]
    dirty: Dirtiness


class _CleanerGoneError(Exception):
    """The process has died or hangs."""


class Compaction:
    """Compacts logs."""

    def __init__(
        self,
        registry: Registry,
        options: ReplicationOptions,
        on_damage: Callable[[DamagedSegmentError], ErrorCode],
    ) -> None:
        """Start nothing; `on_damage` returns CORRUPT_MESSAGE where the log stays as it is."""
        self._on_damage = on_damage
        self._registry = registry
        self._options = options
        self._path = f"{registry.log_directory.path}/{CLEANER_NAME}"
        #: {partition: where its dirty part begins}; None: not read yet
        self._offsets: dict[PartitionKey, int] | None = None
        self._topic_ids: dict[PartitionKey, uuid.UUID | None] = {}
        self._deaths: dict[PartitionKey, int] = {}
        self._process: asyncio.subprocess.Process | None = None
        self.status = CompactionStatus()

    async def check(self) -> None:
        """Compact what is due; raises LogStorageError."""
        if not CLOCK.is_believed():
            # A tombstone's last hour would come at a wrong time.
            return
        try:
            due = await self._look()
            for each in sorted(due, key=lambda one: one.dirty.ratio, reverse=True):
                await self._compact(each)
        finally:
            await self._end()

    async def _look(self) -> list[_Due]:
        if self._offsets is None:
            reading = self._registry.log_directory.flusher.readers.run(partial(read_checkpoint, self._path))
            await finished(reading)
            self._offsets = reading.result() or {}
        due: list[_Due] = []
        ratio = 0.0
        for key, replica in list(self._registry.replicas.items()):
            if self._registry.settings_of(key.topic).compacts and key not in self.status.uncleanable:
                found = await self._look_at(key, replica, self._offsets)
                ratio = max(ratio, found.dirty.ratio)
                if found.dirty.is_due:
                    due.append(found)
        self.status.max_dirty_ratio = ratio
        known, now_ms = self.status.due_since_ms, monotonic_ms()
        self.status.due_since_ms = {each.key: known.get(each.key, now_ms) for each in due}
        return due

    async def _look_at(self, key: PartitionKey, replica: Replica, offsets: dict[PartitionKey, int]) -> _Due:
        if self._topic_ids.setdefault(key, replica.log.topic_id) != replica.log.topic_id:
            self._topic_ids[key] = replica.log.topic_id
            offsets.pop(key, None)
        # The active segment closes by segment.ms and max.compaction.lag.ms.
        await replica.log.settled()
        replica.delete_expired(by_age=True)
        await replica.log.settled()
        found = replica.log.cleanable()
        stable_offset = replica.log.last_stable_offset(replica.high_watermark)
        rows = await replica.log.segments.in_thread(partial(_rows, found.segments))
        settings, now_ms = self._registry.settings_of(key.topic), wall_ms()
        dirty = dirtiness(rows, offsets.get(key, 0), stable_offset, settings, now_ms)
        rows = [each for each in rows if each.next_offset <= dirty.end_offset]
        return _Due(key, replica, found, rows, dirty)

    async def _compact(self, due: _Due) -> None:
        try:
            await self._carry_out(due)
            self._deaths.pop(due.key, None)
        except _CleanerGoneError as error:
            await self._end()
            deaths = self._deaths[due.key] = self._deaths.get(due.key, 0) + 1
            self._note(due, str(error), is_final=deaths >= _DEATHS_MAX)

    def _note(self, due: _Due, problem: str, *, is_final: bool) -> None:
        self.status.last_error = f"{due.key.topic}-{due.key.partition}: {problem}"
        self.status.failures += 1
        _log.error("compaction of %s-%d: %s", *due.key, problem)
        if is_final:
            self.status.uncleanable[due.key] = problem

    async def _job(self, due: _Due) -> Job:
        settings, now_ms = self._registry.settings_of(due.key.topic), wall_ms()
        deletes_by_age = settings.deletes and settings.retention_ms >= 0
        log, start_offset = due.replica.log, due.replica.log.log_start_offset

        def aborted() -> list[AbortedTransaction]:
            first, end_offset = due.segments[0].base_offset, due.segments[-1].next_offset
            return log.segments.aborted.between(first, start_offset, end_offset, wait=True)

        return Job(
            folder=log.folder,
            segments=due.segments,
            first_dirty=due.dirty.first_dirty,
            keys_max=max(self._options.log_cleaner_dedupe_buffer_size // ENTRY_BYTES, 1),
            now_ms=now_ms,
            delete_retention_ms=settings.delete_retention_ms,
            segment_bytes=settings.segment_bytes,
            remembered=due.found.remembered,
            fencing=due.found.fencing,
            aborted=await log.segments.in_thread(aborted),
            start_offset=start_offset,
            oldest_ms=now_ms - settings.retention_ms if deletes_by_age else None,
        )

    async def _carry_out(self, due: _Due) -> None:
        running = await self._started()
        assert running.stdin is not None
        job, rate = await self._job(due), self._options.log_cleaner_io_max_bytes_per_second
        try:
            running.stdin.write(process.packed([job, rate]))
            await running.stdin.drain()
        except OSError as error:
            raise _CleanerGoneError(f"its process has died: {error}") from error
        version, begun_ms = due.found.version, monotonic_ms()
        sizes = {each.base_offset: each.size_bytes for each in due.segments}
        bytes_before = bytes_after = 0
        while True:
            kind, *values = await self._frame(running)
            if self._registry.replicas.get(due.key) is not due.replica:
                raise _CleanerGoneError("the replica has gone meanwhile")
            if kind == process.SEGMENT:
                cleaned = CleanedSegment(*values)
                swapped = await due.replica.log.swap_in(version, cleaned)
                if swapped is None:
                    await self._end()
                    _log.info("compaction of %s-%d begins again: the log has changed meanwhile", *due.key)
                    return
                version = swapped
                bytes_before += sum(sizes[each] for each in cleaned.replaced)
                bytes_after += cleaned.size
                self.status.bytes_written += cleaned.size
            elif kind == process.END:
                await self._came_to(due, values[0], bytes_before)
                _log.info(
                    "compacted %s-%d up to %d: %d bytes became %d, in %.1f s",
                    *(*due.key, values[0], bytes_before, bytes_after, (monotonic_ms() - begun_ms) / 1000),
                )
                return
            elif kind == process.FAILED:
                if due.replica.log.segments.version == version:
                    self._failed(due, *values)
                return

    def _failed(self, due: _Due, problem: str, damage: tuple[str, int] | None) -> None:
        """Leave a log alone, unless it is damaged and is copied anew."""
        is_final = True
        if damage is not None:
            error = DamagedSegmentError(problem)
            error.stem, error.position = damage
            is_final = self._on_damage(error) is ErrorCode.CORRUPT_MESSAGE
        self._note(due, problem, is_final=is_final)

    async def _came_to(self, due: _Due, offset: int, bytes_read: int) -> None:
        assert self._offsets is not None
        self._offsets[due.key] = offset
        self.status.due_since_ms.pop(due.key, None)
        self.status.bytes_read += bytes_read
        known = self._registry.replicas
        content = checkpoint_bytes({key: each for key, each in self._offsets.items() if key in known})
        writing = self._registry.log_directory.flusher.submit(partial(replace_file, self._path, content))
        await finished(writing)
        writing.result()

    # -- the process -----------------------------------------------------------------------------------------

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", process.__name__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    async def _frame(self, running: asyncio.subprocess.Process) -> list[Any]:
        assert running.stdout is not None
        try:
            async with asyncio.timeout(SILENCE_S):
                return await process.read_frame(running.stdout)
        except asyncio.IncompleteReadError as error:
            raise _CleanerGoneError("its process has died") from error
        except TimeoutError as error:
            raise _CleanerGoneError(f"its process has said nothing for {SILENCE_S:.0f} s") from error

    async def _end(self) -> None:
        """End the process, if it runs."""
        running, self._process = self._process, None
        if running is not None:
            if running.returncode is None:
                running.kill()
            await running.wait()


def _rows(segments: Sequence[Segment]) -> list[ClosedSegment]:
    """Look at closed segments, in a thread."""
    return [
        ClosedSegment(
            *(each.base_offset, each.next_offset, each.size),
            *(each.read_first_timestamp() if each.size else -1, each.newest_ms()),
        )
        for each in segments
    ]
