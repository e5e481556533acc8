"""A note of how far the journal was durable, beside its segments: a tail that is gone is missed at the start.

Segments alone cannot say that something stood behind their end: a newest segment that was deleted, cut or
overwritten with zeros looks like a journal that never went further, and a node without peers would go on
without writes that it acknowledged. The note names the last group that an fsync covered.

It is written over in place after each group and synced only at a start and when a segment begins, so a group
costs no further fsync. That is safe: the group was durable before, so whatever older note a power cut leaves
is true as well, only weaker. A note that cannot be read claims nothing. After the end of a process it is
exact; after a power cut it is as old as the operating system's last write-back.

Hard state, of which any part may be lost. Source: raft.md, Journal (Recovery).
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from quorum.raft.runtime import Disk, File

NOTE_NAME = "durable"
_NOTE = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
_MAGIC = b"QDURABLE"
_NOTE_BYTES = _NOTE.size + _CRC.size


class DurableEnd(NamedTuple):
    """Where the journal ended when the note was written.

    Attributes:
        sequence: number of the segment.
        offset: the first byte behind the group's trailer.
        group: number of the group.
    """

    sequence: int
    offset: int
    group: int


class NoteFile:
    """The note, open for writing. Belongs to whoever writes the groups."""

    def __init__(self, file: File) -> None:
        """Use `NoteFile.open`."""
        self._file = file

    @classmethod
    def open(cls, disk: Disk, directory: str) -> NoteFile:
        """Open the note of a journal, making an empty one if there is none.

        Raises:
            OSError: the disk refuses.
        """
        path = f"{directory}/{NOTE_NAME}"
        if NOTE_NAME in disk.listdir(directory):
            return cls(disk.open(path, writable=True))
        file = disk.create(path)
        disk.fsync_dir(directory)
        return cls(file)

    def write(self, end: DurableEnd) -> None:
        """Say that everything up to there is durable; it must be.

        Raises:
            OSError: the disk refuses.
        """
        claim = _NOTE.pack(_MAGIC, *end)
        self._file.pwrite([claim, _CRC.pack(crc32(claim))], 0)

    def sync(self) -> None:
        """Make the note itself durable.

        Raises:
            OSError: the disk refuses.
        """
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_note(disk: Disk, directory: str) -> DurableEnd | None:
    """Return what the note of a journal claims; None where there is none that can be read.

    Raises:
        OSError: the disk refuses.
    """
    try:
        file = disk.open(f"{directory}/{NOTE_NAME}")
    except FileNotFoundError:
        return None
    try:
        content = file.pread(_NOTE_BYTES, 0)
    finally:
        file.close()
    if len(content) != _NOTE_BYTES:
        return None
    magic, sequence, offset, group = _NOTE.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _NOTE.size)
    if magic != _MAGIC or crc != crc32(content[: _NOTE.size]):
        return None
    return DurableEnd(sequence, offset, group)
