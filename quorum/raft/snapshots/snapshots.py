"""The snapshot files of one node.

Decides which snapshots there are, which are kept and how a file becomes one: it is written aside, fsynced,
read back through its CRCs, renamed, and its folder fsynced, in this order; so a file that has a snapshot's
name was whole once. Two are kept, and one that is being sent. For a broken newest one the one before is
taken, and it is set aside once the node starts so; that broken snapshots never mean an empty state is decided
here, too. What is in a snapshot is not: chunks are opaque.

Hard state: the files. Soft state: what each counts for, and pins. The table may be changed by the loop and by
the snapshot lane.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from enum import Enum, auto
from typing import NamedTuple, TypeVar

from quorum.errors import DataDirError, QuorateError, refused_by_disk, remedy_for_os
from quorum.platform.runtime import Disk, File
from quorum.raft.snapshots.format import REMEDY, SnapshotDamagedError, SnapshotHeader, SnapshotReader

__all__ = [
    "PartialSnapshot",
    "SnapshotDamagedError",
    "SnapshotFile",
    "SnapshotHeader",
    "SnapshotReader",
    "SnapshotStore",
    "SnapshotTransferError",
]

Loaded = TypeVar("Loaded")

#: Snapshots that stay besides pinned ones.
KEPT = 2
#: Dirty bytes after which a file that is being written is synced, so that no fsync of the journal waits
#: for all of it.
SYNC_BYTES = 1024 * 1024
#: What is read back in one step while a file is verified: some milliseconds of a processor.
VERIFY_BYTES = 1024 * 1024
_SUFFIX = ".snapshot"
_PARTIAL = ".partial"
_DAMAGED = ".damaged"
_DIGITS = 20


class SnapshotTransferError(QuorateError):
    """A piece of a snapshot that does not continue what was received; the transfer begins again."""

    retriable = True


class SnapshotFile(NamedTuple):
    """A finished snapshot.

    Attributes:
        log_index: the last entry that it covers.
        term: of that entry.
        path: its file.
        size_bytes: of the file.
    """

    log_index: int
    term: int
    path: str
    size_bytes: int


class _State(Enum):
    """What a snapshot's file counts for."""

    GOOD = auto()
    #: its content is not what was written, or was not read; it stays until newer ones take its place
    DAMAGED = auto()
    #: found damaged by this start, and set aside once the node starts without it
    REFUSED = auto()
    #: may be there: its name could not be made durable, or not be removed; only the next start counts it
    LEFT = auto()


class _Pin:
    """A snapshot that must stay, held open."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.count = 0


class SnapshotStore:
    """The snapshots in one folder."""

    def __init__(self, disk: Disk, directory: str, log: Callable[[str], None]) -> None:
        """List the folder, make durable what it lists, and remove what was never finished.

        Args:
            disk: where.
            directory: the folder, made if missing.
            log: takes a line about each snapshot that is not sent any more.
        """
        self._disk = disk
        self._directory = directory
        self._log = log
        #: called in the lane before a snapshot that this node took becomes one; blocks, never raises
        self.before_finish: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._pins: dict[int, _Pin] = {}
        #: by path
        self._table: dict[str, tuple[SnapshotFile, _State]] = {}
        #: why those above the one that was loaded could not be, newest first
        self.broken: list[SnapshotDamagedError] = []
        #: the same of the newest one that the disk did not read
        self.unread: SnapshotDamagedError | None = None
        try:
            disk.make_dirs(directory)
            for name in disk.listdir(directory):
                self._enter(name)
            # A process may have ended before the name of its file was durable. From here on the name counts.
            disk.fsync_dir(directory)
        except OSError as error:
            problem = f"{directory} cannot be used: {error.strerror}"
            raise refused_by_disk(problem, remedy_for_os(error), error) from error

    def _enter(self, name: str) -> None:
        path = f"{self._directory}/{name}"
        if name.endswith(_PARTIAL):
            self._disk.unlink(path)
        elif (numbers := _numbers(name)) is not None:
            file = self._disk.open(path)
            self._table[path] = SnapshotFile(*numbers, path, file.size()), _State.GOOD
            file.close()

    def files(self) -> list[SnapshotFile]:
        """Return all snapshots, oldest first."""
        return self._having(_State.GOOD, _State.DAMAGED, _State.REFUSED)

    def _having(self, *states: _State) -> list[SnapshotFile]:
        with self._lock:
            return sorted(file for file, state in self._table.values() if state in states)

    def _mark(self, snapshot: SnapshotFile, state: _State) -> None:
        """Say what a snapshot counts for, unless it was let go of."""
        with self._lock:
            if snapshot.path in self._table:
                self._table[snapshot.path] = snapshot, state

    @property
    def newest(self) -> SnapshotFile | None:
        """The good snapshot with the highest log index, None if there is none."""
        return max(self._having(_State.GOOD), default=None)

    def load_newest(
        self, load: Callable[[SnapshotReader], Loaded], refusals: tuple[type[Exception], ...] = ()
    ) -> tuple[SnapshotFile, Loaded] | None:
        """Load the newest good snapshot; broken ones above it do not count any more.

        Whether the log reaches everything acknowledged from there is the caller's to check
        (Recovered.check_reaches), before `set_aside`.

        Args:
            load: builds the state from all chunks; may be called again with an older snapshot.
            refusals: what `load` raises for values that it cannot take; counts as damage.

        Returns:
            The snapshot and what `load` returned; None if there never was a snapshot.
        """
        self.broken, self.unread = [], None
        for snapshot in reversed(self.files()):
            try:
                loaded = self._load(snapshot, load, refusals)
            except SnapshotDamagedError as error:
                self.broken.append(error)
                if isinstance(error.__cause__, OSError):
                    # It may be good: the next start reads it again.
                    self.unread = self.unread or error
                    self._mark(snapshot, _State.DAMAGED)
                else:
                    self._mark(snapshot, _State.REFUSED)
            else:
                return snapshot, loaded
        if self.broken:
            raise self.broken[0]
        return None

    def set_aside(self) -> None:
        """Rename what `load_newest` found damaged to `….damaged`, once the node is known to start without.

        A start that is refused leaves it: nothing may be lost by looking.
        """
        refused = self._having(_State.REFUSED)
        for snapshot in refused:
            self._disk.rename(snapshot.path, snapshot.path + _DAMAGED)
        if refused:
            self._disk.fsync_dir(self._directory)
            with self._lock:
                for snapshot in refused:
                    del self._table[snapshot.path]

    def _load(
        self,
        snapshot: SnapshotFile,
        load: Callable[[SnapshotReader], Loaded],
        refusals: tuple[type[Exception], ...],
    ) -> Loaded:
        file = self._disk.open(snapshot.path)
        try:
            reader = SnapshotReader(file)
            self.check_header(reader, snapshot.log_index, snapshot.term)
            return load(reader)
        except refusals as error:
            raise SnapshotDamagedError(
                snapshot.path, 0, f"its content is refused: {error}", REMEDY
            ) from error
        finally:
            file.close()

    @staticmethod
    def check_header(reader: SnapshotReader, log_index: int, term: int) -> None:
        """Refuse a file whose header says another place in the log than it was announced or named with."""
        header = reader.header
        if (header.log_index, header.term) != (log_index, term):
            problem = f"it is the snapshot of entry {header.log_index} of term {header.term}"
            raise SnapshotDamagedError(
                reader.path, 0, f"{problem}, not of {log_index} of term {term}", REMEDY
            )

    def pin(self, log_index: int) -> SnapshotFile:
        """Keep a snapshot, and the log after it, until `unpin`; pins count."""
        snapshot = next((file for file in self.files() if file.log_index == log_index), None)
        if snapshot is None:
            raise SnapshotTransferError(f"no snapshot of entry {log_index} exists")
        if log_index not in self._pins:
            self._pins[log_index] = _Pin(self._disk.open(snapshot.path))
        self._pins[log_index].count += 1
        return snapshot

    def unpin(self, log_index: int) -> None:
        """Take one pin away."""
        with self._lock:
            pin = self._pins[log_index]
            pin.count -= 1
            if pin.count == 0:
                pin.file.close()
                del self._pins[log_index]

    def verify(self, snapshot: SnapshotFile) -> None:
        """Read a snapshot through its checksums, before a transfer; a damaged one is not offered any more.

        For the snapshot lane. Its file stays where it is until newer ones take its place: it may still be
        pinned, and only a start judges what a node can go on from. If it is pinned, what was read is what is
        sent from then on: another one of the same place may have taken it over from the file that was pinned.
        """
        file = self._disk.open(snapshot.path)
        try:
            SnapshotReader(file).verify()
        except SnapshotDamagedError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from error
            self._log(f"is not sent any more: {error}")
            self._mark(snapshot, _State.DAMAGED)
            raise
        else:
            with self._lock:
                pin = self._pins.get(snapshot.log_index)
                if pin is not None:
                    file, pin.file = pin.file, file
        finally:
            file.close()

    def drop_received(self, snapshot: SnapshotFile) -> None:
        """Remove a received snapshot that could not be loaded: it must not stand in the way of good ones.

        For the snapshot lane. Durable on return.
        """
        with self._lock:
            self._table.pop(snapshot.path, None)
        self._unlink([snapshot.path])

    def read_range(self, log_index: int, offset: int, size: int) -> bytes:
        """Read a piece of a pinned snapshot for a transfer.

        Args:
            log_index: of the snapshot.
            offset: first byte wanted.
            size: bytes wanted; fewer are returned only at the end of the file.
        """
        pin = self._pins.get(log_index)
        if pin is None:
            raise SnapshotTransferError(f"the snapshot of entry {log_index} is not pinned")
        return pin.file.pread(size, offset)

    def detach(self, applied_index: int) -> tuple[int, list[str]]:
        """Forget all but the two newest good snapshots and pinned ones; for the loop, which also pins.

        Args:
            applied_index: of the state. A file beyond it was received and is not installed: it stays, and
                counts as none of the two, because it may turn out to be of no use.

        Returns:
            The log index of the oldest snapshot that is left, up to which the journal may compact once
            `remove` returned, 0 for none; and the paths of those that are forgotten, for `remove`. Among them
            are older ones whose name could not be made durable: a start counts them, and needs their log.
        """
        with self._lock:
            counted = [file for file in self._having(_State.GOOD) if file.log_index <= applied_index][-KEPT:]
            if not counted:
                return 0, []
            kept = [
                file
                for file in self.files()
                if file in counted or file.log_index > applied_index or file.log_index in self._pins
            ]
            pinned = (file for file in kept if file.log_index in self._pins)
            oldest_index = min([counted[0], *pinned]).log_index
            gone = [
                file
                for file, state in self._table.values()
                if (file.log_index < oldest_index if state is _State.LEFT else file not in kept)
            ]
            for file in gone:
                del self._table[file.path]
        return oldest_index, [file.path for file in sorted(gone)]

    def remove(self, paths: Sequence[str], oldest_index: int) -> None:
        """Remove the files of detached snapshots, and those set aside from before the oldest that is left.

        Durable on return. For the snapshot lane: a file system takes long over a large file.

        Args:
            paths: what `detach` returned.
            oldest_index: likewise.
        """
        set_aside = []
        for name in self._disk.listdir(self._directory):
            numbers = _numbers(name.removesuffix(_DAMAGED)) if name.endswith(_DAMAGED) else None
            if numbers is not None and numbers[0] < oldest_index:
                set_aside.append(f"{self._directory}/{name}")
        try:
            self._unlink((*paths, *set_aside))
        except OSError:
            with self._lock:
                for path in paths:
                    if (numbers := _numbers(path.removeprefix(f"{self._directory}/"))) is not None:
                        self._table[path] = SnapshotFile(*numbers, path, 0), _State.LEFT
            raise

    def _unlink(self, paths: Sequence[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # somebody was quicker, and it is gone
                self._disk.unlink(path)
        self._disk.fsync_dir(self._directory)

    def create_partial(self, log_index: int, term: int, origin: str) -> tuple[File, str]:
        """Create the file that a snapshot is written to first; return it and its final path."""
        path = f"{self._directory}/{log_index:0{_DIGITS}d}-{term:0{_DIGITS}d}{_SUFFIX}"
        partial = f"{path}.{origin}{_PARTIAL}"
        try:
            return self._disk.create(partial), path
        except FileExistsError:
            self._disk.unlink(partial)
            return self._disk.create(partial), path

    def discard(self, partial: File) -> None:
        """Remove a partial file; one that has its final name already stays for the next start."""
        partial.close()
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(partial.path)

    def adopt(
        self, partial: File, path: str, log_index: int, term: int
    ) -> Generator[None, None, SnapshotFile]:
        """Make a partial file that is completely written a snapshot, in steps of about VERIFY_BYTES.

        For the thread that wrote it.
        """
        partial.fdatasync()
        reader = SnapshotReader(partial)
        self.check_header(reader, log_index, term)
        unread_bytes = VERIFY_BYTES
        for body in reader.bodies():
            unread_bytes -= len(body)
            if unread_bytes <= 0:
                unread_bytes = VERIFY_BYTES
                yield
        snapshot = SnapshotFile(log_index, term, path, partial.size())
        partial.close()
        try:
            self._disk.rename(partial.path, path)
            self._disk.fsync_dir(self._directory)
        except OSError:
            with self._lock:
                self._table.setdefault(path, (snapshot, _State.LEFT))
            raise
        with self._lock:
            self._table[path] = snapshot, _State.GOOD
        return snapshot


class PartialSnapshot:
    """A snapshot that is being written. Belongs to one thread at a time."""

    def __init__(self, store: SnapshotStore, log_index: int, term: int, origin: str) -> None:
        """Create the file; `origin` tells files of one place that come from different sources apart."""
        self.size = 0
        self._store = store
        self._log_index = log_index
        self._term = term
        self._file, self._path = store.create_partial(log_index, term, origin)
        self._unsynced = 0

    def append(self, parts: list[bytes]) -> None:
        """Write after what was written."""
        self._file.pwrite(parts, self.size)
        written = sum(map(len, parts))
        self.size += written
        self._unsynced += written
        if self._unsynced >= SYNC_BYTES:
            self._file.fdatasync()
            self._unsynced = 0

    def finish(self) -> SnapshotFile:
        """Sync, verify and rename; the file is removed if that fails."""
        steps = self.finish_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                snapshot: SnapshotFile = end.value
                return snapshot

    def finish_in_steps(self) -> Generator[None, None, SnapshotFile]:
        """Do what `finish` does, a piece of the verification a step."""
        try:
            return (yield from self._store.adopt(self._file, self._path, self._log_index, self._term))
        except (DataDirError, OSError):
            self.discard()
            raise

    def discard(self) -> None:
        """Give up and remove the file."""
        self._store.discard(self._file)


def _numbers(name: str) -> tuple[int, int] | None:
    """Return (log index, term) of a snapshot's file name, None for any other name."""
    index, _, term = name.removesuffix(_SUFFIX).partition("-")
    both = index + term
    if not name.endswith(_SUFFIX) or (len(index), len(term)) != (_DIGITS, _DIGITS):
        return None
    return (int(index), int(term)) if both.isascii() and both.isdigit() else None
