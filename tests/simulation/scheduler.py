"""The clock and the order of everything: one heap of events, one seed.

Decides what happens next: the event with the smallest virtual time, ties in the order of asking. All
randomness of a world comes from here as streams with names, so that one more draw in one place changes no
other. Nothing in it knows what events are about. Times are milliseconds of virtual time; 0 is the start.

`trace` is a running hash of (time, number, actor) of every event: two runs of one seed, in any process, must
end with the same one. After every event all of `after_event` are called with the node id that ran in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, TypeVarTuple

Arguments = TypeVarTuple("Arguments")

#: cancelled events above which the heap may be swept
_SWEEP_MIN = 1024


class Handle(list[Any]):
    """An event that was asked for: [due, number, call or None, arguments]; compared by the first two."""

    __slots__ = ()

    def cancel(self) -> None:
        """Forget the call; a second cancel, or one after the call, does nothing."""
        self[2] = None

    @property
    def waits(self) -> bool:
        """Whether the call is still to come."""
        return self[2] is not None


class Scheduler:
    """Virtual time.

    Attributes:
        now_ms: the time of the event that runs.
        events: how many events ran.
        actor: id of the node whose code runs in this event; 0 for none. Runtimes set it.
        after_event: called after every event with `actor`; what is raised ends the run.
        trace: see the module.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_ms = 0.0
        self.events = 0
        self.actor = 0
        self.trace = 0
        self.after_event: list[Callable[[int], object]] = []
        self._heap: list[Handle] = []
        self._asked = 0
        self._swept = _SWEEP_MIN
        self._stopped = False
        self._streams: dict[str, random.Random] = {}

    def rng(self, name: str) -> random.Random:
        """Return the stream of randomness of this name, always the same object."""
        stream = self._streams.get(name)
        if stream is None:
            # seeding with a text hashes it with SHA-512, whatever PYTHONHASHSEED is
            stream = self._streams[name] = random.Random(f"{self.seed}/{name}")
        return stream

    def at(self, delay_ms: float, call: Callable[[*Arguments], object], *arguments: *Arguments) -> Handle:
        """Have `call` run `delay_ms` from now, behind everything that was asked for that instant before."""
        self._asked += 1
        handle = Handle((self.now_ms + delay_ms, self._asked, call, arguments))
        heappush(self._heap, handle)
        return handle

    def when(self, due_ms: float, call: Callable[[*Arguments], object], *arguments: *Arguments) -> Handle:
        """Have `call` run at a time, at least now: calls for one time keep their order."""
        self._asked += 1
        handle = Handle((max(due_ms, self.now_ms), self._asked, call, arguments))
        heappush(self._heap, handle)
        return handle

    def run(self, until_ms: float) -> None:
        """Run all events up to and including `until_ms`; then it is that time, unless `stop` was called."""
        heap, after = self._heap, self.after_event
        self._stopped = False
        while heap and heap[0][0] <= until_ms:
            due_ms, number, call, arguments = handle = heappop(heap)
            if call is None:
                continue
            handle[2] = None
            self.now_ms = due_ms
            self.actor = 0
            self.events += 1
            call(*arguments)
            actor = self.actor
            self.trace = hash((self.trace, due_ms, number, actor))
            for check in after:
                check(actor)
            if self._stopped:
                return
        self.now_ms = until_ms
        if len(heap) > self._swept:
            self._sweep()

    def stop(self) -> None:
        """End `run` behind the event that runs."""
        self._stopped = True

    def mix(self, value: int) -> None:
        """Let a number that the world computed (a digest, an index) take part in the trace."""
        self.trace = hash((self.trace, value))

    def _sweep(self) -> None:
        self._heap[:] = [handle for handle in self._heap if handle[2] is not None]
        heapify(self._heap)
        self._swept = max(_SWEEP_MIN, 2 * len(self._heap))
