"""Runs `quorate serve` as it is shipped, on a disk that stalls when a test says so.

    python -m tests.support.stalling_node serve …

Once `stall.json` lies in the working folder ({"where": "loop" or "any", "seconds": …}), the next fsync of a
journal's group that the event loop (or any thread) makes takes so much longer; then `stalled.json` says in
which thread it was. The disk counts as quick as long as a write takes less than QUICK_MS, so that a busy
machine does not decide what is written in the loop. Everything else is shipped code.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from quorum.cli.main import main as quorate
from quorum.platform.os_runtime import OsFile
from quorum.raft.journal import writer as journal_writer
from tests.support.nodes import eventually

#: Longer than a write takes on a busy machine, shorter than any stall of a test.
QUICK_MS = 400.0
LOOP, ANY, LANE = "loop", "any", "lane"
_ASKED, _DONE = "stall.json", "stalled.json"
_DEADLINE_S = 30.0


def ask_stall(folder: Path, where: str, seconds: float) -> None:
    """Have the node of a folder stall once.

    Args:
        folder: its working folder.
        where: LOOP waits for an fsync in the loop, ANY takes the next one.
        seconds: how long.
    """
    (folder / _DONE).unlink(missing_ok=True)
    aside = folder / "stall.aside"
    aside.write_text(json.dumps({"where": where, "seconds": seconds}))
    aside.rename(folder / _ASKED)


def stalled_in(folder: Path) -> str:
    """Wait until a stall that was asked for is over; returns LOOP or LANE."""
    eventually((folder / _DONE).exists, _DEADLINE_S, f"the disk of {folder.name} stalled")
    return str(json.loads((folder / _DONE).read_text())["thread"])


def _stall_if_asked() -> None:
    try:
        asked = json.loads(Path(_ASKED).read_text())
    except FileNotFoundError:
        return
    thread = LOOP if threading.current_thread() is threading.main_thread() else LANE
    if asked["where"] not in (thread, ANY):
        return
    Path(_ASKED).unlink()
    # The fault itself: nothing ever sets it.
    threading.Event().wait(asked["seconds"])
    aside = Path("stalled.aside")
    aside.write_text(json.dumps({"thread": thread}))
    aside.rename(_DONE)


def main() -> int:
    """Run the node of the command line."""
    for name in ("INLINE_WRITE_MS_MAX", "INLINE_WRITE_MS_WORST", "STALL_MS"):
        setattr(journal_writer, name, QUICK_MS)
    fdatasync = OsFile.fdatasync

    def stalling(self: OsFile) -> None:
        if Path(self.path).parent.name == "journal":
            _stall_if_asked()
        fdatasync(self)

    OsFile.fdatasync = stalling  # type: ignore[method-assign]
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
