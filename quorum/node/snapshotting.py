"""Takes snapshots of the state while it goes on changing, and lets go of the log that they make needless.

Decides when a snapshot is due (the log since the last one exceeds max(64 MiB, half its size), or somebody
asks), how much of the loop's time its walk takes (slices of half a millisecond, doubled after each failure,
with rests between them while entries are applied), and what is compacted afterwards. What is in a snapshot
and how the walk stays consistent is quorum.core's business; bytes and files are quorum.raft's; who waits for
one is snapshot_requests.py's. Soft state only: a snapshot that was not finished never was.

Source: raft, "Snapshots".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotIncompleteError, SnapshotOverflowError, SnapshotWalk
from quorum.errors import PASSING_ERRNOS, SnapshotBusyError, SnapshotNotTakenError
from quorum.node.snapshot_requests import SnapshotRequests, Told, not_written
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.core.messages import Compacted, Stimulus
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.writer import JournalWriter
from quorum.raft.snapshots.format import SnapshotHeader
from quorum.raft.snapshots.snapshots import SnapshotFile, SnapshotStore
from quorum.raft.snapshots.writer import SNAPSHOT_LANE, SnapshotWriter

log = logging.getLogger("quorate.snapshots")

#: what `log_bytes_min` is unless a test wants snapshots more often
LOG_BYTES_MIN = 64 * 1024 * 1024
#: loop time that the walk takes per turn
SLICE_MS = 0.5
SLICE_MS_MAX = 8.0
#: how long after a full overlay the next snapshot begins; doubled each time, because every attempt costs the
#: loop its slices and the disk what was written so far
GIVE_UP_PAUSE_MS = 1000.0
GIVE_UP_PAUSE_MS_MAX = 60_000.0
#: how long after a removal of older snapshots that the full disk refused it is tried again
REMOVAL_RETRY_MS = 1000.0
#: how long the walk rests while entries are applied, in times of a slice: clients come first, and the
#: snapshots of all nodes, which come due together, share few cores
RESTS_PER_SLICE = 8.0
#: how long after an applied entry the walk goes on to rest between slices: between two entries of a steady
#: load it would take a whole core otherwise, which the other nodes and the clients of this machine may need
BUSY_MS = 50.0
#: what `records_per_step` is unless a test wants more turns in a small tree
RECORDS_PER_STEP = 256


class StateHolder(Protocol):
    """Who has the current state; it is replaced as a whole when a snapshot is installed."""

    machine: StateMachine


class LastSnapshot(NamedTuple):
    """What the newest snapshot of this node covers."""

    #: of the last transaction in it
    zxid: int
    #: of that transaction, in milliseconds
    stamp_ms: int


def covered_by(machine: StateMachine) -> LastSnapshot:
    """Return what a snapshot of this state covers."""
    return LastSnapshot(machine.zxid, machine.last_stamp_ms)


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
        *,
        log_bytes_min: int = LOG_BYTES_MIN,
        records_per_step: int = RECORDS_PER_STEP,
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
            log_bytes_min: applied log bytes since the last snapshot below which none is taken.
            records_per_step: znodes that are looked at between two looks at the clock.
        """
        self._holder = holder
        self._store = store
        self._journal = journal
        self._writer = writer
        self._runtime = runtime
        self._step = step
        self._fail = fail
        self._log_bytes_min = log_bytes_min
        self._records_per_step = records_per_step
        self._log_bytes = 0
        newest = store.newest
        self._last_size_bytes = newest.size_bytes if newest is not None else 0
        #: None: there is none. The state that a node begins with is that of its newest snapshot.
        self.last = None if newest is None else covered_by(holder.machine)
        self._covered = LastSnapshot(0, 0)
        self._asked = False
        self._walk: SnapshotWalk | None = None
        self._file: SnapshotWriter | None = None
        self._slice_ms = SLICE_MS
        self._busy_until_ms = 0.0
        self._pause_ms = GIVE_UP_PAUSE_MS
        #: whether an entry was applied since the last slice
        self._disturbed = False
        self._walk_log_bytes = 0
        self._begun_ms = 0.0
        #: whether a compaction follows once what is staged is durable
        self._compacts_again = False
        #: the next attempt to remove older snapshots
        self._removal: TimerHandle | None = None
        self._stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        #: who waits for a snapshot; while somebody does, one is under way
        self.requests = SnapshotRequests(runtime)
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
        self._disturbed = True
        self._log_bytes += size_bytes(entry)
        if self._log_bytes > max(self._log_bytes_min, self._last_size_bytes // 2):
            self.take()

    def take(self) -> None:
        """Begin a snapshot in a later turn, unless one is under way or nothing was applied yet."""
        if not self.active and self._holder.machine.applied_index:
            self._asked = True
            self._idle.clear()
            self._runtime.call_soon(self._guard, self._begin)

    def request(self, told: Told) -> None:
        """Have a snapshot of everything that is applied now.

        The newest one serves if nothing was applied since; so does the one under way. Otherwise another one
        follows that. One that is given up is tried again, as always.

        Args:
            told: gets the snapshot once it is durable, or the error that says why there is none, once;
                perhaps before this returns, by a deadline at the latest.
        """
        applied_index, newest = self._holder.machine.applied_index, self._store.newest
        if not applied_index:
            problem = "no snapshot was taken: this node has no state, nothing was applied yet"
            told(SnapshotNotTakenError(problem, "ask again once /readyz says that it is ready"))
        elif newest is not None and newest.log_index == applied_index:
            told(newest)
        elif self.requests.wait(applied_index, told):
            self.take()

    async def settle(self) -> None:
        """Return when no snapshot is under way."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Give up what is under way: the state was replaced."""
        self._end()
        problem = "no snapshot was taken: the state was replaced by one that another node sent"
        self.requests.failed(SnapshotBusyError(problem, "ask again"))

    def stop(self) -> None:
        """Give up what is under way: the node stops."""
        self._stopped = True
        self.requests.stop()
        if self._removal is not None:
            self._removal.cancel()
        self._end()

    def _end(self) -> None:
        self._asked = False
        self._drop()
        self._idle.set()

    def _drop(self) -> None:
        if self._walk is not None:
            self._walk.close()
            self._walk = None
        if self._file is not None:
            self._file.abandon()
            self._file = None

    def installed(self, covered: LastSnapshot) -> None:
        """A received snapshot replaced the state: count from there, and compact."""
        newest = self._store.newest
        self.last = covered
        self._log_bytes = 0
        self._last_size_bytes = 0 if newest is None else newest.size_bytes
        self._compact()

    def _begin(self) -> None:
        if not self._asked:
            return
        self._asked = False
        machine = self._holder.machine
        self._begun_ms = self._runtime.monotonic_ms()
        self._walk_log_bytes = self._log_bytes
        self._walk = SnapshotWalk(machine)
        self._covered = covered_by(machine)
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
        if self._walk is not None:
            self._runtime.call_soon(self._guard, partial(self._walk_slice, self._walk))

    def _rest(self, walk: SnapshotWalk, now_ms: float) -> None:
        """Go on after a rest; at once if nobody writes, or if the overlay may be full before the end."""
        if self._disturbed:
            self._disturbed = False
            self._busy_until_ms = now_ms + BUSY_MS
        if now_ms < self._busy_until_ms and walk.ahead:
            rest_ms = RESTS_PER_SLICE * self._slice_ms
            self._runtime.call_later(rest_ms, self._guard, partial(self._walk_slice, walk))
        else:
            self._go_on()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self._fail(error)

    def _walk_slice(self, walk: SnapshotWalk) -> None:
        """Walk for a slice of time; the next one follows in a later turn, or when the disk has room."""
        file = self._file
        if walk is not self._walk or file is None:
            # It was given up meanwhile; another one may be under way.
            return
        until_ms = self._runtime.monotonic_ms() + self._slice_ms
        try:
            while (now_ms := self._runtime.monotonic_ms()) < until_ms:
                chunk = walk.next_chunk(self._records_per_step)
                if chunk is None:
                    self._walk = None
                    file.finish()
                    return
                if not file.write(chunk):
                    return
        except SnapshotOverflowError as error:
            self._give_up(str(error))
            return
        except SnapshotIncompleteError as error:
            self._end()
            self._failed(error)
            return
        self._rest(walk, now_ms)

    def _give_up(self, reason: str) -> None:
        self.failed_count += 1
        self._slice_ms = min(2 * self._slice_ms, SLICE_MS_MAX)
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, GIVE_UP_PAUSE_MS_MAX)
        log.warning(
            "gave up a snapshot, the next one begins in %g s and walks %g ms a turn: %s",
            pause_ms / 1000,
            self._slice_ms,
            reason,
        )
        self._drop()
        # Not at once: the writes that filled the overlay may be still under way.
        self._asked = True
        self._runtime.call_later(pause_ms, self._guard, self._begin)

    def _done(self, snapshot: SnapshotFile | None, error: BaseException | None) -> None:
        """The file is durable and verified, or could not be written."""
        self._file = None
        self._idle.set()
        if snapshot is None:
            if self._walk is not None:
                self._walk.close()
                self._walk = None
            self._failed(error)
            return
        self.taken_count += 1
        self.last = self._covered
        self._slice_ms = SLICE_MS
        self._pause_ms = GIVE_UP_PAUSE_MS
        self._log_bytes -= self._walk_log_bytes
        self._last_size_bytes = snapshot.size_bytes
        log.info(
            "took the snapshot of index %d: %d bytes in %d ms",
            snapshot.log_index,
            snapshot.size_bytes,
            self._runtime.monotonic_ms() - self._begun_ms,
        )
        self.requests.taken(snapshot)
        self._compact()
        if self.requests.waiting_count:
            # It had begun before they asked, and entries were applied in between.
            self.take()

    def _failed(self, error: BaseException | None) -> None:
        self.failed_count += 1
        # Not at once again: what stopped it (a full disk) would stop the next one, too.
        self._log_bytes = 0
        log.error("a snapshot could not be written: %s", error)
        self.requests.failed(not_written(error))

    def _compact(self) -> None:
        """Keep two snapshots and the log behind the older one; the log goes when the older files are gone."""
        oldest_index, paths = self._store.detach(self._holder.machine.applied_index)
        if not paths:
            self._compact_log(oldest_index)
            return

        def removed(_: None, error: BaseException | None) -> None:
            if self._stopped:
                return
            if error is None:
                self._guard(partial(self._compact_log, oldest_index))
            elif isinstance(error, OSError) and error.errno in PASSING_ERRNOS:
                # Some file systems need room to remove a name.
                log.warning(
                    "older snapshots cannot be removed, next try in %g s: %s", REMOVAL_RETRY_MS / 1000, error
                )
                if self._removal is not None:
                    self._removal.cancel()
                self._removal = self._runtime.call_later(REMOVAL_RETRY_MS, self._guard, self._compact)
            else:
                self._fail(error)

        self._runtime.run_in_thread(SNAPSHOT_LANE, partial(self._store.remove, paths, oldest_index), removed)

    def _compact_log(self, oldest_index: int) -> None:
        first_index = self._journal.first_index
        # Segments before the first entry are dead: an installed snapshot has taken their entries back.
        self._writer.compact(max(oldest_index + 1, first_index), self._compacted)
        if self._journal.first_index > first_index:
            self._step(Compacted(self._journal.first_index))
        if self._journal.takes_back and not self._compacts_again:
            self._compacts_again = True
            self._writer.submit((), partial(self._guard, self._compact_again))

    def _compact_again(self) -> None:
        self._compacts_again = False
        self._compact()

    def _compacted(self, segments: int) -> None:
        if segments:
            log.info(
                "compacted %d segments; the log begins with entry %d", segments, self._journal.first_index
            )
