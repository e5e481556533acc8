"""Which disk call a node process is in, told through a few shared bytes that outlive it.

`WatchedDisk` is the shipped OsDisk with a mark before and after each write, fdatasync, fsync of a folder,
rename and unlink. The marks stand in a file that both sides map: the node writes them (`DiskReporter`), the
test that kills it reads them, also after the process is dead (`DiskWatch`). A mark says "begun, and the node
does not know yet that it returned", which is what matters to a node that dies there. (Of 1,400 marked fsyncs
that were looked at in /proc, 3 % had returned and waited for the interpreter's lock.)

Nothing here changes what is called or in which order. Source: quorum/platform/runtime.py (Disk, File).
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from quorum.platform.os_runtime import OsDisk, OsFile
from quorum.platform.runtime import Buffer
from quorum.raft.journal.note import NOTE_NAME

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Call(IntEnum):
    """What a thread is in."""

    NONE = 0
    PWRITE = 1
    FDATASYNC = 2
    FSYNC_DIR = 3
    RENAME = 4
    UNLINK = 5


class Phase(IntEnum):
    """What the call, or the node, is about."""

    WRITES = 0  #: groups of the journal
    SEGMENT = 1  #: a new segment of the journal
    SNAPSHOT = 2  #: a snapshot that the node takes
    INSTALL = 3  #: one that it receives
    COMPACTION = 4  #: segments and snapshots that go
    START = 5  #: recovery, and the identity


#: Calls after which something is durable or gone.
SYNCING = (Call.FDATASYNC, Call.FSYNC_DIR, Call.RENAME, Call.UNLINK)

_THREADS_MAX = 16
_HEADER_BYTES = 64
_SLOT = struct.Struct("<BBBx")  #: call, phase, whether the slot belongs to a thread
_COUNTER = struct.Struct("<I")
_COUNTERS = len(Call) * len(Phase)
_SLOT_BYTES = _SLOT.size + _COUNTERS * _COUNTER.size
_FILE_BYTES = _HEADER_BYTES + _THREADS_MAX * _SLOT_BYTES
_SLOTS = range(_HEADER_BYTES, _FILE_BYTES, _SLOT_BYTES)


class Mark(NamedTuple):
    """A disk call: one in progress, or one to wait for."""

    call: Call
    phase: Phase


class DiskWatch:
    """The reading side: belongs to the process that starts and kills the node."""

    def __init__(self, path: Path) -> None:
        """Make the file that the node reports to."""
        path.write_bytes(bytes(_FILE_BYTES))
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), _FILE_BYTES)

    def clear(self) -> None:
        """Forget the life before; only while no process reports here."""
        self._bytes[:] = bytes(_FILE_BYTES)

    def marks(self) -> list[Mark]:
        """Every call in progress: what is begun and not known to have returned."""
        data = self._bytes
        return [Mark(Call(data[slot]), Phase(data[slot + 1])) for slot in _SLOTS if data[slot]]

    def sees(self, mark: Mark) -> bool:
        """Whether such a call is in progress; quick, because a rename takes a few microseconds."""
        data = self._bytes
        for offset in _SLOTS:
            if data[offset] == mark.call and data[offset + 1] == mark.phase:
                return True
            if not data[offset + 2]:
                return False
        return False

    def active(self, phase: Phase) -> bool:
        """Whether the node is at a start, snapshot, install or compaction, in a disk call or between two."""
        return bool(self._bytes[phase])

    def begun(self, call: Call, phase: Phase) -> int:
        """How many such calls this life of the node has begun."""
        place = _SLOT.size + (call * len(Phase) + phase) * _COUNTER.size
        return sum(int(_COUNTER.unpack_from(self._bytes, offset + place)[0]) for offset in _SLOTS)


class DiskReporter:
    """The writing side: belongs to the node's process."""

    def __init__(self, path: Path) -> None:
        """Map the file that a DiskWatch made."""
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), _FILE_BYTES)
        self._lock = threading.Lock()
        self._threads = 0
        self._local = threading.local()

    def begin(self, call: Call, path: str) -> None:
        """Mark this thread's call; call `end` when it returned or raised."""
        local = self._local
        if not hasattr(local, "offset"):
            self._enter_thread()
        offset: int = local.offset
        phase = self._phase_of(call, path, local.phase)
        local.phase = phase
        counter = offset + _SLOT.size + (call * len(Phase) + phase) * _COUNTER.size
        (count,) = _COUNTER.unpack_from(self._bytes, counter)
        _COUNTER.pack_into(self._bytes, counter, count + 1)
        self._bytes[offset + 1] = phase
        self._bytes[offset] = call

    def end(self) -> None:
        """The call of this thread returned."""
        self._bytes[self._local.offset] = Call.NONE

    @property
    def last_phase(self) -> Phase:
        """What this thread's last call was about."""
        phase: Phase = self._local.phase
        return phase

    def set_active(self, phase: Phase, active: bool) -> None:
        """Mark what the node is at as a whole."""
        self._bytes[phase] = active

    def during(self, phase: Phase, call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """Return `call` with the phase marked while it runs."""

        def marked(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
            self.set_active(phase, True)
            try:
                return call(*arguments, **named)
            finally:
                self.set_active(phase, False)

        return marked

    def _enter_thread(self) -> None:
        with self._lock:
            number = self._threads
            self._threads += 1
        assert number < _THREADS_MAX, "more threads use the disk than the watch has room for"
        self._local.offset = _SLOTS[number]
        self._local.phase = Phase.WRITES
        _SLOT.pack_into(self._bytes, self._local.offset, Call.NONE, Phase.WRITES, True)

    def _phase_of(self, call: Call, path: str, before: Phase) -> Phase:
        if self._bytes[Phase.START]:
            return Phase.START
        if call is Call.FSYNC_DIR:
            return before  # it makes durable what the same thread did last
        if path.endswith(".received.partial"):
            return Phase.INSTALL
        if path.endswith(".taken.partial"):
            return Phase.SNAPSHOT
        if path.endswith(".segment.partial"):
            return Phase.SEGMENT
        if call is Call.UNLINK:
            return Phase.COMPACTION
        return Phase.WRITES if path.endswith((".segment", f"/{NOTE_NAME}")) else Phase.START


class WatchedFile(OsFile):
    """The shipped file, with marks."""

    def __init__(self, file: OsFile, reporter: DiskReporter) -> None:
        """Take over an open file."""
        super().__init__(file.path, file._descriptor)
        self._reporter = reporter

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write, as shipped."""
        self._reporter.begin(Call.PWRITE, self.path)
        try:
            super().pwrite(buffers, offset)
        finally:
            self._reporter.end()

    def fdatasync(self) -> None:
        """Sync, as shipped."""
        self._reporter.begin(Call.FDATASYNC, self.path)
        try:
            super().fdatasync()
        finally:
            self._reporter.end()


class WatchedDisk(OsDisk):
    """The shipped disk, with marks."""

    def __init__(self, reporter: DiskReporter) -> None:
        """Report to `reporter`."""
        super().__init__()
        self._reporter = reporter

    def create(self, path: str) -> OsFile:
        """Create, as shipped; a partial snapshot's creation begins a snapshot or an install."""
        file = WatchedFile(super().create(path), self._reporter)
        self._set_snapshot_active(path, True)
        return file

    def open(self, path: str, writable: bool = False) -> OsFile:
        """Open, as shipped."""
        return WatchedFile(super().open(path, writable), self._reporter)

    def rename(self, source: str, target: str) -> None:
        """Rename, as shipped."""
        self._reporter.begin(Call.RENAME, source)
        try:
            super().rename(source, target)
        finally:
            self._reporter.end()

    def unlink(self, path: str) -> None:
        """Unlink, as shipped."""
        self._reporter.begin(Call.UNLINK, path)
        try:
            super().unlink(path)
        finally:
            self._reporter.end()
        self._set_snapshot_active(path, False)

    def fsync_dir(self, path: str) -> None:
        """Sync a folder, as shipped; that of the snapshots ends the snapshot that is taken."""
        self._reporter.begin(Call.FSYNC_DIR, path)
        try:
            super().fsync_dir(path)
        finally:
            self._reporter.end()
        if self._reporter.last_phase is Phase.SNAPSHOT:
            self._reporter.set_active(Phase.SNAPSHOT, False)

    def _set_snapshot_active(self, path: str, active: bool) -> None:
        if path.endswith(".received.partial"):
            self._reporter.set_active(Phase.INSTALL, active)
        elif path.endswith(".taken.partial"):
            self._reporter.set_active(Phase.SNAPSHOT, active)
