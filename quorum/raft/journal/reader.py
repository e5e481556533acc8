"""Reads live entries back from the segments, each through its CRC.

Decides how much is read at once. Does not decide what is live (index.py does). Soft state: the
segment that was read last stays open.
"""

from __future__ import annotations

from typing import NamedTuple

from quorum.errors import DataDamagedError, QuorateError
from quorum.platform.runtime import Disk, File
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.journal.format import Place, decode_record, frame_bytes, read_body
from quorum.raft.journal.index import LogIndex
from quorum.raft.journal.recovery import REPLACE_REMEDY

#: What is read from a segment at once, at least.
_BLOCK_BYTES = 64 * 1024


class LogUnavailableError(QuorateError):
    """Entries that the journal does not hold: compacted, or not durable yet."""


class _Block(NamedTuple):
    """A piece of a segment in memory."""

    path: str
    offset: int
    data: bytes

    def holds(self, path: str, offset: int) -> bool:
        """Return whether the whole record at `offset` is in this piece."""
        position = offset - self.offset
        if path != self.path or not 0 <= position < len(self.data):
            return False
        return position + frame_bytes(self.data, position) <= len(self.data)


class JournalEntries:
    """Reads entries by their log index."""

    def __init__(self, disk: Disk, log: LogIndex) -> None:
        self._disk = disk
        self._log = log
        self._file: File | None = None

    def read(self, first: int, last: int, bytes_max: int, durable: Place) -> list[Entry]:
        """Read live entries that stand before a place; see Journal.read."""
        log = self._log
        entries: list[Entry] = []
        total = 0
        block = _Block("", 0, b"")
        end = min(last, log.last_index)
        for index in range(first, end + 1) if first >= log.first_index else ():
            segment, offset = log.find(index)
            if (segment.sequence, offset) >= (durable.sequence, durable.offset):
                break
            if not block.holds(segment.path, offset):
                block = self._load(segment.path, offset)
            body = read_body(block.data, offset - block.offset, offset, segment.sequence)
            entry = decode_record(body) if body is not None else None
            if not isinstance(entry, Entry) or entry.index != index:
                problem = f"entry {index} is not what was written any more"
                raise DataDamagedError(segment.path, offset, problem, REPLACE_REMEDY)
            total += size_bytes(entry)
            if entries and total > bytes_max:
                break
            entries.append(entry)
        if not entries:
            have = f"the log holds {log.first_index} to {log.last_index}"
            raise LogUnavailableError(f"entries {first} to {last} are not to be had: {have}")
        return entries

    def _load(self, path: str, offset: int) -> _Block:
        if self._file is None or self._file.path != path:
            self.close()
            self._file = self._disk.open(path)
        data = self._file.pread(_BLOCK_BYTES, offset)
        if frame_bytes(data, 0) > len(data):
            data = self._file.pread(min(frame_bytes(data, 0), self._file.size() - offset), offset)
        return _Block(path, offset, data)

    def close(self) -> None:
        """Close the segment that was read last."""
        if self._file is not None:
            self._file.close()
            self._file = None
