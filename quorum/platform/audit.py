"""The audit log of one process: who changed what, and who was refused; one JSON object a line, in a file.

Decides how lines reach the disk: a caller queues a line and goes on, a thread writes it a moment later. The
queue is bounded. A line that finds it full, or that the disk does not take, is lost: the number of lost lines
is a line of its own as soon as the disk takes one again, a warning, and a metric; nobody waits. Nothing is
synced: a crash of the machine may take the last lines. Files are rotated by size. What is worth a line is
decided elsewhere; no value, password or token may come here. Soft state only.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections import deque
from contextlib import suppress
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Final

from quorum.errors import ConfigError, remedy_for_os

log = logging.getLogger("quorate.audit")

#: it was carried out
ALLOWED: Final = "allowed"
#: the principal has no right to it, or its proof is wrong
DENIED: Final = "denied"
#: it was not carried out, for another reason
FAILED: Final = "failed"
#: it was handed to the log of the quorum, and nobody here knows what became of it
UNKNOWN: Final = "unknown"

#: lines that wait for the thread
LINES_MAX: Final = 8192
#: of each text of a line, as the longest path; what is longer is cut, and says so
TEXT_CHARS_MAX: Final = 8192
#: for so long lines gather before they are written together
GATHER_S: Final = 0.05
#: after a failure the disk is tried again so much later
RETRY_S: Final = 1.0
#: between two warnings
WARN_S: Final = 60.0
#: how long a stop waits for the thread
STOP_S: Final = 5.0
_FIELD: Final = "audit.file"
_MODE: Final = 0o600


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}… ({len(text)} characters)"


def _line(
    stamp: str,
    principal: str,
    address: str,
    operation: str,
    resource: str,
    outcome: str,
    request: int | None = None,
    session: str | None = None,
) -> bytes:
    told = (
        f'{{"time": "{stamp}", "principal": {_quoted(principal)}, "address": {_quoted(address)}, '
        f'"operation": {_quoted(operation)}, "resource": {_quoted(resource)}, "outcome": "{outcome}", '
        f'"request": {"null" if request is None else request}, '
        f'"session": {"null" if session is None else _quoted(session)}}}\n'
    )
    return told.encode("utf-8", "backslashreplace")


class AuditLog:
    """The audit log of one process."""

    def __init__(self, path: Path, *, file_bytes_max: int, files_max: int) -> None:
        """Take lines; nothing is opened before `start`.

        Args:
            path: of the file. file_bytes_max: above it a new one is begun.
            files_max: older ones that are kept, as PATH.1 (the newest) to PATH.files_max.
        """
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        #: whole lines, at most LINES_MAX; made by callers, for a thread that works for long holds them up
        self._queue: deque[bytes] = deque()
        #: (second since 1970, its text)
        self._second = (0, "")
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        #: -1: none is open
        self._file = -1
        self._size = 0
        self.written_count = 0
        #: lines that found the queue full; counted by callers alone
        self._dropped_count = 0
        #: lines that the disk did not take; counted by the thread alone
        self._failed_count = 0
        #: lost lines that a line of the log tells
        self._told_count = 0
        self._warned_s = float("-inf")

    @property
    def lost_count(self) -> int:
        """Lines that are not in the log."""
        return self._dropped_count + self._failed_count

    def write(
        self,
        principal: str,
        address: str,
        operation: str,
        resource: str,
        outcome: str,
        *,
        request: int | None = None,
        session: str | None = None,
    ) -> None:
        """Queue a line; never waits.

        Args:
            principal: who asked, "sasl:eve,ip:127.0.0.1" or "User:dave"; "": nobody is known.
            address: that it came from; "": from this process.
            operation: ZooKeeper's audit word, the name of Kafka's request or right, the method of HTTP.
            resource: "/a", "Topic:LITERAL:a". outcome: ALLOWED, DENIED, FAILED or UNKNOWN.
            request: xid, correlation id, or the number of a request of HTTP; None: it was none.
            session: of ZooKeeper, "0x1f"; None: there is none.
        """
        if len(self._queue) >= LINES_MAX:
            self._dropped_count += 1
            return
        line = _line(
            *(self._stamp(), _cut(principal), address, operation, _cut(resource), outcome),
            *(request, session),
        )
        self._queue.append(line)
        if not self._wake.is_set():
            self._wake.set()

    def start(self) -> None:
        """Open the file, and write from now on.

        Raises:
            ConfigError: it cannot be opened.
        """
        try:
            self._open()
        except OSError as error:
            problem = f"cannot be opened: {error.strerror}"
            raise ConfigError(_FIELD, str(self._path), problem, remedy_for_os(error)) from error
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            self._close()
            raise ConfigError(_FIELD, str(self._path), "is no regular file", "name another one")
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued and close the file; blocks, at most STOP_S."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                log.warning("the disk of %s hangs: %d lines are lost", self._path, len(self._queue))
            self._thread = None

    def _stamp(self) -> str:
        now_s = time.time()
        second, text = self._second
        if second != int(now_s):
            second = int(now_s)
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = second, text
        return f"{text}.{int((now_s - second) * 1000):03}Z"

    # -- the thread --

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait()
            is_last = self._ending.wait(GATHER_S)
            self._wake.clear()
            while self._queue or self.lost_count > self._told_count:
                if self._write_some():
                    continue
                if is_last:
                    self._warn_of(len(self._queue), "the process stops")
                    break
                is_last = self._ending.wait(RETRY_S)
        self._close()

    def _write_some(self) -> bool:
        """Write queued lines, the lost ones first; returns whether the disk took them."""
        lost_count, lines, size = self.lost_count, [], 0
        if lost_count > self._told_count:
            told = f"{lost_count - self._told_count} lines are lost"
            lines.append(_line(self._stamp(), "", "", "auditLog", told, FAILED))
            size = len(lines[0])
        taken = 0
        while self._queue:
            line = self._queue[0]
            if lines and self._size + size + len(line) > self._file_bytes_max:
                break
            self._queue.popleft()
            lines.append(line)
            size += len(line)
            taken += 1
        try:
            self._append(b"".join(lines))
        except OSError as error:
            self._failed_count += taken
            self._warn_of(self.lost_count, error.strerror or str(error))
            return False
        self._told_count = lost_count
        self.written_count += len(lines)
        return True

    def _append(self, data: bytes) -> None:
        if self._file < 0:
            self._open()
        if self._size and self._size + len(data) > self._file_bytes_max:
            self._rotate()
        before = self._size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            # What is there of a line would spoil the next one.
            with suppress(OSError):
                os.ftruncate(self._file, before)
            self._close()
            raise
        self._size = before + len(data)

    def _rotate(self) -> None:
        self._close()
        for number in range(self._files_max - 1, -1, -1):
            source = Path(f"{self._path}.{number}") if number else self._path
            with suppress(FileNotFoundError):
                source.replace(f"{self._path}.{number + 1}")
        self._open()

    def _open(self) -> None:
        # Not blocked by what is no file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._file = os.open(self._path, flags, _MODE)
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            # Never that of a device, as /dev/null.
            os.fchmod(self._file, _MODE)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            # A crash cut the last line.
            self._size += os.write(self._file, b"\n")

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _warn_of(self, lost_count: int, reason: str) -> None:
        if lost_count and time.monotonic() - self._warned_s >= WARN_S:
            self._warned_s = time.monotonic()
            log.warning("%d lines of the audit log %s are lost: %s", lost_count, self._path, reason)
