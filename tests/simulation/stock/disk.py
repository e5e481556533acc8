"""The disk of a node that runs stock pysyncobj, and what stands for its files.

Every write is on the disk when the call returns, so that a kill loses nothing but what was still to be
written: the defects that are looked for need no power cut. The process may end within any call. Reads of
chosen files may come back damaged, once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.support.memory_disk import MemoryDisk, MemoryFile, Stopped

FOLDER = "/stock"
_RECORD_FILE_BYTES = 1024


class StockFile:
    """What `open` returns: a binary stream, from its start to its end."""

    def __init__(self, disk: StockDisk, file: MemoryFile) -> None:
        self._disk = disk
        self._file = file
        self._offset = 0
        self.name = ""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; none at the end."""
        size = self._file.size() - self._offset if size < 0 else size
        data = self._file.pread(size, self._offset)
        self._offset += len(data)
        return self._disk.perhaps_damaged(self._file.path, data)

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._file.pwrite([data], self._offset)
        self._offset += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset from the start."""
        assert whence == 0, "only from the start"
        self._offset = offset
        return offset

    def tell(self) -> int:
        """Return the offset."""
        return self._offset

    def flush(self) -> None:
        """Do nothing: what was written is on the disk."""

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class RecordFile:
    """What stands for `journal.ResizableFile`: bytes at offsets, zeros behind the end."""

    def __init__(self, file: MemoryFile) -> None:
        self._file = file

    def write(self, offset: int, values: bytes) -> None:
        """Put bytes at an offset."""
        self._file.pwrite([values], offset)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes at an offset."""
        return self._file.pread(size, offset)

    def flush(self) -> None:
        """Do nothing."""

    def _destroy(self) -> None:
        self._file.close()


class StockDisk(MemoryDisk):
    """A disk in memory.

    Attributes:
        stopped: the process ended within a call; whatever it still does has no effect.
        struck: what the process was at when it ended, as `doing` said.
        doing: what the process is at, for stories.
        damage_reads_of: the next read of a file whose path ends so has one bit turned around.
        damaged: how many reads were.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.make_dirs(FOLDER)
        self.stopped = False
        self.struck = ""
        self.doing = ""
        self.damage_reads_of = ""
        self.damaged = 0

    def kill(self) -> None:
        """End the process; nothing is lost."""
        super().kill()
        self.stopped = False
        self.struck = self.doing = ""

    def planned_failure(self, operation: str, path: str) -> OSError | None:
        """See MemoryDisk; a call of a process that ended has no effect."""
        try:
            return super().planned_failure(operation, path)
        except Stopped:
            if not self.stopped:
                self.stopped = True
                self.struck = self.doing
            raise

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return path.rsplit("/", 1)[1] in self.listdir(FOLDER)

    def open_stream(self, path: str, mode: str) -> StockFile:
        """Open a file as `open` does, for reading or with nothing in it for writing."""
        if mode == "rb":
            return StockFile(self, self.open(path))
        assert mode == "wb", mode
        if not self.exists(path):
            return StockFile(self, self.create(path))
        file = self.open(path, writable=True)
        file.truncate(0)
        return StockFile(self, file)

    def open_records(self, path: str, default_content: bytes) -> RecordFile:
        """Open a journal's file, made if there is none."""
        file = self.open(path, writable=True) if self.exists(path) else self.create(path)
        if not file.size():
            file.pwrite([default_content + bytes(_RECORD_FILE_BYTES - len(default_content))], 0)
        return RecordFile(file)

    def perhaps_damaged(self, path: str, data: bytes) -> bytes:
        """Return what a read gives, which is the data unless this read was chosen to be damaged."""
        if not self.damage_reads_of or not data or not path.endswith(self.damage_reads_of):
            return data
        self.damage_reads_of = ""
        self.damaged += 1
        bit = self.rng.randrange(8 * len(data))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    @contextmanager
    def whole(self, path: str) -> Iterator[None]:
        """Have the writes of a file within the block happen together or not at all."""
        before = self.content(path)
        try:
            yield
        except Stopped:
            self.plant(path, before)
            raise
