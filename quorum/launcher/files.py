"""Files of a local cluster: settings written in one step, logs bounded and read for a story, locks read.

The writers of the logs hold their file open for appending and know nothing of this. Decides the bound of a
log, and which of its lines are the story of a process that ended. No state. Source: flock(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from pathlib import Path

from quorum.errors import printable
from quorum.platform.os_runtime import OsDisk

LOG_BYTES_MAX = 16 * 1024 * 1024
STORY_BYTES_MAX = 16 * 1024
STORY_LINES_MAX = 6


def write_file(path: Path, content: str, mode: int = 0o600) -> None:
    """Create or replace a file in one step, durably; one that exists keeps its mode, a link leads on."""
    target = path.resolve()
    aside = target.with_name(target.name + ".new")
    try:
        aside.unlink(missing_ok=True)
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        # a stream writes all of it, or raises; a bare write may take a part
        with open(file, "wb") as stream:  # noqa: PTH123  # it is a descriptor
            if target.exists():
                os.fchmod(file, stat.S_IMODE(target.stat().st_mode))
            stream.write(content.encode())
            stream.flush()
            os.fsync(file)
        aside.rename(target)
        OsDisk().fsync_dir(str(target.parent))
    except OSError as error:
        # the kernel names no file where it was given a descriptor
        error.filename = str(path)
        raise


def bound_log(log: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Bound a log that a process holds open for appending: copy it aside (….1) and empty it.

    What is written between the copy and the cut is lost, a few lines at most. Where the older part cannot be
    kept, for a full disk say, it is lost as well: the processes need the room more than half a copy does.
    """
    older = log.with_name(f"{log.name}.1")
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size <= bytes_max:
            return
        try:
            shutil.copyfile(log, older)
        except OSError:
            older.unlink(missing_ok=True)
        os.truncate(log, 0)


def story_since(log: Path, offset: int) -> str:
    """Return the errors that a process wrote since an offset in its log, with remedies, or its last line.

    Args:
        log: empty or missing if somebody moved it away.
        offset: the size that it had when the process was started.
    """
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset if offset <= size else 0, size - STORY_BYTES_MAX))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return ""
    lines = [told for line in lines for told in _told(line)]
    errors = [line for line in lines if line.startswith(("error:", "remedy:"))]
    return "\n".join(errors[:STORY_LINES_MAX] or lines[-1:])


def _told(line: str) -> list[str]:
    """Return what a line of a log says to people; a log in JSON has an error and its remedy in one."""
    if not line.startswith("{"):
        return [line]
    try:
        event = json.loads(line)
    except ValueError:
        return [line]
    message = printable(" ".join(str(event.get("message")).splitlines()))
    if remedy := event.get("remedy"):
        return [f"error: {message}", f"remedy: {printable(str(remedy))}"]
    return [message]


def user_of(data_dir: Path) -> str | None:
    """Return the id of the process that uses a data directory, "?" if it is not known, None for none.

    It holds the file `lock` there, which says its id; the kernel frees a lock when its holder ends. The look
    takes a shared one for an instant.
    """
    try:
        # without waiting: somebody may have put a pipe there
        file = os.open(data_dir / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(file, 32, 0).decode("ascii", "replace").strip() or "?"
    finally:
        os.close(file)
    return None
