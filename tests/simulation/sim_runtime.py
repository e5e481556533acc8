"""The Runtime of one life of a node under virtual time.

A lane's fsync may also hang for good: its work then never goes on, and the loop does.

Decides what "later" means: a turn of the loop follows after a drawn moment (what arrives in between belongs
to it). A lane's work runs in one piece when its drawn fsync would be done, or, as drawn, beside the loop
from one call of the disk to the next (lane_work.py); `done` follows in a turn behind it. While a life is
paused everything that falls due waits, in order, and the clock goes on; once it has ended nothing of it ever
runs again. What the loop itself spends on the disk keeps it busy: whatever falls due meanwhile waits.

The clock of a life moves a little with every look at it, so that code which works in slices of time does so
here, too; its zero is drawn. Wall time is the machine's and may jump.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, TypeVarTuple

from tests.simulation.lane_work import LaneWork
from tests.simulation.scheduler import Handle, Scheduler
from tests.support.memory_disk import Stopped

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

#: what one look at the clock costs
LOOK_MS = 0.02
#: the longest moment between a turn being asked for and its beginning
TURN_DELAY_MS_MAX = 0.25
#: the longest hand-over between a lane and the loop
HANDOVER_MS_MAX = 0.1
#: of the works of lanes, those that the loop runs beside
BESIDE_SHARE = 0.3
#: the longest moment that a call of the disk takes a lane, if it is no sync
CALL_MS_MAX = 0.2
_SYNCS = ("fdatasync", "fsync_dir")
#: 2001-09-09
WALL_ZERO_MS = 1_000_000_000_000


class Machine(Protocol):
    """What a life asks of the machine below it."""

    node_id: int
    #: how far its wall clock is off
    wall_offset_ms: int

    def sync_ms(self) -> float:
        """Draw how long the next fsync takes."""

    def hangs(self, lane: str) -> bool:
        """Tell whether an fsync of a lane that begins now never comes back."""

    def blocked(self, for_ms: float) -> None:
        """An fsync held up the loop."""

    def crashed(self) -> None:
        """The process ended within a call of the disk."""

    def escaped(self, error: BaseException) -> None:
        """An exception left a callback: in a real loop it would be logged and forgotten."""


class _Lane:
    """Works in order, the first one under way."""

    __slots__ = ("done_ms", "name", "thread", "works")

    def __init__(self, name: str) -> None:
        self.name = name
        #: of the first one, if it runs beside the loop
        self.thread: LaneWork | None = None
        self.works: deque[tuple[Callable[[], Any], Callable[[Any, Any], object]]] = deque()
        #: when the last `done` is due: they keep the order of the works
        self.done_ms = 0.0


class SimRuntime:
    """Clock, loop, lanes and randomness of one life."""

    def __init__(self, scheduler: Scheduler, machine: Machine, rng: random.Random) -> None:
        self.random = rng
        self.ended = False
        self.paused = False
        self._scheduler = scheduler
        self._machine = machine
        self._node_id = machine.node_id
        #: separate from `random`, so that what the node draws does not depend on how it is scheduled
        self._delays = scheduler.rng(f"delays-{machine.node_id}")
        self._zero_ms = self._delays.uniform(1_000.0, 10_000_000.0)
        self._last_ms = 0.0
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._turn_due = False
        #: called when a callback of this life is done: what it sent leaves
        self.at_turn_end: list[Callable[[], object]] = []
        #: what fell due during a pause
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._busy_until_ms = 0.0
        #: the clock of the lane whose work runs: from when it began until its fsync
        self._lane_ms: float | None = None
        self._lanes: dict[str, _Lane] = {}
        #: the thread that runs at this moment, and how long its next call of the disk takes
        self._running: LaneWork | None = None
        self._call_ms = 0.0
        #: whether that call is a sync
        self._syncs = False

    # --- Runtime ----------------------------------------------------------------------------------

    def monotonic_ms(self) -> float:
        """Return this life's clock, in ms; it moves a little with every look."""
        if self._lane_ms is not None:
            self._lane_ms += LOOK_MS
            return self._lane_ms + self._zero_ms
        now_ms = self._scheduler.now_ms
        last_ms = self._last_ms + LOOK_MS
        if now_ms < last_ms:  # noqa: PLR1730 - every look at the clock comes here; max() costs a call
            now_ms = last_ms
        self._last_ms = now_ms
        return now_ms + self._zero_ms

    def wall_ms(self) -> int:
        """Return the machine's wall clock; it may jump."""
        return WALL_ZERO_MS + int(self._scheduler.now_ms) + self._machine.wall_offset_ms

    def disk_ms(self, work: Callable[[*Arguments], object], *arguments: *Arguments) -> float:
        """Return how long work on the disk takes by this life's clock."""
        begun_ms = self.monotonic_ms()
        work(*arguments)
        return self.monotonic_ms() - begun_ms

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call back in the next turn."""
        self._soon.append((callback, arguments))
        if not self._turn_due:
            self._turn_due = True
            self._scheduler.at(self._delays.random() * TURN_DELAY_MS_MAX, self.enter, self._turn)

    def call_later(
        self, delay_ms: float, callback: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> Handle:
        """Call back no earlier than `delay_ms` from now."""
        ahead_ms = max(0.0, self._last_ms - self._scheduler.now_ms)
        return self._scheduler.at(delay_ms + ahead_ms, self.enter, callback, *arguments)

    def run_in_thread(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], object],
    ) -> None:
        """Run `work` when its fsync would be done, then `done`; one work of a lane after the other."""
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = _Lane(lane)
        queue.works.append((work, done))
        if len(queue.works) == 1:
            self._begin(queue)

    # --- the world --------------------------------------------------------------------------------

    def enter(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Run code of this life, now or when it may run again; for every event that reaches the node."""
        if self.ended:
            return
        if self._busy_until_ms > self._scheduler.now_ms:
            # Also during a pause: what comes in it stays behind what waits for the loop already.
            self._scheduler.when(self._busy_until_ms, self.enter, callback, *arguments)
            return
        if self.paused:
            self._held.append((callback, arguments))
            return
        self._scheduler.actor = self._node_id
        try:
            callback(*arguments)
            if self.at_turn_end:
                self._end_turn()
        except Stopped:
            self._machine.crashed()
        except Exception as error:  # noqa: BLE001 - judged by the world: nothing may leave a callback
            self._machine.escaped(error)

    def spend_sync(self) -> None:
        """The disk was asked to sync: time passes. To be called within code of this life."""
        if self._lane_ms is not None:
            # The event is the end of the lane's work.
            self._lane_ms = max(self._lane_ms, self._scheduler.now_ms)
            return
        spent_ms = self._machine.sync_ms()
        self._machine.blocked(spent_ms)
        self._last_ms = max(self._last_ms, self._scheduler.now_ms) + spent_ms
        self._busy_until_ms = max(self._busy_until_ms, self._scheduler.now_ms) + spent_ms

    def disk_called(self, operation: str) -> None:
        """The disk was asked for something, and has not done it yet."""
        thread = self._running
        if thread is not None:
            self._syncs = syncs = operation in _SYNCS
            self._call_ms = self._machine.sync_ms() if syncs else self._delays.random() * CALL_MS_MAX
            thread.halt()

    @property
    def held(self) -> int:
        """How much fell due during the present pause."""
        return len(self._held)

    def pause(self) -> None:
        """Stop the process where it is."""
        self.paused = True

    def resume(self) -> None:
        """Let it go on with everything that fell due meanwhile, in order."""
        self.paused = False
        held, self._held = self._held, []
        for callback, arguments in held:
            self._scheduler.at(0.0, self.enter, callback, *arguments)

    def end(self) -> None:
        """End this life: nothing of it runs any more."""
        self.ended = True
        for lane in self._lanes.values():
            if lane.thread is not None:
                self._running = lane.thread
                lane.thread.end()
        self._running = None
        self._soon.clear()
        self._lanes.clear()
        self._held.clear()

    # --- inner parts ------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        asked, self.at_turn_end = self.at_turn_end, []
        for call in asked:
            call()

    def _turn(self) -> None:
        """Run what was asked for before this turn began."""
        self._turn_due = False
        soon = self._soon
        for _ in range(len(soon)):
            callback, arguments = soon.popleft()
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001 - as `enter`: the loop goes on with the next
                self._machine.escaped(error)
            if self.ended:
                return
        if soon and not self._turn_due:
            self._turn_due = True
            self._scheduler.at(self._delays.random() * TURN_DELAY_MS_MAX, self.enter, self._turn)

    def _begin(self, lane: _Lane) -> None:
        begun_ms = self._scheduler.now_ms
        if self._delays.random() < BESIDE_SHARE:
            lane.thread = LaneWork(lane.works[0][0], begun_ms)
            self._scheduler.at(self._delays.random() * HANDOVER_MS_MAX, self._advance, lane)
        elif not self._machine.hangs(lane.name):
            self._scheduler.at(self._machine.sync_ms(), self.enter, self._work, lane, begun_ms)

    def _work(self, lane: _Lane, begun_ms: float) -> None:
        """Run the first work of a lane in one piece, and hand over its result."""
        result = None
        error: BaseException | None = None
        self._lane_ms = begun_ms
        try:
            result = lane.works[0][0]()
        except Stopped:
            raise
        except Exception as caught:  # noqa: BLE001 - as in a thread: it belongs to `done`
            error = caught
        finally:
            self._lane_ms = None
        self._hand_over(lane, result, error)

    def _advance(self, lane: _Lane) -> None:
        """Run the first work of a lane up to its next call of the disk, whatever the loop is busy with."""
        thread = lane.thread
        if self.ended or thread is None:
            return
        if self.paused:
            self._held.append((self._advance, (lane,)))
            return
        self._scheduler.actor = self._node_id
        self._running = thread
        self._lane_ms = max(thread.clock_ms, self._scheduler.now_ms)
        thread.advance()
        thread.clock_ms = self._lane_ms
        self._running = self._lane_ms = None
        if not thread.finished:
            if not (self._syncs and self._machine.hangs(lane.name)):
                self._scheduler.at(self._call_ms, self._advance, lane)
            return
        lane.thread = None
        if isinstance(thread.error, Stopped):
            self._machine.crashed()
        else:
            self._hand_over(lane, thread.result, thread.error)

    def _hand_over(self, lane: _Lane, result: Any, error: BaseException | None) -> None:
        """Let `done` follow in a turn of the loop, and begin the next work."""
        _, done = lane.works.popleft()
        now_ms = self._scheduler.now_ms
        lane.done_ms = max(lane.done_ms, now_ms + self._delays.random() * HANDOVER_MS_MAX)
        self._scheduler.when(lane.done_ms, self.enter, done, result, error)
        if lane.works:
            self._begin(lane)
