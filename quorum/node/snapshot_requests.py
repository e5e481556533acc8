"""Who waits for a snapshot of this node, and what each of them is told.

Decides which snapshot answers a request: the first finished one that holds everything that was applied when
it was made, so several share one, and one that had begun before the last write does not count. Each request
is answered once: by a snapshot, by the reason why there is none, or by its deadline, after which the snapshot
goes on. When one begins and how it is written is snapshotting.py's. Soft state only.

Source: raft, "Snapshots"; definite and indefinite errors as in maelstrom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quorum.errors import (
    FULL_DISK_ERRNOS,
    QuorateError,
    SnapshotBusyError,
    SnapshotNotTakenError,
    SnapshotUnderWayError,
    remedy_for_os,
    told_by_os,
)
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.snapshots.snapshots import SnapshotFile

#: requests that wait at once
REQUESTS_MAX: Final = 64
#: how long one waits: longer than a snapshot of a large tree takes on a busy node, attempts that are given up
#: and their pauses included
REQUEST_DEADLINE_MS: Final = 600_000.0

#: what is told to whoever asked: a durable snapshot, or why there is none
Told = Callable[[SnapshotFile | QuorateError], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that is not answered."""

    #: of the state when it was made
    applied_index: int
    told: Told
    deadline: TimerHandle | None = None


class SnapshotRequests:
    """The requests for a snapshot that are not answered."""

    def __init__(self, runtime: Runtime) -> None:
        """Begin with nothing; the runtime gives the deadlines."""
        self._runtime = runtime
        #: in the order of asking
        self._waiting: list[_Waiting] = []
        self._stopped = False

    @property
    def waiting_count(self) -> int:
        """Requests that are not answered."""
        return len(self._waiting)

    def wait(self, applied_index: int, told: Told) -> bool:
        """Take a request; `told` is called once, before this returns if it is refused.

        Args:
            applied_index: of the state now; a snapshot of less does not answer it.
            told: gets the snapshot or the error.

        Returns:
            Whether it waits now.
        """
        if self._stopped:
            told(_stops())
        elif len(self._waiting) >= REQUESTS_MAX:
            told(SnapshotBusyError(f"{REQUESTS_MAX} requests wait for a snapshot already", "ask again later"))
        else:
            waiting = _Waiting(applied_index, told)
            waiting.deadline = self._runtime.call_later(REQUEST_DEADLINE_MS, self._overdue, waiting)
            self._waiting.append(waiting)
            return True
        return False

    def taken(self, snapshot: SnapshotFile) -> None:
        """Answer those whom a finished snapshot serves; the others need one that begins from now on."""
        answered = [each for each in self._waiting if each.applied_index <= snapshot.log_index]
        self._waiting = [each for each in self._waiting if each.applied_index > snapshot.log_index]
        _tell(answered, snapshot)

    def failed(self, error: QuorateError) -> None:
        """Tell everybody why no snapshot was taken."""
        answered, self._waiting = self._waiting, []
        _tell(answered, error)

    def stop(self) -> None:
        """The node stops: answer everybody, now and from now on."""
        self._stopped = True
        self.failed(_stops())

    def _overdue(self, waiting: _Waiting) -> None:
        self._waiting.remove(waiting)
        waiting.told(
            SnapshotUnderWayError(
                f"the snapshot is still under way after {REQUEST_DEADLINE_MS / 1000:g} s",
                "ask again; if quorate_snapshots_failed in /metrics rises meanwhile, more changes than a "
                "snapshot bears: raise raft.snapshot_overlay_bytes_max, or ask when less is written",
            )
        )


def not_written(error: BaseException | None) -> SnapshotNotTakenError:
    """Return what is told of a snapshot that could not be written; retriable where the disk lacks room."""
    if isinstance(error, OSError):
        kind = SnapshotBusyError if error.errno in FULL_DISK_ERRNOS else SnapshotNotTakenError
        return kind(f"no snapshot was taken: {told_by_os(error, 'writing its file')}", remedy_for_os(error))
    story = error.message if isinstance(error, QuorateError) else repr(error)
    remedy = "look at the disk of this node (the system's log may say more), and try again"
    return SnapshotNotTakenError(f"no snapshot was taken: {story}", remedy)


def _tell(answered: list[_Waiting], outcome: SnapshotFile | QuorateError) -> None:
    for waiting in answered:
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        waiting.told(outcome)


def _stops() -> SnapshotBusyError:
    return SnapshotBusyError("no snapshot was taken: the node stops", "ask again once it has started")
