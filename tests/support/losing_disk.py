"""A node's disk that loses at a power cut what no fsync covered, in the files of its journal.

`install` has the process of a node write down, before each write to a segment, what stood there; an fsync
that returned makes that void. `cut_power` belongs to the test: once the process is dead it puts back what
stood there, as after a power cut that came before the kernel wrote anything. SIGKILL alone leaves the page
cache.

A journal writes one group at a time, each after the fsync of the one before, so one list is enough.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quorum.platform.os_runtime import OsFile
from quorum.platform.runtime import Buffer

_UNSYNCED: Final = "unsynced"
#: offset, size of the file, length of the path, length of what stood there
_BEFORE: Final = struct.Struct("<QQII")


def has_unsynced(folder: Path) -> bool:
    """Whether a node of this working folder has written what no fsync covered yet."""
    path = folder / _UNSYNCED
    return path.exists() and path.stat().st_size > 0


def cut_power(folder: Path) -> int:
    """Take back what the dead node of this working folder wrote and did not sync; returns how many writes."""
    noted = (folder / _UNSYNCED).read_bytes()
    writes: list[tuple[Path, int, int, bytes]] = []
    at = 0
    while at < len(noted):
        offset, size, path_length, length = _BEFORE.unpack_from(noted, at)
        at += _BEFORE.size
        path = folder / noted[at : at + path_length].decode()
        at += path_length
        writes.append((path, offset, size, noted[at : at + length]))
        at += length
    for path, offset, size, stood in reversed(writes):
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), stood, offset)
            os.ftruncate(file.fileno(), size)
    (folder / _UNSYNCED).unlink()
    return len(writes)


def install() -> None:
    """Write down what this process may lose."""
    pwrite, fdatasync = OsFile.pwrite, OsFile.fdatasync
    noted = os.open(_UNSYNCED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)

    def noting(self: OsFile, buffers: Sequence[Buffer], offset: int) -> None:
        if self.path.endswith(".segment"):
            size, path = self.size(), self.path.encode()
            stood = self.pread(sum(map(len, buffers)), offset) if offset < size else b""
            os.write(noted, _BEFORE.pack(offset, size, len(path), len(stood)) + path + stood)
        pwrite(self, buffers, offset)

    def voiding(self: OsFile) -> None:
        fdatasync(self)
        if self.path.endswith(".segment"):
            os.ftruncate(noted, 0)

    OsFile.pwrite = noting  # type: ignore[method-assign]
    OsFile.fdatasync = voiding  # type: ignore[method-assign]
