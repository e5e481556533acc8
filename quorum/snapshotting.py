"""Takes snapshots of the state while it goes on changing, and lets go of the log that they make needless.

Decides when a snapshot is due (the log since the last one exceeds max(64 MiB, half its size)), how much of
the loop's time its walk takes (slices of half a millisecond, doubled after each failure), and what is
compacted afterwards. What is in a snapshot and how the walk stays consistent is quorum.core's business;
bytes and files are quorum.raft's. Soft state only: a snapshot that was not finished never was.

Source: raft, "Snapshots".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotOverflowError, SnapshotWalk
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.core.messages import Compacted, Stimulus
from quorum.raft.journal import Journal
from quorum.raft.journal_writer import JournalWriter
from quorum.raft.runtime import Runtime
from quorum.raft.snapshot_format import SnapshotHeader
from quorum.raft.snapshot_writer import SnapshotWriter
from quorum.raft.snapshots import SnapshotFile, SnapshotStore

log = logging.getLogger("quorate.snapshots")

#: applied log bytes since the last snapshot below which none is taken
LOG_BYTES_MIN = 64 * 1024 * 1024
#: loop time that the walk takes per turn
SLICE_MS = 0.5
SLICE_MS_MAX = 8.0
#: znodes that are looked at between two looks at the clock
RECORDS_PER_STEP = 256


class StateHolder(Protocol):
    """Who has the current state; it is replaced as a whole when a snapshot is installed."""

    machine: StateMachine


class Snapshotter:
    """Takes one snapshot at a time, in the loop's spare moments."""

    def __init__(
        self,
        holder: StateHolder,
        store: SnapshotStore,
        journal: Journal,
        writer: JournalWriter,
        runtime: Runtime,
        step: Callable[[Stimulus], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Begin with nothing under way.

        Args:
            holder: has the state.
            store: gets the snapshots.
            journal: is compacted.
            writer: removes compacted segments behind what it writes.
            runtime: clock, loop, lanes.
            step: tells the core what was compacted.
            fail: stops the node.
        """
        self._holder = holder
        self._store = store
        self._journal = journal
        self._writer = writer
        self._runtime = runtime
        self._step = step
        self._fail = fail
        self._log_bytes = 0
        newest = store.newest
        self._last_size_bytes = newest.size_bytes if newest is not None else 0
        self._asked = False
        self._walk: SnapshotWalk | None = None
        self._file: SnapshotWriter | None = None
        self._slice_ms = SLICE_MS
        self._walk_log_bytes = 0
        self._begun_ms = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self.taken_count = 0
        self.failed_count = 0

    @property
    def log_bytes(self) -> int:
        """Applied log bytes that no snapshot covers."""
        return self._log_bytes

    @property
    def active(self) -> bool:
        """Whether a snapshot is being taken."""
        return self._asked or self._walk is not None or self._file is not None

    def entry_applied(self, entry: Entry) -> None:
        """Count an entry, and ask for a snapshot if one is due."""
        self._log_bytes += size_bytes(entry)
        if self._log_bytes > max(LOG_BYTES_MIN, self._last_size_bytes // 2):
            self.take()

    def take(self) -> None:
        """Begin a snapshot in a later turn, unless one is under way or nothing was applied yet."""
        if not self.active and self._holder.machine.applied_index:
            self._asked = True
            self._idle.clear()
            self._runtime.call_soon(self._guard, self._begin)

    async def settle(self) -> None:
        """Return when no snapshot is under way."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Give up what is under way: the state was replaced, or the node stops."""
        self._asked = False
        if self._walk is not None:
            self._walk.close()
            self._walk = None
        if self._file is not None:
            self._file.abandon()
            self._file = None
        self._idle.set()

    def installed(self, size_bytes_: int) -> None:
        """A received snapshot replaced the state: count from there, and compact."""
        self._log_bytes = 0
        self._last_size_bytes = size_bytes_
        self._compact()

    def _begin(self) -> None:
        if not self._asked:
            return
        self._asked = False
        machine = self._holder.machine
        self._begun_ms = self._runtime.monotonic_ms()
        self._walk_log_bytes = self._log_bytes
        self._walk = SnapshotWalk(machine)
        header = SnapshotHeader(
            machine.applied_index,
            machine.applied_term,
            machine.last_stamp_ms,
            machine.cluster_id,
            machine.configuration,
        )
        self._file = SnapshotWriter(self._store, self._runtime, header, self._done, self._go_on)
        self._go_on()

    def _go_on(self) -> None:
        self._runtime.call_soon(self._guard, self._walk_slice)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self._fail(error)

    def _walk_slice(self) -> None:
        """Walk for a slice of time; the next one follows in a later turn, or when the disk has room."""
        walk, file = self._walk, self._file
        if walk is None or file is None:
            return
        until_ms = self._runtime.monotonic_ms() + self._slice_ms
        try:
            while self._runtime.monotonic_ms() < until_ms:
                chunk = walk.next_chunk(RECORDS_PER_STEP)
                if chunk is None:
                    self._walk = None
                    file.finish()
                    return
                if not file.write(chunk):
                    return
        except SnapshotOverflowError as error:
            self._give_up(str(error))
            return
        self._go_on()

    def _give_up(self, reason: str) -> None:
        self.failed_count += 1
        self._slice_ms = min(2 * self._slice_ms, SLICE_MS_MAX)
        log.warning("gave up a snapshot, the next one walks %g ms a turn: %s", self._slice_ms, reason)
        self.abandon()
        self.take()

    def _done(self, snapshot: SnapshotFile | None, error: BaseException | None) -> None:
        """The file is durable and verified, or could not be written."""
        self._file = None
        self._idle.set()
        if snapshot is None:
            self.failed_count += 1
            if self._walk is not None:
                self._walk.close()
                self._walk = None
            # Not at once again: what stopped it (a full disk) would stop the next one, too.
            self._log_bytes = 0
            log.error("a snapshot could not be written: %s", error)
            return
        self.taken_count += 1
        self._slice_ms = SLICE_MS
        self._log_bytes -= self._walk_log_bytes
        self._last_size_bytes = snapshot.size_bytes
        log.info(
            "took the snapshot of index %d: %d bytes in %d ms",
            snapshot.log_index,
            snapshot.size_bytes,
            self._runtime.monotonic_ms() - self._begun_ms,
        )
        self._compact()

    def _compact(self) -> None:
        """Keep two snapshots and the log behind the older one."""
        try:
            oldest_index = self._store.purge()
        except OSError as error:
            self._fail(error)
            return
        if oldest_index >= self._journal.first_index:
            self._writer.compact(oldest_index + 1, self._compacted)
            self._step(Compacted(self._journal.first_index))

    def _compacted(self, segments: int) -> None:
        if segments:
            log.info(
                "compacted %d segments; the log begins with entry %d", segments, self._journal.first_index
            )
