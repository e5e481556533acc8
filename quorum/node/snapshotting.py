"""Takes snapshots of the state while it goes on changing.

Decides when a snapshot is due (a start would apply for longer than two seconds what the last one does not
cover, the log is long, or somebody asks) and how much of the loop's time its walk takes. What is in a
snapshot and how the walk stays consistent is quorum.core's business; bytes and files are quorum.raft's; what
goes afterwards is compaction.py's. Soft state only: a snapshot that was not finished never was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotIncompleteError, SnapshotOverflowError, SnapshotWalk
from quorum.errors import SnapshotNotTakenError, told_by_os
from quorum.node.compaction import Compaction
from quorum.platform.histogram import Histogram
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.snapshots.format import SnapshotHeader
from quorum.raft.snapshots.snapshots import SnapshotFile, SnapshotStore
from quorum.raft.snapshots.writer import SnapshotWriter

log = logging.getLogger("quorate.snapshots")

#: A snapshot is due when what it would cover took longer to apply: so long is the replay after a crash.
REPLAY_MS_MAX = 2000.0
#: From its beginning to that of the next one that is due by time pass so many times what it takes of the
#: loop: 5 %.
COST_FACTOR = 20
#: The pace: loop time that the walk takes per turn. While entries are applied it rests for eight slices after
#: each, and goes on so for eight rests after the last entry: clients come first, and the snapshots of all
#: nodes, which come due together, share few cores. A snapshot that was given up, because more changed than
#: its overlay bears, is begun again after 2,000 slices; each failure doubles slices and pause, up to sixteen
#: times.
SLICE_MS = 0.5
RESTS = 8
PAUSE_SLICES = 2000
DOUBLINGS_MAX = 4
#: what `records_per_step` is unless a test wants more turns in a small tree
RECORDS_PER_STEP = 256


class StateHolder(Protocol):
    """The holder of the current state, which is replaced as a whole when a snapshot is installed."""

    machine: StateMachine
    #: whether so much log is covered by no snapshot that clients must not write for now
    log_is_long: bool
    #: how long each entry took to apply
    applies: Histogram


class LastSnapshot(NamedTuple):
    """What the newest snapshot of this node covers."""

    #: of the last transaction in it
    zxid: int
    #: of that transaction, in milliseconds
    stamp_ms: int


def covered_by(machine: StateMachine) -> LastSnapshot:
    """Return what a snapshot of this state covers."""
    return LastSnapshot(machine.zxid, machine.last_stamp_ms)


class _Taking(NamedTuple):
    """A snapshot that is being taken."""

    walk: SnapshotWalk
    file: SnapshotWriter
    covered: LastSnapshot
    #: applied log that it covers and the one before it does not
    log_bytes: int
    #: what applying had taken in all
    applied_ms: float
    begun_ms: float


class _Replay:
    """What a replay would take, and from when on a snapshot against it costs little enough."""

    def __init__(self, applied_ms: float) -> None:
        #: a snapshot is due when applying has taken longer in all
        self.due_ms = applied_ms + REPLAY_MS_MAX
        #: when a snapshot that is due by time may begin
        self.from_ms = 0.0
        #: calls then, if one is due before
        self.timer: TimerHandle | None = None


class _LogBound:
    """How much applied log no snapshot need cover."""

    def __init__(self, bytes_due: int, bytes_max: int) -> None:
        #: above it a snapshot is due
        self.bytes_due = bytes_due
        #: above it clients do not write
        self.bytes_max = bytes_max
        #: whether the log says so; again once a snapshot was taken in time
        self.is_logged = False


class Snapshotter:
    """Takes one snapshot at a time, in the loop's spare moments."""

    def __init__(
        self,
        holder: StateHolder,
        store: SnapshotStore,
        compaction: Compaction,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
        *,
        log_bytes_max: int,
        log_bytes_due: int | None = None,
        records_per_step: int = RECORDS_PER_STEP,
    ) -> None:
        """Begin with nothing under way.

        Args:
            holder: has the state.
            store: gets the snapshots.
            compaction: follows each of them; stopped with this.
            runtime: clock, loop, lanes.
            fail: stops the node.
            log_bytes_max: applied log bytes since the last snapshot above which clients do not write.
            log_bytes_due: those above which one is taken in any case; None: half of `log_bytes_max`.
            records_per_step: znodes that are looked at between two looks at the clock.
        """
        self._holder = holder
        self._store = store
        self._compaction = compaction
        self._runtime = runtime
        self._fail = fail
        self._bound = _LogBound(log_bytes_max // 2 if log_bytes_due is None else log_bytes_due, log_bytes_max)
        self._records_per_step = records_per_step
        #: applied log bytes that no snapshot covers
        self.log_bytes = 0
        self._replay = _Replay(holder.applies.sum_ms)
        #: None: there is none. The state that a node begins with is that of its newest snapshot.
        self.last = None if store.newest is None else covered_by(holder.machine)
        self._asked = False
        self._taking: _Taking | None = None
        #: those that follow before the walk goes on at once
        self._rests = 0
        #: since the last one that was taken
        self._given_up = 0
        #: what somebody asked for: a snapshot of this log index or a later one; 0: nobody waits
        self._wanted_index = 0
        #: why what was asked for last is not there, "" while nothing speaks against it
        self.problem = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self.taken_count = 0
        self.failed_count = 0

    @property
    def active(self) -> bool:
        """Whether a snapshot is being taken."""
        return self._asked or self._taking is not None

    def entry_applied(self, entry: Entry) -> None:
        """Count an entry, and ask for a snapshot if one is due."""
        self._rests = RESTS
        self.log_bytes += size_bytes(entry)
        if self.log_bytes > self._bound.bytes_due:
            self._note_log_bytes(self.log_bytes)
            self.take()
        elif self._holder.applies.sum_ms > self._replay.due_ms:
            self._shorten_replay()

    def _shorten_replay(self) -> None:
        """Take a snapshot if one is due by time, and else as soon as the last one did not cost too much."""
        replay = self._replay
        if self._holder.applies.sum_ms <= replay.due_ms or replay.timer is not None or self.active:
            return
        wait_ms = replay.from_ms - self._runtime.monotonic_ms()
        if wait_ms > 0:
            # Not with a later entry: after a long replay there may be none.
            replay.timer = self._runtime.call_later(wait_ms, self._guard, self._waited)
        else:
            self.take()

    def _waited(self) -> None:
        self._replay.timer = None
        self._shorten_replay()

    def _note_log_bytes(self, log_bytes: int) -> None:
        self.log_bytes = log_bytes
        holds = log_bytes > self._bound.bytes_max
        if holds and not self._holder.log_is_long:
            if not self._bound.is_logged:
                log.warning("writes wait for a snapshot: it covers all but %d bytes of the log", log_bytes)
            self._bound.is_logged = True
            # Not after the pause of one that was given up: little changes from now on.
            self._runtime.call_soon(self._guard, self._begin)
        self._holder.log_is_long = holds

    def take(self) -> None:
        """Begin a snapshot in a later turn, unless one is under way or nothing was applied yet."""
        if not self.active and self._holder.machine.applied_index:
            self._asked = True
            self._idle.clear()
            self._runtime.call_soon(self._guard, self._begin)

    def request(self) -> int:
        """Have a snapshot of everything that is applied now, and return its log index at least.

        The newest one serves if nothing was applied since; so does the one under way. Otherwise another one
        follows that. `problem` says why there is none.
        """
        applied_index, newest = self._holder.machine.applied_index, self._store.newest
        if not applied_index:
            problem = "no snapshot was taken: this node has no state, nothing was applied yet"
            raise SnapshotNotTakenError(problem, "ask again once /readyz says that it is ready")
        self.problem = ""
        if newest is None or newest.log_index < applied_index:
            self._wanted_index = applied_index
            self.take()
        return applied_index

    async def settle(self) -> None:
        """Return when no snapshot is under way."""
        await self._idle.wait()

    def abandon(self) -> None:
        """Give up what is under way: the state was replaced."""
        self._end()
        self._tell("the state was replaced by one that another node sent; ask again")

    def stop(self) -> None:
        """Give up what is under way: the node stops."""
        self._compaction.stop()
        if self._replay.timer is not None:
            self._replay.timer.cancel()
        self._end()

    def _end(self) -> None:
        self._asked = False
        self._drop()
        self._idle.set()

    def _drop(self) -> None:
        taking, self._taking = self._taking, None
        if taking is not None:
            taking.walk.close()
            taking.file.abandon()

    def _tell(self, problem: str) -> None:
        """Say why nobody gets what was asked for."""
        if self._wanted_index:
            self._wanted_index, self.problem = 0, f"no snapshot was taken: {problem}"

    def installed(self, covered: LastSnapshot) -> None:
        """A received snapshot replaced the state: count from there, and compact."""
        self.last = covered
        self._replay.due_ms = self._holder.applies.sum_ms + REPLAY_MS_MAX
        self._note_log_bytes(0)
        self._compaction.compact(self._holder.machine.applied_index)

    def _begin(self) -> None:
        if not self._asked:
            return
        self._asked = False
        machine = self._holder.machine
        header = SnapshotHeader(
            machine.applied_index,
            machine.applied_term,
            machine.last_stamp_ms,
            machine.cluster_id,
            machine.configuration,
        )
        now_ms = self._runtime.monotonic_ms()
        walk = SnapshotWalk(machine)
        file = SnapshotWriter(self._store, self._runtime, header, self._done, self._go_on)
        applied_ms = self._holder.applies.sum_ms
        self._taking = _Taking(walk, file, covered_by(machine), self.log_bytes, applied_ms, now_ms)
        self._replay.from_ms = max(self._replay.from_ms, now_ms)
        self._go_on()

    def _go_on(self) -> None:
        if self._taking is not None:
            self._runtime.call_soon(self._guard, partial(self._walk_slice, self._taking))

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self._fail(error)

    @property
    def _doublings(self) -> int:
        return 1 << min(self._given_up, DOUBLINGS_MAX)

    def _walk_slice(self, taking: _Taking) -> None:
        """Walk for a slice of time; the next one follows in a later turn, or when the disk has room."""
        if taking is not self._taking:
            # It was given up meanwhile; another one may be under way.
            return
        slice_ms = SLICE_MS * self._doublings
        begun_ms = self._runtime.monotonic_ms()
        try:
            while self._runtime.monotonic_ms() < begun_ms + slice_ms:
                chunk = taking.walk.next_chunk(self._records_per_step)
                if chunk is None:
                    taking.file.finish()
                    return
                if not taking.file.write(chunk):
                    return
        except SnapshotOverflowError as error:
            self._give_up(str(error))
            return
        except SnapshotIncompleteError as error:
            self._end()
            self._failed(error)
            return
        finally:
            self._replay.from_ms += COST_FACTOR * (self._runtime.monotonic_ms() - begun_ms)
        if self._rests and taking.walk.ahead:
            self._rests -= 1
            self._runtime.call_later(RESTS * slice_ms, self._guard, partial(self._walk_slice, taking))
        else:
            # Nobody writes, or the overlay may be full before the end.
            self._go_on()

    def _give_up(self, reason: str) -> None:
        self.failed_count += 1
        pause_ms = 0.0 if self._holder.log_is_long else PAUSE_SLICES * SLICE_MS * self._doublings
        self._given_up += 1
        log.warning("gave up a snapshot, the next one begins in %g s: %s", pause_ms / 1000, reason)
        self._drop()
        # Not at once: the writes that filled the overlay may be still under way.
        self._asked = True
        self._runtime.call_later(pause_ms, self._guard, self._begin)

    def _done(self, snapshot: SnapshotFile | None, error: BaseException | None) -> None:
        """The file is durable and verified, or could not be written."""
        taking, self._taking = self._taking, None
        assert taking is not None
        self._idle.set()
        if snapshot is None:
            taking.walk.close()
            self._failed(error)
            return
        self.taken_count += 1
        self.last = taking.covered
        self._given_up = 0
        self._replay.due_ms = taking.applied_ms + REPLAY_MS_MAX
        self._bound.is_logged = self._holder.log_is_long
        self._note_log_bytes(self.log_bytes - taking.log_bytes)
        log.info(
            "took the snapshot of index %d: %d bytes in %d ms",
            snapshot.log_index,
            snapshot.size_bytes,
            self._runtime.monotonic_ms() - taking.begun_ms,
        )
        self._compaction.compact(self._holder.machine.applied_index)
        if self._wanted_index > snapshot.log_index or self._holder.log_is_long:
            # It had begun before they asked, and entries were applied in between.
            self.take()
        else:
            self._wanted_index = 0
            self._shorten_replay()

    def _failed(self, error: BaseException | None) -> None:
        self.failed_count += 1
        # Not at once again: what stopped it (a full disk) would stop the next one, too.
        self._replay.due_ms = self._holder.applies.sum_ms + REPLAY_MS_MAX
        self._note_log_bytes(0)
        log.error("a snapshot could not be written: %s", error)
        self._tell(told_by_os(error, "writing its file") if isinstance(error, OSError) else str(error))
