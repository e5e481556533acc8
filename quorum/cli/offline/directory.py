"""A data directory for reading: nobody else may use it meanwhile, and nothing in it changes.

Decides whether a folder is a node's data directory and whether a node uses it. The node's own locks are
shared, without writing the process id that a node leaves in one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import NoReturn

from quorum.errors import UsageError
from quorum.platform.os_runtime import NO_FOLDER_LOCKS, OsDisk, OsFile
from quorum.platform.runtime import DirectoryLock
from quorum.raft.datadir.identity import IDENTITY_NAME, JOURNAL_NAME

_LOCK_NAME = "lock"


class ReadOnlyDisk:
    """The operating system's files; whatever would change something is refused."""

    def __init__(self) -> None:
        self._disk = OsDisk()

    def open(self, path: str, writable: bool = False) -> OsFile:
        """Open an existing file for reading."""
        if writable:
            _refuse(path)
        return self._disk.open(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return self._disk.listdir(path)

    def create(self, path: str) -> OsFile:
        """Refuse."""
        _refuse(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002 - refused whatever they are
        """Refuse."""
        _refuse(source)

    def unlink(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def make_dirs(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def fsync_dir(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def lock(self, path: str) -> DirectoryLock:
        """Refuse: taking the node's lock writes to it; see `unused`."""
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


@contextlib.contextmanager
def unused(data_dir: str) -> Iterator[ReadOnlyDisk]:
    """Hold a data directory that no node uses; a node cannot start on it meanwhile.

    Args:
        data_dir: its path.

    Yields:
        The disk to read it with.

    Raises:
        UsageError: it is no data directory, a node uses it, or this user may not read it.
    """
    disk = ReadOnlyDisk()
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
        yield disk


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


def _names(disk: ReadOnlyDisk, data_dir: str) -> list[str]:
    try:
        return disk.listdir(data_dir)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise UsageError(
            f"data directory {data_dir} cannot be read: {error.strerror}", "name the node.data_dir of a node"
        ) from error
