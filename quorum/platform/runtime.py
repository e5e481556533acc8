"""What the replication shell needs from the outside world: time, threads, randomness and files.

Everything in the shell that would make a run unrepeatable comes through these protocols, so that a simulation
can put a virtual clock and a crashable disk underneath the shipped code. The real ones are in os_runtime.py.
Nothing here holds state.

The disk's promises are exactly those of POSIX: written bytes may be lost until `fdatasync` of the file
returned, a created, renamed or removed name until `fsync_dir` of its folder returned, and after a failed
fsync nothing is known about what reached the disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, TypeVarTuple

from quorum.errors import DataDirError, Fault

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

#: Whatever a file takes: bytes, bytearray or a view of them.
Buffer = bytes | bytearray | memoryview


class DataDirInUseError(DataDirError):
    """Another process works in this data directory."""

    fault = Fault.OPERATOR


class TimerHandle(Protocol):
    """A call that was asked for and has not necessarily happened."""

    def cancel(self) -> None:
        """Forget the call; a second cancel, or one after the call, does nothing."""


class Runtime(Protocol):
    """The clock, the event loop and the worker threads of one node.

    Every method belongs to the loop's thread unless it says otherwise.
    """

    @property
    def random(self) -> random.Random:
        """The node's only source of randomness."""

    def monotonic_ms(self) -> float:
        """Return milliseconds of a clock that never goes back; its zero means nothing. Lanes may ask, too."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC; may jump."""

    def disk_ms(self, work: Callable[[*Arguments], object], *arguments: *Arguments) -> float:
        """Work on a disk, now; return the milliseconds that the disk took. Lanes may ask, too.

        What this thread waited for a core meanwhile is no time of the disk.
        """

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call back in a later turn of the loop, in the order of asking."""

    def call_later(
        self, delay_ms: float, callback: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> TimerHandle:
        """Call back no earlier than `delay_ms` from now."""

    def run_in_thread(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], object],
    ) -> None:
        """Run `work` in the lane's thread, then `done(result, error)` in the loop's thread.

        Work of one lane runs one after the other in the order of asking, and so do its `done` calls;
        different lanes are independent. `error` is what `work` raised, else None.
        """


class File(Protocol):
    """An open file. Offsets and sizes are bytes; errors are OSError with its errno."""

    @property
    def path(self) -> str:
        """The path the file was opened under, for messages."""

    def size(self) -> int:
        """Return the file's size."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers one after the other from `offset` on, growing the file as needed.

        When this raises, any part may have been written.
        """

    def fdatasync(self) -> None:
        """Return once content and size are on the disk. Never repeat it after an error."""

    def truncate(self, size: int) -> None:
        """Cut (or extend with zeros) to `size`."""

    def close(self) -> None:
        """Close; nothing is flushed by this. A second close does nothing."""


class DirectoryLock(Protocol):
    """Exclusive use of a folder by one process; ends with the process at the latest."""

    def release(self) -> None:
        """Let others have the folder."""


class Disk(Protocol):
    """A file system. Paths are strings with `/`; errors are OSError with its errno."""

    def create(self, path: str) -> File:
        """Create a new empty file for reading and writing."""

    def open(self, path: str, writable: bool = False) -> File:
        """Open an existing file for reading, or for reading and writing."""

    def rename(self, source: str, target: str) -> None:
        """Rename within one folder, replacing `target` in one step."""

    def unlink(self, path: str) -> None:
        """Remove a file's name; handles that are open stay usable."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""

    def make_dirs(self, path: str) -> None:
        """Create a folder with the missing ones above it; they are durable on return."""

    def fsync_dir(self, path: str) -> None:
        """Return once the folder's names are on the disk. Never try again after an error."""

    def lock(self, path: str) -> DirectoryLock:
        """Lock the existing folder `path` through a file called `lock` in it."""
