"""Who uses a data directory: the lock of `quorate up`, one supervisor at a time, and that of each node, read.

Decides whether the process that wrote itself down is still the one that runs: a process id alone may have
been given to another one since. Soft state only: the kernel frees the lock when its holder ends.
Source: flock(2).
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from quorum.errors import DataDirError


class Lock:
    """The lock of a data directory. The kernel frees it when its process ends, however that happens."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "up.lock"
        self._file: int | None = None

    def acquire(self, **facts: object) -> None:
        """Take the lock and write down who holds it.

        Args:
            facts: JSON values to keep beside the process id and its start time.

        Raises:
            DataDirError: another supervisor runs on this directory.
        """
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise self._in_use() from None
        self._file = file
        os.ftruncate(file, 0)
        mine = {"pid": os.getpid(), "started": process_start(os.getpid()), **facts}
        try:
            os.pwrite(file, (json.dumps(mine, sort_keys=True) + "\n").encode(), 0)
        except OSError as error:
            error.filename = str(self._path)
            raise

    def refuse_if_held(self) -> None:
        """See that nobody holds the lock, without taking it.

        Raises:
            DataDirError: another supervisor runs on this directory.
        """
        if self.held():
            raise self._in_use()

    def _in_use(self) -> DataDirError:
        holder = self.holder()
        who = f"process {holder['pid']}" if holder else "another process"
        return DataDirError(
            f"{self._path.parent} is in use by `quorate up` ({who})",
            f"stop that one (quorate down --data-dir {self._path.parent}), or name another --data-dir",
        )

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def held(self) -> bool:
        """Tell whether some process holds the lock."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def holder(self) -> dict[str, Any] | None:
        """Return what the holder wrote down, or None if there is nothing that can be trusted.

        The process must still be the one that wrote it: a process id alone may have been given to another one
        since.
        """
        try:
            facts = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return None
        if not isinstance(facts, dict) or type(facts.get("pid")) is not int:
            return None
        started = process_start(facts["pid"])
        return facts if started is not None and started == facts.get("started") else None


def user_of(node_data_dir: Path) -> str | None:
    """Return the process id of the node that uses a data directory, "?" if it cannot be told, None for none.

    A node is told by its lock. The look takes a shared one for an instant.
    """
    try:
        # without waiting: somebody may have put a pipe there
        file = os.open(node_data_dir / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(file, 32, 0).decode("ascii", "replace").strip() or "?"
    finally:
        os.close(file)
    return None


def process_start(pid: int) -> str | None:
    """Return when a process was started, as a text to compare, or None if no such process runs.

    One that has ended and only waits for its parent to learn its exit code (a zombie) does not run.
    """
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # the second field is the program's name in brackets, which may hold anything; behind it comes the
        # third, the state; the start time is the 22nd
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    command = ["/bin/ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
