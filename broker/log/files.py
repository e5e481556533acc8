"""Files of a log directory: open descriptors in a bounded pool, whole files replaced atomically.

Every error of the operating system leaves here as LogStorageError. A file that was replaced is durable on
return: written aside, fsynced, renamed. The pool is used by the loop's thread alone, and reads what is in the
page cache; `read_file`, `read_range` and the functions that write work in any thread, and wait for the disk.
Source: ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Final, cast

from broker.log.batches import Buffer
from broker.log.errors import LogStorageError
from broker.log.sparse_index import SparseIndex

OPEN_FILES_MAX: Final = 512
INDEX_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
INDEX_SUFFIXES: Final = (".index", ".timeindex")
#: buffers that the kernel takes in one call (IOV_MAX of Linux)
BUFFERS_MAX: Final = 1024
_MODE: Final = 0o600
#: what a file is called while it is written, and what it is called before it is removed
ASIDE: Final = ".tmp"
DELETED: Final = ".deleted"
#: how the name of a folder ends that holds what was set aside
STRAY: Final = "-stray"
_NAME_BYTES_MAX: Final = 255


#: of a file system that cannot tell what is in the page cache; where Python has no such read, none can
_NO_WAIT: Final = getattr(os, "RWF_NOWAIT", None)
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.EINVAL)
#: what is written at once before an fsync; a slow disk takes a fraction of a second
PART_BYTES: Final = 4 * 1024 * 1024
#: SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER
_WRITE_AND_WAIT: Final = 7


def _sync_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's sync_file_range(2), which Python has not; None on other systems."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        found.restype = ctypes.c_int
    return cast("Callable[[int, int, int, int], int] | None", found)


_SYNC_RANGE: Final = _sync_range()


class NotCachedError(Exception):
    """What was asked for is not in memory: a thread must read it from the disk."""


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn the operating system's errors into LogStorageError."""
    try:
        yield
    except OSError as error:
        raise LogStorageError.of(error, doing) from error


class FilePool:
    """Descriptors of the files that were used last, and the indexes of closed segments; both bounded."""

    def __init__(self, open_max: int = OPEN_FILES_MAX) -> None:
        self._open_max = open_max
        #: {path: descriptor}, the least recently used first
        self._open: OrderedDict[str, int] = OrderedDict()
        #: {path: index}, the least recently used first
        self._indexes: OrderedDict[str, SparseIndex] = OrderedDict()
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, path: str) -> int:
        """Return a descriptor of a file for reading and writing; valid until the next call."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        while len(self._open) >= self._open_max:
            os.close(self._open.popitem(last=False)[1])
        with disk_errors(path):
            opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._open[path] = opened
        return opened

    def forget(self, path: str) -> None:
        """Close a file, if it is open."""
        found = self._open.pop(path, None)
        if found is not None:
            os.close(found)

    def read_cached(self, path: str, size: int, position: int) -> bytes:
        """Read exactly `size` bytes of a file that is open here, without waiting for the disk."""
        descriptor = self._open.get(path)
        if descriptor is None:
            raise NotCachedError(path)
        self._open.move_to_end(path)
        return _read_cached(descriptor, size, position, path)

    def index(self, path: str) -> SparseIndex:
        """Return the index in a file that `warm` has read."""
        found = self._indexes.get(path)
        if found is None:
            raise NotCachedError(path)
        self._indexes.move_to_end(path)
        return found

    def warm(self, stem: str, indexes: Mapping[str, Struct]) -> None:
        """Open a segment that a thread has just read, and its indexes.

        Args:
            stem: its path, without a suffix.
            indexes: {suffix: what an entry looks like} of those that are not in memory.
        """
        self.descriptor(stem + ".log")
        for suffix, entry in indexes.items():
            path = stem + suffix
            if path not in self._indexes:
                found = self._indexes[path] = SparseIndex(entry, read_file(path) or b"")
                self._index_bytes += found.size_bytes
        while self._index_bytes > INDEX_CACHE_BYTES_MAX and len(self._indexes) > len(indexes):
            self._index_bytes -= self._indexes.popitem(last=False)[1].size_bytes

    def forget_indexes(self, stem: str) -> None:
        """Drop what is held of a segment's index files: they change, or go."""
        for suffix in INDEX_SUFFIXES:
            found = self._indexes.pop(stem + suffix, None)
            if found is not None:
                self._index_bytes -= found.size_bytes

    def close(self) -> None:
        """Close all files."""
        while self._open:
            os.close(self._open.popitem()[1])


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """Give a descriptor that lasts as long as the block."""
    with disk_errors(path):
        descriptor = os.open(path, flags | os.O_CLOEXEC, _MODE)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def create_file(path: str) -> None:
    """Make an empty file; it must not be there."""
    with _opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL):
        pass


def write_at(descriptor: int, buffers: Sequence[Buffer], position: int, path: str) -> None:
    """Write all buffers one behind the other; raises LogStorageError if any byte is refused."""
    with disk_errors(path):
        for first in range(0, len(buffers), BUFFERS_MAX):
            some = buffers[first : first + BUFFERS_MAX]
            wanted = sum(map(len, some))
            written = os.pwritev(descriptor, some, position)
            if written < wanted:
                rest = memoryview(b"".join(some))
                while written < wanted:
                    # A full disk takes a part first and refuses the rest with an error.
                    written += os.pwrite(descriptor, rest[written:], position + written)
            position += wanted


def _read_cached(descriptor: int, size: int, position: int, path: str) -> bytes:
    found = bytearray(size)
    try:
        if _NO_WAIT is None or os.preadv(descriptor, [found], position, _NO_WAIT) < size:
            raise NotCachedError(path)
    except BlockingIOError:
        raise NotCachedError(path) from None
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            raise NotCachedError(path) from None
        raise LogStorageError.of(error, path) from error
    # Nobody changes it, and a copy would cost as much as the reading.
    return cast("bytes", found)


def read_range(path: str, size: int, position: int) -> bytes:
    """Read exactly `size` bytes of a file."""
    with _opened(path, os.O_RDONLY) as descriptor:
        return read_at(descriptor, size, position, path)


def read_at(descriptor: int, size: int, position: int, path: str) -> bytes:
    """Read exactly `size` bytes."""
    with disk_errors(path):
        found = os.pread(descriptor, size, position)
        while len(found) < size:
            more = os.pread(descriptor, size - len(found), position + len(found))
            if not more:
                raise LogStorageError(
                    f"{path} ends at byte {position + len(found)}; {size} bytes were expected at {position}",
                    "somebody cut this file; start the broker again so that it reads what is left",
                )
            found += more
    return found


def disk_space(path: str) -> tuple[int, int]:
    """Return (total, usable) bytes of the disk that has a path; raises LogStorageError."""
    with disk_errors(path):
        usage = shutil.disk_usage(path)
    return usage.total, usage.free


def replace_file(path: str, content: bytes) -> None:
    """Put a file in place of the old one; durable, and never half of it, on return."""
    aside = path + ASIDE
    with disk_errors(path):
        with _opened(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            write_at(descriptor, [content], 0, aside)
            os.fsync(descriptor)
        Path(aside).replace(path)


def write_back(path: str) -> Iterator[None]:
    """Have a file's bytes written a part at a time; yields after each part.

    An fsync has little left to do then. One of a gigabyte says nothing for as long as a broken disk.
    """
    if _SYNC_RANGE is None:
        return
    with _opened(path, os.O_RDONLY) as descriptor:
        for position in range(0, os.fstat(descriptor).st_size, PART_BYTES):
            if _SYNC_RANGE(descriptor, position, PART_BYTES, _WRITE_AND_WAIT):
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error))
            yield


def name_beside(folder: str, suffix: str) -> str:
    """Return a new name beside a log's folder, which no log's folder can have."""
    path, ending = Path(folder), f".{uuid.uuid4().hex}{suffix}"
    return str(path.with_name(path.name[: _NAME_BYTES_MAX - len(ending)] + ending))


def sync_file(path: str) -> None:
    """Return once the file's content is on the disk."""
    with _opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


#: Return once the names in a folder are on the disk.
sync_folder = sync_file


def read_file(path: str) -> bytes | None:
    """Return a whole file; None if there is none."""
    with disk_errors(path):
        try:
            with FileIO(path) as file:
                return file.readall()
        except FileNotFoundError:
            return None


def names_in(folder: str) -> list[str]:
    """Return the names of what is in a folder, sorted."""
    with disk_errors(folder), os.scandir(folder) as found:
        return sorted(each.name for each in found)


def remove_file(path: str) -> None:
    """Remove a file's name; one that is gone already is fine."""
    with disk_errors(path):
        Path(path).unlink(missing_ok=True)
