"""A node's disk whose fsyncs take long while a test says so.

`install` puts the delay into the process of a node, before each fdatasync of a journal's file; the other
functions belong to the test, which talks to it through two files in the node's working folder.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from quorum.platform.os_runtime import OsFile

_ASKED, _SLOWED = "slow-fsync", "slowed-fsyncs"


def slow_down(folder: Path, seconds: float) -> None:
    """Let every fsync of the journal in this node's working folder take so much longer."""
    aside = folder / f"{_ASKED}.aside"
    aside.write_text(str(seconds))
    aside.rename(folder / _ASKED)


def speed_up(folder: Path) -> None:
    """Let fsyncs take what they take."""
    (folder / _ASKED).unlink(missing_ok=True)


def slowed(folder: Path) -> int:
    """How many fsyncs of this node were slowed down and returned, since it was first started."""
    path = folder / _SLOWED
    return path.stat().st_size if path.exists() else 0


def install() -> None:
    """Slow this process down when it is asked for."""
    fdatasync = OsFile.fdatasync
    counter = os.open(_SLOWED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def slow(self: OsFile) -> None:
        if Path(self.path).parent.name != "journal":
            fdatasync(self)
            return
        try:
            seconds = float(Path(_ASKED).read_text())
        except FileNotFoundError:
            fdatasync(self)
            return
        # The fault itself: nothing ever sets it.
        threading.Event().wait(seconds)
        fdatasync(self)
        os.write(counter, b".")

    OsFile.fdatasync = slow  # type: ignore[method-assign]
