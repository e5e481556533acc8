"""A disk in memory that crashes the way disks do.

Decides what a crash leaves. Every file has the content that a process sees and the content on the platter;
what was not fsynced lies between them as a list of writes. A power cut keeps, by its `Cut`, nothing of that
list, a prefix of it torn at any byte or at any sector, or any subset of its sectors; bytes of a lost sector
are what the platter held before, zeros behind its old end. Names survive on their own: of the creations,
renames and removals of a folder since its last `fsync_dir` a prefix or any subset is kept. A kill of the
process alone loses nothing.

A failed fsync leaves its writes visible and forgotten: the pages count as clean, only writing them again
brings them to the platter (Rebello et al., "Can applications recover from fsync failures?", ATC '20). It
follows quorum/platform/runtime.py.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from quorum.platform.runtime import Buffer, DataDirInUseError

SECTOR_BYTES = 512


class Cut(Enum):
    """What a power cut leaves of the writes that were not fsynced."""

    NOTHING = auto()
    EVERYTHING = auto()
    PREFIX_OF_BYTES = auto()
    PREFIX_OF_SECTORS = auto()
    SOME_SECTORS = auto()
    ALL_BUT_FIRST_SECTOR = auto()


#: what is drawn from where nobody says which; the last one is there for who asks for it
_CUTS = tuple(cut for cut in Cut if cut is not Cut.ALL_BUT_FIRST_SECTOR)


class Stopped(BaseException):
    """The process ended within a call of the disk: nothing of the caller runs any more but what unwinds."""


class _Write(NamedTuple):
    """An unsynced write, or a change of size where data is None."""

    offset: int
    data: bytes | None


class _NameChange(NamedTuple):
    """An unsynced change of a folder: `name` now leads to `node`, or to nothing."""

    gone: str
    name: str
    node: _Node | None


class _Node:
    """A file without its names."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.platter = bytearray()
        self.unsynced: list[_Write] = []

    def copy(self) -> _Node:
        other = _Node()
        other.seen, other.platter = bytearray(self.seen), bytearray(self.platter)
        other.unsynced = list(self.unsynced)
        return other


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


class MemoryFile:
    """An open file of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str, node: _Node, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._writable = writable
        self._life = disk.life
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._check("size")
        return len(self._node.seen)

    def pread(self, size: int, offset: int) -> bytes:
        self._check("pread")
        return bytes(self._node.seen[offset : offset + size])

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        short = self._check("pwrite", writing=True)
        room = self._disk.room_for(self._node, offset + len(data))
        fits = max(0, len(data) - room)
        if short is not None:
            fits = self._disk.rng.randrange(len(data) + 1)
        if short is not None or room:
            self._disk.refused_for_room += short is None
            self._apply(_Write(offset, data[:fits]))
            raise short or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._apply(_Write(offset, data))

    def fdatasync(self) -> None:
        failure = self._check("fdatasync", writing=True, raising=False)
        node = self._node
        if failure is not None:
            node.unsynced = [write for write in node.unsynced if self._disk.rng.random() < 0.5]
            self._disk.bring_to_platter(node)
            raise failure
        self._disk.bring_to_platter(node)
        self._disk.synced()

    def truncate(self, size: int) -> None:
        self._check("truncate", writing=True)
        self._apply(_Write(size, None))

    def close(self) -> None:
        self._open = False

    def _apply(self, write: _Write) -> None:
        _perform(self._node.seen, write)
        self._node.unsynced.append(write)

    def _check(self, operation: str, *, writing: bool = False, raising: bool | None = None) -> OSError | None:
        assert self._life == self._disk.life, f"{operation} of {self._path} after the crash of its process"
        if not self._open or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        failure = self._disk.planned_failure(operation, self._path)
        if failure is not None and operation != "pwrite" and raising is not False:
            raise failure
        return failure


def _perform(content: bytearray, write: _Write) -> None:
    if write.data is None:
        _resize(content, write.offset)
    else:
        _put(content, write.offset, write.data)


class _Planned(NamedTuple):
    """A failure that is to come; without a number the process ends there."""

    operation: str
    part: str
    number: int | None
    skip: int
    times: int


class _MemoryLock:
    """A held lock of a MemoryDisk."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class MemoryDisk:
    """A Disk whose faults are chosen by the test.

    Attributes:
        rng: decides everything that is left open.
        capacity_bytes: of all files together; None for no bound.
        fsyncs: successful fsyncs of files and folders.
        life: rises with each crash; handles of an older life are dead.
        on_call: told of each call that may fail before it does anything, for a thread that halts there.
        on_sync: called after each successful fsync, for a clock that moves.
        refused_for_room: calls that found the disk full.
        failed: planned failures that came.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.capacity_bytes: int | None = None
        self.fsyncs = 0
        self.life = 0
        self.on_call: Callable[[str], object] = _nothing
        self.on_sync: Callable[[], object] = _nothing
        self.refused_for_room = 0
        self.failed = 0
        self.locked: set[str] = set()
        self._folders: set[str] = {"/"}
        self._names: dict[str, _Node] = {}
        self._platter_names: dict[str, _Node] = {}
        #: {folder: changes since its last fsync}
        self._changes: dict[str, list[_NameChange]] = {}
        self._planned: list[_Planned] = []
        self._calls_left: int | None = None

    # --- the Disk protocol

    def create(self, path: str) -> MemoryFile:
        self._raise_planned("create", path)
        self._need_folder(_folder(path))
        if path in self._names or path in self._folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if self.capacity_bytes is not None and self.used_bytes >= self.capacity_bytes:
            self.refused_for_room += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        node = _Node()
        self._change(_NameChange("", path, node))
        return MemoryFile(self, path, node, writable=True)

    def open(self, path: str, writable: bool = False) -> MemoryFile:
        self._raise_planned("open", path)
        return MemoryFile(self, path, self._node(path), writable=writable)

    def rename(self, source: str, target: str) -> None:
        self._raise_planned("rename", source)
        assert _folder(source) == _folder(target), "only within one folder"
        self._change(_NameChange(source, target, self._node(source)))

    def unlink(self, path: str) -> None:
        self._raise_planned("unlink", path)
        self._node(path)
        self._change(_NameChange(path, "", None))

    def listdir(self, path: str) -> list[str]:
        self._raise_planned("listdir", path)
        self._need_folder(path)
        inside = path.rstrip("/") + "/"
        everything = [*self._names, *self._folders]
        return sorted(
            name[len(inside) :] for name in everything if name != "/" and _folder(name) + "/" == inside
        )

    def make_dirs(self, path: str) -> None:
        self._raise_planned("make_dirs", path)
        while path not in self._folders:
            self._folders.add(path)
            path = _folder(path)

    def fsync_dir(self, path: str) -> None:
        self._raise_planned("fsync_dir", path)
        self._need_folder(path)
        for change in self._changes.pop(path, ()):
            _rename(self._platter_names, change)
        self.synced()

    def lock(self, path: str) -> _MemoryLock:
        self._need_folder(path)
        if path in self.locked:
            raise DataDirInUseError(f"data directory {path} is in use", "stop the other node")
        self.locked.add(path)
        if f"{path}/lock" not in self._names:
            self.create(f"{path}/lock").close()
        return _MemoryLock(self, path)

    # --- faults

    def fail(
        self, operation: str, number: int, *, path_part: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Have calls fail.

        Args:
            operation: the method's name, of the disk or its files.
            number: the errno.
            path_part: only where this is part of the path.
            skip: how many such calls succeed before.
            times: how many fail.
        """
        self._planned.append(_Planned(operation, path_part, number, skip, times))

    def stop_after(self, calls: int) -> None:
        """Have the process end within the call behind the next `calls`; `kill` or `power_cut` follows."""
        self._calls_left = calls

    def stop_at(self, operation: str, *, path_part: str = "", skip: int = 0) -> None:
        """Have the process end within such a call, before it does anything; `kill` or `power_cut` follows."""
        self._planned.append(_Planned(operation, path_part, None, skip, 1))

    def forgive(self) -> None:
        """Forget the failures and ends that are still to come."""
        self._planned.clear()
        self._calls_left = None

    @property
    def plans(self) -> int:
        """How many failures are still to come."""
        return len(self._planned)

    def kill(self) -> None:
        """End the process that uses the disk, which itself goes on: nothing is lost."""
        self.life += 1
        self.locked.clear()
        self._planned.clear()
        self._calls_left = None

    def power_cut(self, cut: Cut | None = None) -> None:
        """End the process and lose what was not fsynced.

        Args:
            cut: what is left of it; drawn for each file if None.
        """
        for folder in sorted(self._changes):
            for change in self._kept_changes(self._changes[folder], cut):
                _rename(self._platter_names, change)
        self._changes.clear()
        for node in list({id(node): node for _, node in self._nodes()}.values()):
            if node.unsynced:
                self._cut_node(node, cut or self.rng.choice(_CUTS))
            elif node.seen != node.platter:
                # A failed fsync forgot what the process still sees.
                node.seen = bytearray(node.platter)
        self._names = dict(self._platter_names)
        self.kill()

    def flip_bit(self, path: str, bit: int) -> None:
        """Turn one bit of a file around, on the platter and in memory; `bit` counts from the start."""
        node = self._node(path)
        for content in (node.seen, node.platter):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8

    # --- for tests

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of this name."""
        return path in self._names

    def content(self, path: str) -> bytes:
        """Return what a process sees in a file."""
        return bytes(self._node(path).seen)

    def plant(self, path: str, content: bytes) -> None:
        """Replace a file's durable content, making the file if needed."""
        if path not in self._names:
            self.make_dirs(_folder(path))
            self._change(_NameChange("", path, _Node()))
            self.fsync_dir(_folder(path))
        node = self._names[path]
        node.seen, node.platter, node.unsynced = bytearray(content), bytearray(content), []

    @property
    def used_bytes(self) -> int:
        """What all files that have a name take."""
        return sum(len(node.seen) for node in {id(node): node for node in self._names.values()}.values())

    def unsynced_bytes(self, path: str) -> int:
        """Return how many written bytes of a file a power cut may lose."""
        return sum(len(write.data or b"") for write in self._node(path).unsynced)

    def restore(self, copy: MemoryDisk) -> None:
        """Take over what another disk holds, which is not used any more; no process uses this one."""
        self._folders, self._names = copy._folders, copy._names
        self._platter_names, self._changes = copy._platter_names, copy._changes

    def copy(self, rng: random.Random) -> MemoryDisk:
        """Return a disk in the same state, for trying one crash of many; no process uses it."""
        other = MemoryDisk(rng)
        nodes = {id(node): node.copy() for _, node in self._nodes()}
        other.capacity_bytes = self.capacity_bytes
        other._folders = set(self._folders)
        other._names = {path: nodes[id(node)] for path, node in self._names.items()}
        other._platter_names = {path: nodes[id(node)] for path, node in self._platter_names.items()}
        other._changes = {
            folder: [
                change._replace(node=None if change.node is None else nodes[id(change.node)])
                for change in changes
            ]
            for folder, changes in self._changes.items()
        }
        return other

    def cut_at_byte(self, path: str, bytes_kept: int) -> None:
        """Cut the power so that the first `bytes_kept` unsynced bytes of one file are all that is left."""
        node = self._node(path)
        kept: list[_Write] = []
        for write in node.unsynced:
            data = (write.data or b"")[:bytes_kept]
            if write.data is None or data:
                kept.append(_Write(write.offset, None if write.data is None else data))
            bytes_kept -= len(data)
        node.unsynced = kept
        self.bring_to_platter(node)
        self.power_cut(Cut.NOTHING)

    # --- for MemoryFile

    def synced(self) -> None:
        """Count an fsync that succeeded."""
        self.fsyncs += 1
        self.on_sync()

    def room_for(self, node: _Node, end: int) -> int:
        """Return how many of the bytes before `end` do not fit."""
        if self.capacity_bytes is None:
            return 0
        growth = max(0, end - len(node.seen))
        return min(growth, max(0, self.used_bytes + growth - self.capacity_bytes))

    def planned_failure(self, operation: str, path: str) -> OSError | None:
        """Return the failure of this call, if one is planned."""
        self.on_call(operation)
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise Stopped
            self._calls_left -= 1
        for position, planned in enumerate(self._planned):
            if planned.operation != operation or planned.part not in path:
                continue
            if planned.skip:
                self._planned[position] = planned._replace(skip=planned.skip - 1)
                continue
            if planned.number is None:
                raise Stopped
            if planned.times > 1:
                self._planned[position] = planned._replace(times=planned.times - 1)
            else:
                del self._planned[position]
            self.failed += 1
            return OSError(planned.number, os.strerror(planned.number))
        return None

    @staticmethod
    def bring_to_platter(node: _Node) -> None:
        """Perform all unsynced writes."""
        for write in node.unsynced:
            _perform(node.platter, write)
        node.unsynced = []

    # --- within

    def _cut_node(self, node: _Node, cut: Cut) -> None:
        match cut:
            case Cut.NOTHING:
                node.unsynced = []
            case Cut.PREFIX_OF_BYTES | Cut.PREFIX_OF_SECTORS:
                self._keep_prefix(node, sectors=cut is Cut.PREFIX_OF_SECTORS)
            case Cut.SOME_SECTORS:
                node.unsynced = [
                    part for write in node.unsynced for part in _sectors(write) if self.rng.random() < 0.5
                ]
            case Cut.ALL_BUT_FIRST_SECTOR:
                node.unsynced = [part for write in node.unsynced for part in _sectors(write)[1:]]
            case Cut.EVERYTHING:
                pass
        self.bring_to_platter(node)
        node.seen = bytearray(node.platter)

    def _kept_changes(self, changes: list[_NameChange], cut: Cut | None) -> list[_NameChange]:
        if cut is Cut.EVERYTHING:
            return changes
        if cut is Cut.NOTHING:
            return []
        if self.rng.random() < 0.5:
            return changes[: self.rng.randrange(len(changes) + 1)]
        return [change for change in changes if self.rng.random() < 0.5]

    def _keep_prefix(self, node: _Node, *, sectors: bool) -> None:
        if not node.unsynced:
            return
        number = self.rng.randrange(len(node.unsynced))
        last = node.unsynced[number]
        kept = node.unsynced[:number]
        if sectors:
            parts = _sectors(last)
            kept += parts[: self.rng.randrange(len(parts) + 1)]
        elif last.data is not None:
            kept.append(_Write(last.offset, last.data[: self.rng.randrange(len(last.data) + 1)]))
        node.unsynced = kept

    def _nodes(self) -> list[tuple[str, _Node]]:
        changed = [
            (change.name, change.node)
            for changes in self._changes.values()
            for change in changes
            if change.node
        ]
        return [*self._names.items(), *self._platter_names.items(), *changed]

    def _change(self, change: _NameChange) -> None:
        _rename(self._names, change)
        self._changes.setdefault(_folder(change.name or change.gone), []).append(change)

    def _node(self, path: str) -> _Node:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]

    def _need_folder(self, path: str) -> None:
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _raise_planned(self, operation: str, path: str) -> None:
        failure = self.planned_failure(operation, path)
        if failure is not None:
            raise failure


def _nothing(*_told: object) -> None:
    """Stand in for whoever is told."""


def _rename(names: dict[str, _Node], change: _NameChange) -> None:
    if change.gone:
        names.pop(change.gone, None)
    if change.node is not None:
        names[change.name] = change.node


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _sectors(write: _Write) -> list[_Write]:
    """Return a write in pieces that end at sector boundaries."""
    if write.data is None:
        return [write]
    parts = []
    position = 0
    while position < len(write.data):
        step = SECTOR_BYTES - (write.offset + position) % SECTOR_BYTES
        parts.append(_Write(write.offset + position, write.data[position : position + step]))
        position += step
    return parts
