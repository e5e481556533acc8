"""The pace of snapshots: small slices of the loop's time, rests while writes flow, no rest where it costs the
snapshot."""

from __future__ import annotations

import random

import pytest

from quorum.core.machine import StateMachine
from quorum.node.compaction import Compaction
from quorum.node.snapshotting import (
    COST_FACTOR,
    PAUSE_SLICES,
    REPLAY_MS_MAX,
    RESTS,
    SLICE_MS,
    LastSnapshot,
    Snapshotter,
)
from quorum.platform.histogram import Histogram
from quorum.raft.core.entry import Entry, EntryKind, size_bytes
from quorum.raft.core.messages import Stimulus
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.journal.writer import JournalWriter
from quorum.raft.snapshots.snapshots import SnapshotStore
from quorum.raft.snapshots.writer import SNAPSHOT_LANE
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.unit.core.driver import CONFIGURATION, SESSION_KEY, Driver, dump, load

NODES = 400
RECORDS_PER_STEP = 10
#: looks at the clock, and so steps of the walk, that fit a slice
STEPS_PER_SLICE = 4
REST_MS = RESTS * SLICE_MS
GIVE_UP_PAUSE_MS = PAUSE_SLICES * SLICE_MS
ENTRY = Entry(1, 1, EntryKind.NOOP, 0, b"")


class TickingRuntime(ManualRuntime):
    """Every look at the clock costs time, so that a slice ends."""

    def monotonic_ms(self) -> float:
        self.now_ms += SLICE_MS / STEPS_PER_SLICE
        return self.now_ms


class Bench:
    """A snapshotter over a state with a few hundred nodes; what it writes waits in the lane."""

    log_is_long: bool

    def __init__(self, overlay_bytes_max: int = 2**20, log_bytes_max: int = 2**30) -> None:
        driver = Driver(StateMachine(overlay_bytes_max))
        driver.apply("found", "c1", SESSION_KEY, CONFIGURATION)
        driver.register()
        self.client = driver.connect()
        self.client.make("/p")
        for number in range(NODES):
            self.client.make(f"/p/n{number}", b"old")
        self.machine = driver.machine
        self.log_is_long = False
        self.applies = Histogram()
        self.runtime = TickingRuntime()
        self.disk = disk = MemoryDisk(random.Random(0))
        self.store = SnapshotStore(disk, "/data/snapshots", self._fail)
        Journal.create(disk, "/data/journal")
        journal, _ = Journal.open(disk, "/data/journal", JournalOptions(), self._fail)
        writer = JournalWriter(journal, self.runtime, self._fail, self._fail)
        steps: list[Stimulus] = []
        self.snapshotter = Snapshotter(
            self,
            self.store,
            Compaction(self.store, journal, writer, self.runtime, steps.append, self._fail),
            self.runtime,
            self._fail,
            log_bytes_max=log_bytes_max,
            records_per_step=RECORDS_PER_STEP,
        )

    def _fail(self, story: object) -> None:
        raise AssertionError(story)

    def write(self, number: int) -> None:
        """Apply a write to a node."""
        self.client.put(f"/p/n{number}", b"new")
        self.snapshotter.entry_applied(ENTRY)

    def apply(self, duration_ms: float) -> None:
        """Apply a write that took so long, and one more that took no time."""
        self.applies.add(duration_ms)
        self.write(0)

    def write_log(self, size: int) -> None:
        """Apply entries of so many bytes."""
        for _ in range(size // size_bytes(ENTRY)):
            self.write(0)

    def is_held(self) -> bool:
        """Whether clients must not write."""
        return self.log_is_long

    def is_active(self) -> bool:
        """Whether a snapshot is being taken."""
        return self.snapshotter.active

    def begin(self) -> None:
        """Ask for a snapshot, and let everything happen but the first slice."""
        self.snapshotter.take()
        self.runtime.turn()

    def chunks(self, turns: int, after_ms: float = 0.0) -> int:
        """Let time and turns of the loop pass; returns how many chunks the walk handed out meanwhile."""
        before = len(self.runtime.lanes[SNAPSHOT_LANE])
        if after_ms:
            self.runtime.advance(after_ms)
        for _ in range(turns):
            self.runtime.turn()
        return len(self.runtime.lanes[SNAPSHOT_LANE]) - before

    def finish(self) -> None:
        """Let the snapshot end, and all that follows it at once."""
        for _ in range(NODES):
            if not self.snapshotter.active:
                return
            self.runtime.settle()
            self.runtime.advance(REST_MS)
        raise AssertionError("it does not end")


def test_a_quiet_node_walks_one_slice_in_every_turn() -> None:
    bench = Bench()
    bench.begin()
    assert [bench.chunks(1) for _ in range(5)] == [STEPS_PER_SLICE - 1] * 5


def test_while_writes_flow_a_rest_follows_every_slice() -> None:
    bench = Bench()
    bench.begin()
    bench.write(0)
    assert bench.chunks(1) == STEPS_PER_SLICE - 1
    for number in range(1, 5):
        bench.write(number)
        assert bench.chunks(20) == 0, "nothing is walked during the rest"
        assert bench.chunks(0, after_ms=REST_MS) == STEPS_PER_SLICE - 1


def test_it_rests_on_between_two_entries_of_a_load_and_not_when_the_load_has_ended() -> None:
    bench = Bench()
    bench.begin()
    bench.write(0)
    assert bench.chunks(1) == STEPS_PER_SLICE - 1
    for _ in range(RESTS):
        assert bench.chunks(20) == 0, "nothing was written since, but it may be soon"
        assert bench.chunks(0, after_ms=REST_MS) == STEPS_PER_SLICE - 1
    assert bench.chunks(4) == 4 * (STEPS_PER_SLICE - 1)


def test_it_walks_on_at_once_where_the_overlay_would_be_full_before_the_end() -> None:
    bench = Bench(overlay_bytes_max=100_000)
    bench.begin()
    for number in range(NODES // 2):
        bench.write(number)
    walked = 0
    while chunks := bench.chunks(1):
        walked += chunks * RECORDS_PER_STEP
        bench.write(0)
    assert NODES // 2 < walked < NODES, "more was changed than walked, until enough was walked"


def test_a_snapshot_that_is_given_up_leaves_no_second_walker_behind() -> None:
    bench = Bench()
    bench.begin()
    bench.write(0)
    bench.chunks(1)
    bench.snapshotter.abandon()
    bench.begin()
    bench.write(0)
    bench.runtime.advance(REST_MS)
    assert bench.chunks(1) == STEPS_PER_SLICE - 1
    assert bench.chunks(20) == 0


def test_what_is_written_with_rests_is_the_state_of_the_beginning() -> None:
    bench = Bench()
    before = dump(bench.machine)
    bench.begin()
    for number in range(NODES):
        bench.write(number)
        if number % 3 == 0:
            bench.client.remove(f"/p/n{number}")
        bench.runtime.settle()
        bench.runtime.advance(REST_MS)
    bench.finish()
    assert (bench.snapshotter.taken_count, bench.snapshotter.failed_count) == (1, 0)
    found = bench.store.load_newest(lambda reader: load(list(reader.chunks())))
    assert found is not None
    assert dump(found[1]) == before
    assert dump(bench.machine) != before


def test_too_many_changes_give_it_up_and_it_begins_again_in_larger_slices() -> None:
    bench = Bench(overlay_bytes_max=20_000)
    bench.begin()
    for number in range(NODES):
        bench.write(number)
    bench.chunks(1)
    assert bench.snapshotter.failed_count == 1
    assert bench.chunks(20) == 0, "not at once"
    bench.runtime.advance(GIVE_UP_PAUSE_MS)
    assert bench.chunks(1) == 2 * STEPS_PER_SLICE - 1
    bench.finish()
    assert bench.snapshotter.taken_count == 1


def test_each_snapshot_that_is_given_up_doubles_the_pause_until_one_is_taken() -> None:
    bench = Bench(overlay_bytes_max=20_000)

    def overflow() -> int:
        """Change everything before the first slice of a snapshot; returns the failures so far."""
        for number in range(NODES):
            bench.write(number)
        bench.chunks(1)
        return bench.snapshotter.failed_count

    bench.begin()
    for failures, times in enumerate((1, 2, 4), start=1):
        assert overflow() == failures
        bench.runtime.advance((times - 0.5) * GIVE_UP_PAUSE_MS)
        assert overflow() == failures, f"none is under way before {times} pauses"
        bench.runtime.advance(0.5 * GIVE_UP_PAUSE_MS)
    bench.finish()
    assert bench.snapshotter.taken_count == 1
    bench.begin()
    assert overflow() == 4
    bench.runtime.advance(GIVE_UP_PAUSE_MS)
    assert overflow() == 5, "one that was taken begins the pauses anew"


def test_a_long_log_holds_writers_until_a_snapshot_covers_it() -> None:
    bench = Bench(log_bytes_max=10_000)
    bench.write_log(5_000)
    early = bench.snapshotter.active
    bench.write_log(1_000)
    assert (early, bench.snapshotter.active) == (False, True), "half of the bound is enough"
    bench.runtime.turn()
    bench.write_log(3_500)
    assert not bench.is_held()
    bench.write_log(11_000)
    assert bench.is_held()
    bench.finish()
    assert bench.snapshotter.taken_count == 2, "the first one did not cover enough"
    assert not bench.is_held()


def test_writers_that_wait_again_and_again_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(log_bytes_max=10_000)

    def told_after(size: int) -> int:
        caplog.clear()
        bench.write_log(size)
        bench.finish()
        assert not bench.is_held()
        return caplog.text.count("writes wait for a snapshot")

    assert [told_after(11_000) for _ in range(3)] == [1, 0, 0]
    assert told_after(6_000) == 0
    assert told_after(11_000) == 1, "a snapshot was taken in time meanwhile"


def test_a_long_log_waits_for_no_pause() -> None:
    bench = Bench(overlay_bytes_max=20_000, log_bytes_max=100_000)
    bench.begin()
    for number in range(NODES):
        bench.write(number)
    bench.chunks(1)
    assert bench.snapshotter.failed_count == 1
    assert bench.chunks(20) == 0
    bench.write_log(100_000)
    assert bench.is_held()
    assert bench.chunks(3)
    bench.finish()
    assert not bench.is_held()


def test_a_snapshot_is_due_when_a_replay_would_take_long() -> None:
    bench = Bench()
    bench.apply(REPLAY_MS_MAX / 2)
    bench.apply(REPLAY_MS_MAX / 2)
    assert not bench.is_active()
    bench.apply(1.0)
    assert bench.is_active()
    bench.runtime.turn()
    bench.apply(REPLAY_MS_MAX / 2)
    bench.finish()
    assert bench.snapshotter.taken_count == 1
    bench.runtime.advance(COST_FACTOR * REPLAY_MS_MAX)
    bench.apply(REPLAY_MS_MAX / 2)
    assert not bench.is_active(), "what was applied during the walk counts, and no more"
    bench.apply(1.0)
    assert bench.is_active()


def test_the_next_one_waits_until_the_last_cost_little() -> None:
    bench = Bench()
    bench.begin()
    slices, begun_ms = 0, bench.runtime.now_ms
    while bench.chunks(1):
        slices += 1
    bench.finish()
    bench.apply(REPLAY_MS_MAX + 1.0)
    cheap_ms = begun_ms + COST_FACTOR * slices * SLICE_MS
    bench.runtime.advance(cheap_ms - bench.runtime.now_ms)
    bench.write(0)
    assert not bench.is_active()
    bench.runtime.advance(COST_FACTOR * slices * SLICE_MS)
    assert bench.is_active(), "it began with no further entry"
    bench.finish()
    assert bench.snapshotter.taken_count == 2


def test_a_replay_that_ends_during_a_walk_is_covered() -> None:
    bench = Bench()
    bench.apply(REPLAY_MS_MAX + 1.0)
    bench.runtime.turn()
    bench.apply(3 * REPLAY_MS_MAX)
    bench.finish()
    assert bench.snapshotter.taken_count == 1
    bench.runtime.advance(COST_FACTOR * REPLAY_MS_MAX)
    bench.finish()
    assert bench.snapshotter.taken_count == 2


def test_a_state_that_was_installed_needs_no_snapshot() -> None:
    bench = Bench()
    bench.applies.add(REPLAY_MS_MAX + 1.0)
    bench.snapshotter.installed(LastSnapshot(0, 0))
    bench.apply(1.0)
    assert not bench.is_active()


def test_a_node_that_stopped_begins_no_snapshot() -> None:
    bench = Bench()
    bench.begin()
    bench.finish()
    bench.apply(REPLAY_MS_MAX + 1.0)
    bench.snapshotter.stop()
    bench.runtime.advance(COST_FACTOR * REPLAY_MS_MAX)
    bench.runtime.settle()
    assert (bench.snapshotter.active, bench.snapshotter.taken_count) == (False, 1)
