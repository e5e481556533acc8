"""Runs `quorate serve` as it is shipped, on a disk that has no room while a test says so.

    python -m tests.support.full_node serve …

While a file `full` lies in the working folder, no file of the node's data grows or is created; what is there
may be written over, as on most real disks; on one that copies before it writes, that needs room as well.
Everything else is shipped code.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from quorum.cli.main import main as quorate
from quorum.platform.os_runtime import OsDisk, OsFile
from quorum.platform.runtime import Buffer

_FULL = "full"
_COPIES = "copies"


def fill(folder: Path, *, copies: bool = False) -> None:
    """Let the disk of the node of this working folder have no room.

    Args:
        folder: the working folder.
        copies: what is there cannot be written over, either.
    """
    aside = folder / f"{_FULL}.aside"
    aside.write_text(_COPIES if copies else "")
    aside.rename(folder / _FULL)


def make_room(folder: Path) -> None:
    """Let it have room again."""
    (folder / _FULL).unlink(missing_ok=True)


def is_full() -> bool:
    """Whether the disk of this process has no room."""
    return Path(_FULL).exists()


def _no_room() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def install() -> None:
    """Let this process find no room when it is asked for."""
    pwrite, create = OsFile.pwrite, OsDisk.create

    def bounded_pwrite(self: OsFile, buffers: Sequence[Buffer], offset: int) -> None:
        try:
            copies = Path(_FULL).read_text() == _COPIES
        except FileNotFoundError:
            pwrite(self, buffers, offset)
            return
        if copies or offset + sum(map(len, buffers)) > self.size():
            raise _no_room()
        pwrite(self, buffers, offset)

    def bounded_create(self: OsDisk, path: str) -> OsFile:
        if is_full():
            raise _no_room()
        return create(self, path)

    OsFile.pwrite = bounded_pwrite  # type: ignore[method-assign]
    OsDisk.create = bounded_create  # type: ignore[method-assign]


def main() -> int:
    """Run the node of the command line."""
    install()
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
