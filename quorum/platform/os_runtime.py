"""The real world for runtime.py: an asyncio (or uvloop) loop, a thread per lane, and the system's files.

A lane is one thread with a bounded queue, made at its first use, so that the journal's fsyncs never wait
after a snapshot. The data directory's lock is an flock on its `lock` file and one on the folder: the kernel
drops them with the process, however that ends.

Randomness comes from the operating system: node incarnations are drawn from it and must never repeat.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import stat
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar, TypeVarTuple

from quorum.errors import NodeStoppedError
from quorum.platform import core_waits
from quorum.platform.runtime import Buffer, DataDirInUseError, TimerHandle

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

#: Work on a disk that took less is not asked how long it waited for a core: that costs a call of the system.
QUICK_MS = 1.0
#: Works that may wait in one lane; a caller that exceeds it has lost count of what it asked for.
LANE_PENDING_MAX = 4096
#: Buffers the kernel takes in one call (IOV_MAX of Linux).
_BUFFERS_PER_WRITE_MAX = 1024
#: how file systems say that they do not lock folders
NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
#: What a data directory holds is readable for its owner alone.
_FILE_MODE = 0o600
_FOLDER_MODE = 0o700


class _Lane:
    """One thread that works through a queue in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending = 0
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"quorate-{name}", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], None] | None) -> None:
        self._queue.put(work)

    def join(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class AsyncioRuntime:
    """A Runtime over a running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random | None = None) -> None:
        """Bind to a loop.

        Args:
            loop: the loop whose thread every method is called in.
            rng: the source of randomness; the operating system's by default.
        """
        self._loop = loop
        self._random = rng if rng is not None else random.SystemRandom()
        self._lanes: dict[str, _Lane] = {}
        self._closed = False

    @property
    def random(self) -> random.Random:
        """The source of randomness."""
        return self._random

    def monotonic_ms(self) -> float:
        """Return milliseconds of the monotonic clock; any thread may ask."""
        return time.monotonic_ns() / 1e6

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def disk_ms(self, work: Callable[[*Arguments], object], *arguments: *Arguments) -> float:
        """Work on a disk, now; return the milliseconds that the disk took; any thread may ask."""
        since = core_waits.counted()
        begun_ns = time.monotonic_ns()
        work(*arguments)
        took_ms = (time.monotonic_ns() - begun_ns) / 1e6
        return took_ms if took_ms < QUICK_MS else max(took_ms - core_waits.waited_ms(since), 0.0)

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Call back in the loop's next turn."""
        self._loop.call_soon(callback, *arguments)

    def call_later(
        self, delay_ms: float, callback: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> TimerHandle:
        """Call back no earlier than `delay_ms` from now."""
        return self._loop.call_later(delay_ms / 1000, callback, *arguments)

    def run_in_thread(
        self,
        lane: str,
        work: Callable[[], Result],
        done: Callable[[Result | None, BaseException | None], object],
    ) -> None:
        """Run `work` in the lane's thread, then `done(result, error)` in the loop."""
        if self._closed:
            raise NodeStoppedError(f"lane {lane!r} was asked to work after the runtime was closed")
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(lane)
        thread = self._lanes[lane]
        if thread.pending >= LANE_PENDING_MAX:
            raise NodeStoppedError(f"lane {lane!r} holds {thread.pending} unfinished works, no more fit")
        thread.pending += 1

        def finish(result: Result | None, error: BaseException | None) -> None:
            thread.pending -= 1
            done(result, error)

        def run() -> None:
            result: Result | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as caught:  # noqa: BLE001 - handed to `done` in the loop, whatever it is
                error = caught
            # A loop that was closed while work ran has nobody left to tell.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(finish, result, error)

        thread.put(run)

    def close(self) -> None:
        """Wait for what the lanes still work on and end their threads; their `done` calls may follow."""
        self._closed = True
        for lane in self._lanes.values():
            lane.join()
        self._lanes.clear()


class OsFile:
    """A File on a descriptor."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> str:
        """The path the file was opened under."""
        return self._path

    def size(self) -> int:
        """Return the file's size in bytes."""
        return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""
        try:
            return self._pread(size, offset)
        except OSError as error:
            error.filename = self._path
            raise

    def _pread(self, size: int, offset: int) -> bytes:
        found = os.pread(self._descriptor, size, offset)
        if len(found) == size or not found:
            return found
        # The kernel returns at most 2 GiB at once and may return less for other reasons.
        parts = [found]
        have = len(found)
        while have < size and (more := os.pread(self._descriptor, size - have, offset + have)):
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all buffers one after the other from `offset` on."""
        for first in range(0, len(buffers), _BUFFERS_PER_WRITE_MAX):
            some = buffers[first : first + _BUFFERS_PER_WRITE_MAX]
            wanted = sum(map(len, some))
            try:
                written = os.pwritev(self._descriptor, some, offset)
                if written < wanted:
                    self._write_rest(memoryview(b"".join(some))[written:], offset + written)
            except OSError as error:
                # The kernel names no file where it was given a descriptor; nor in the other calls.
                error.filename = self._path
                raise
            offset += wanted

    def _write_rest(self, rest: memoryview, offset: int) -> None:
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            if written == 0:
                raise OSError(errno.EIO, "the kernel wrote nothing", self._path)
            rest = rest[written:]
            offset += written

    def fdatasync(self) -> None:
        """Return once content and size are on the disk, of a file whose name nobody has removed."""
        try:
            os.fdatasync(self._descriptor)
            if os.fstat(self._descriptor).st_nlink == 0:
                raise OSError(errno.ESTALE, "somebody removed the file")
        except OSError as error:
            error.filename = self._path
            raise

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros, to `size` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            error.filename = self._path
            raise

    def close(self) -> None:
        """Close the descriptor; a second close does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _OsLock:
    """Held flocks."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def release(self) -> None:
        """Drop them; a second release does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())


def _lock_folder(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_FOLDER_LOCKS:
            raise


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)


class OsDisk:
    """The Disk of the operating system."""

    def create(self, path: str) -> OsFile:
        """Create a new empty file; FileExistsError if the name is taken."""
        return OsFile(path, _open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))

    def open(self, path: str, writable: bool = False) -> OsFile:
        """Open an existing file; FileNotFoundError if there is none, OSError if it is not a regular one."""
        # Before it is opened: that would wait for the other end of a pipe.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
        return OsFile(path, _open(path, os.O_RDWR if writable else os.O_RDONLY))

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target`."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        """Create a folder and the missing ones above it, each made durable in its parent."""
        wanted = []
        path = os.path.abspath(path)
        while not os.path.isdir(path):
            wanted.append(path)
            path = os.path.dirname(path)
        # The lowest that is there, too: its maker may have ended before its name was durable.
        if os.access(os.path.dirname(path), os.R_OK | os.W_OK):
            self.fsync_dir(os.path.dirname(path))
        for folder in reversed(wanted):
            try:
                os.mkdir(folder, _FOLDER_MODE)
            except FileExistsError:
                # Another process, which starts at the same time, may have made it.
                if not os.path.isdir(folder):
                    raise
            self.fsync_dir(os.path.dirname(folder))

    def fsync_dir(self, path: str) -> None:
        """Return once the folder's names are on the disk."""
        descriptor = _open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> _OsLock:
        """Lock a folder for this process: a file in it that names the process, and the folder itself.

        The folder's lock holds also where somebody removed the file; the file's where a network file system
        does not lock folders.
        """
        name = os.path.join(path, "lock")
        lock = _OsLock([os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)])
        (descriptor,) = lock._descriptors
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock._descriptors.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            _lock_folder(lock._descriptors[-1])
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            lock.release()
            raise DataDirInUseError(
                f"data directory {path} is in use by the process with id {holder}",
                "stop that process, or give this node a data directory of its own",
            ) from None
        except OSError as error:
            lock.release()
            error.filename = name
            raise
        return lock
