"""What one log has begun on the disk and not seen finished: in order, each after the one before.

What follows a job in memory happens when the log looks, in the event loop's thread. Soft state.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from broker.log.disk_threads import finished
from broker.log.flushing import Flusher, Work
from broker.log.segment import Segment


class _Job(NamedTuple):
    #: that it makes complete
    closed: Segment | None
    on_done: Callable[[], None] | None
    future: Future[None]


class PendingJobs:
    """The jobs of one log."""

    def __init__(self, flusher: Flusher) -> None:
        """Begin with none."""
        self._flusher = flusher
        self._jobs: deque[_Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(
        self,
        work: Work,
        on_done: Callable[[], None] | None = None,
        closed: Segment | None = None,
        *,
        is_slow: bool = False,
    ) -> None:
        """Have something done behind what was begun before; see Flusher.submit."""
        after = self._jobs[-1].future if self._jobs else None
        self._jobs.append(_Job(closed, on_done, self._flusher.submit(work, after, is_slow=is_slow)))

    def check(self) -> None:
        """Take note of what is done; raises LogStorageError if any log's job has failed."""
        if self._flusher.failure is not None:
            raise self._flusher.failure
        while self._jobs and self._jobs[0].future.done():
            self._take()

    def settle(self) -> None:
        """Wait until all are done; raises LogStorageError."""
        while self._jobs:
            self._take()

    async def settled(self) -> None:
        """Wait in the event loop until all are done; raises LogStorageError."""
        while self._jobs:
            await finished(self._jobs[-1].future)
            self.check()

    def unfinished(self) -> list[Future[None]]:
        """Return those that an append may wait for: none after a failure, of which it will tell."""
        if not self._jobs or self._flusher.failure is not None:
            return []
        return [job.future for job in self._jobs if not job.future.done()]

    def closes(self, segment: Segment) -> bool:
        """Whether the files of a closed segment are not complete yet."""
        return any(job.closed is segment for job in self._jobs)

    def forget(self) -> None:
        """Look at none of them any more."""
        self._jobs.clear()

    def _take(self) -> None:
        job = self._jobs.popleft()
        job.future.result()
        if job.on_done is not None:
            job.on_done()
