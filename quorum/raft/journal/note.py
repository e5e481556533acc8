"""A note of how far the journal was durable, next to its segments: a start notices a tail that is gone.

Segments alone cannot say that something followed their end: a newest segment that was deleted, cut or
overwritten with zeros looks like a journal that never went further, and a node without peers would go on
without writes that it acknowledged. The note names the last group that an fsync covered. It is durable before
the first segment has its name, so a journal without a note has lost it: that is damage like any other.

It is written over in place after each group and synced only at a start and when a segment begins, so a group
costs no further fsync. That is safe: the group was durable before, so whatever older note a power cut leaves
is true as well, only weaker. Two slots take turns, each in a sector of its own, so that a write that is torn
leaves the other one. After the end of a process the note is exact; after a power cut it is as old as the
operating system's last write-back.

Hard state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from quorum.platform.runtime import Disk, File

NOTE_NAME = "durable"
_NOTE = struct.Struct("<8sQQQ")
_CRC = struct.Struct("<I")
_MAGIC = b"QDURABLE"
_NOTE_BYTES = _NOTE.size + _CRC.size
#: Where the second slot begins: no torn write reaches into another sector.
_SLOT_BYTES = 512
_SLOTS = 2


class DurableEnd(NamedTuple):
    """Where the journal ended when the note was written.

    Attributes:
        sequence: number of the segment.
        offset: the first byte after the group's trailer.
        group: number of the group.
    """

    sequence: int
    offset: int
    group: int


class NoteFile:
    """The note, open for writing. Belongs to the writer of the groups."""

    def __init__(self, file: File, slot: int) -> None:
        """Use `NoteFile.create` or `NoteFile.open`."""
        self._file = file
        #: not the one that holds the newest claim
        self._slot = slot

    @classmethod
    def create(cls, disk: Disk, directory: str, end: DurableEnd) -> NoteFile:
        """Make the note of a journal that has none; durable on return."""
        path = f"{directory}/{NOTE_NAME}"
        if NOTE_NAME in disk.listdir(directory):
            disk.unlink(path)
        note = cls(disk.create(path), 0)
        try:
            note.write(end)
            note.sync()
            disk.fsync_dir(directory)
        except BaseException:
            note.close()
            raise
        return note

    @classmethod
    def open(cls, disk: Disk, directory: str, log: Callable[[str], None]) -> NoteFile:
        """Open the note of a journal.

        Args:
            disk: where it is.
            directory: the journal's folder.
            log: takes a line about a slot that cannot be read.
        """
        file = disk.open(f"{directory}/{NOTE_NAME}", writable=True)
        slots = _read_slots(file)
        claims = [_parse(content) for content in slots]
        if problem := _of_unreadable(slots):
            log(f"{file.path}: {problem}")
        return cls(file, 1 - claims.index(max(claims)))

    def write(self, end: DurableEnd) -> None:
        """Say that everything up to there is durable; it must be."""
        claim = _NOTE.pack(_MAGIC, *end)
        self._file.pwrite([claim, _CRC.pack(crc32(claim))], self._slot * _SLOT_BYTES)
        self._slot = 1 - self._slot

    def sync(self) -> None:
        """Make the note itself durable."""
        self._file.fdatasync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_note(disk: Disk, directory: str) -> DurableEnd | None:
    """Return what the note of a journal claims; None where there is none that can be read."""
    try:
        file = disk.open(f"{directory}/{NOTE_NAME}")
    except FileNotFoundError:
        return None
    try:
        newest = max(_parse(content) for content in _read_slots(file))
    finally:
        file.close()
    return newest or None


def _of_unreadable(slots: list[bytes]) -> str:
    for slot, content in enumerate(slots):
        # A slot of zeros was never written: nothing is wrong with it.
        if content.strip(b"\0") and not _parse(content):
            return (
                f"the slot at byte {slot * _SLOT_BYTES} cannot be read (a power cut tore its write, or a bit "
                "turned around): a loss of the newest groups alone would not be noticed"
            )
    return ""


def _read_slots(file: File) -> list[bytes]:
    return [file.pread(_NOTE_BYTES, slot * _SLOT_BYTES) for slot in range(_SLOTS)]


def _parse(content: bytes) -> DurableEnd | tuple[()]:
    """Return the claim of a slot; an empty one, which is below all others, where none can be read."""
    if len(content) != _NOTE_BYTES:
        return ()
    magic, sequence, offset, group = _NOTE.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _NOTE.size)
    if magic != _MAGIC or crc != crc32(content[: _NOTE.size]):
        return ()
    return DurableEnd(sequence, offset, group)
