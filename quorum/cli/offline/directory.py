"""A data directory for reading: nobody else may use it meanwhile, and nothing in it changes.

Decides whether a folder is a node's data directory and whether a node uses it. The node's own locks are
shared, without writing the process id that a node leaves in one. A start runs on `ForgetfulDisk` as on any
other disk, and nothing of what it writes is kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence

from quorum.errors import UsageError
from quorum.platform.os_runtime import NO_FOLDER_LOCKS, OsDisk
from quorum.platform.runtime import Buffer, DirectoryLock, Disk, File
from quorum.raft.datadir.identity import IDENTITY_NAME, JOURNAL_NAME

_LOCK_NAME = "lock"


class _ForgetfulFile:
    """A file that is read, and on which nothing is written."""

    def __init__(self, path: str, file: File | None) -> None:
        """`file` is None where it was created here."""
        self.path = path
        self._file = file

    def size(self) -> int:
        return 0 if self._file is None else self._file.size()

    def pread(self, size: int, offset: int) -> bytes:
        return b"" if self._file is None else self._file.pread(size, offset)

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Forget it."""

    def fdatasync(self) -> None:
        """Return at once."""

    def truncate(self, size: int) -> None:
        """Forget it."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ForgetfulDisk:
    """A disk as a start sees it, on which nothing changes; the directory's lock is held by `unused`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, writable: bool = False) -> File:  # noqa: ARG002 - nothing is written either way
        """Open an existing file."""
        return _ForgetfulFile(path, self._disk.open(path))

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted; none in one that a start would make."""
        try:
            return self._disk.listdir(path)
        except FileNotFoundError:
            return []

    def create(self, path: str) -> File:
        """Return a file that nobody finds again."""
        return _ForgetfulFile(path, None)

    def unlink(self, path: str) -> None:
        """Refuse a folder, as any disk does; forget it otherwise."""
        try:
            self._disk.listdir(path)
        except OSError:
            return
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)

    def rename(self, source: str, target: str) -> None:
        """Forget it."""

    def make_dirs(self, path: str) -> None:
        """Forget it."""

    def fsync_dir(self, path: str) -> None:
        """Return at once."""

    def lock(self, path: str) -> DirectoryLock:  # noqa: ARG002 - held already
        """Return a lock that holds nothing more."""
        return _NoLock()


class _NoLock:
    def release(self) -> None:
        """Nothing is held."""


@contextlib.contextmanager
def unused(data_dir: str) -> Iterator[ForgetfulDisk]:
    """Hold a data directory that no node uses; a node cannot start on it meanwhile.

    Args:
        data_dir: its path.

    Yields:
        The disk to read it with.
    """
    disk = OsDisk()
    names = _names(disk, data_dir)
    if IDENTITY_NAME not in names and JOURNAL_NAME not in names:
        inside = [f"{data_dir}/{name}/data" for name in names if name.startswith("node-")]
        hint = f"name that of one node, as {inside[0]}" if inside else "name the node.data_dir of a node"
        raise UsageError(f"{data_dir} is no node's data directory: it has no {IDENTITY_NAME}", hint)
    with contextlib.ExitStack() as held:
        # The folder too: a node that runs holds it also where somebody removed the file.
        for path in (f"{data_dir}/{_LOCK_NAME}", data_dir):
            if path == data_dir or _LOCK_NAME in names:
                # Opened without waiting: somebody may have put a pipe there.
                lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                held.callback(os.close, lock)
                if path != data_dir and not stat.S_ISREG(os.fstat(lock).st_mode):
                    raise UsageError(f"{path} is no regular file", "move it away: no node starts with it")
                _lock_shared(lock, data_dir)
        yield ForgetfulDisk(disk)


def _lock_shared(lock: int, data_dir: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        is_folder = stat.S_ISDIR(os.fstat(lock).st_mode)
        holder = "" if is_folder else os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        raise UsageError(
            f"data directory {data_dir} is in use by the process with id {holder or 'unknown'}",
            "stop that node first: a copy that is made while it runs looks damaged",
        ) from None
    except OSError as error:
        if error.errno not in NO_FOLDER_LOCKS:
            raise


def _names(disk: Disk, data_dir: str) -> list[str]:
    try:
        return disk.listdir(data_dir)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(
            f"data directory {data_dir} cannot be read: {error.strerror}", "name the node.data_dir of a node"
        ) from error
