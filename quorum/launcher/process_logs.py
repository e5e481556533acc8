"""The logs of processes that were started with their output in a file: how long they get, what they tell.

The writers hold their file open for appending and know nothing of this. Decides the bound of a log, and which
of its lines are the story of a process that ended. No state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 16 * 1024 * 1024
STORY_BYTES_MAX = 16 * 1024
STORY_LINES_MAX = 6


def bound_log(path: os.PathLike[str], bytes_max: int = LOG_BYTES_MAX) -> None:
    """Bound a log that a process holds open for appending: copy it aside and empty it.

    What is written between the copy and the cut is lost, a few lines at most; the writer needs to know
    nothing. Where the older part cannot be kept, for a full disk say, it is lost as well.

    Args:
        path: the log; its older part stands beside it with ".1" added.
        bytes_max: the size above which that happens.
    """
    older = f"{os.fspath(path)}.1"
    try:
        if os.stat(path).st_size <= bytes_max:  # noqa: PTH116  # path is any path-like object
            return
        try:
            shutil.copyfile(path, older)
        except FileNotFoundError:
            return
        except OSError:
            # The nodes need the room more than half a copy does.
            with contextlib.suppress(OSError):
                os.unlink(older)  # noqa: PTH108  # as above
        os.truncate(path, 0)
    except FileNotFoundError:
        return


def story_since(log_file: Path, offset: int) -> str:
    """Return the errors that a process wrote since an offset in its log, with remedies, or its last line.

    Args:
        log_file: empty or missing if somebody moved it away.
        offset: the size that it had when the process was started.
    """
    try:
        with log_file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset if offset <= size else 0, size - STORY_BYTES_MAX))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    errors = [line for line in lines if line.startswith(("error:", "remedy:"))]
    return "\n".join(errors[:STORY_LINES_MAX] or lines[-1:])
