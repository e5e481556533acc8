"""The aborted transactions of a log, by the segment that holds their marker, in Kafka's file format.

A reader of committed records gets those that reach into what it reads, and leaves their records out. Each
entry carries the last stable offset of its time: no later marker ends a transaction that began before, so a
search ends there. The lists of closed segments are in their files, the others in memory, as the files' bytes.
A list is written before the producers' snapshot at the end of its segment, which vouches for it: what a
snapshot does not cover is built anew from the batches.

Any thread may search; the event loop's alone changes anything.
Source: KIP-98; Kafka's TransactionIndex and AbortedTxn (3.9), version 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from broker.log.files import NotCachedError, read_file

ABORTED_SUFFIX: Final = ".txnindex"
_VERSION: Final = 0
#: version, producer id, first offset, last offset, last stable offset
_ENTRY: Final = Struct(">hqqqq")
_LAST_OFFSET: Final = Struct(">q")
_LAST_OFFSET_FROM: Final = 18

Entries = bytes | bytearray


class AbortedTransaction(NamedTuple):
    """One aborted transaction."""

    producer_id: int
    first_offset: int
    #: of its marker
    last_offset: int
    #: as it was with this marker and without what was not committed; exclusive
    last_stable_offset: int

    def pack(self) -> bytes:
        """Return its entry."""
        return _ENTRY.pack(_VERSION, *self)


def is_sound(content: bytes, base_offset: int) -> bool:
    """Whether a file can be what was written for the segment that begins at an offset."""
    if len(content) % _ENTRY.size:
        return False
    before = base_offset - 1
    for version, _, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(content):
        # An earlier transaction may be open: the last stable offset is its first one then.
        rises = before < last_offset and first_offset < last_offset
        if version != _VERSION or not rises or stable_offset > last_offset + 1:
            return False
        before = last_offset
    return True


def before(content: Entries, offset: int) -> Entries:
    """Return the entries whose markers are below an offset."""
    return content[: _first_from(content, offset) * _ENTRY.size]


def _first_from(content: Entries, offset: int) -> int:
    """Return the number of the first entry whose marker is not below an offset."""
    return bisect_left(
        range(len(content) // _ENTRY.size),
        offset,
        key=lambda number: _LAST_OFFSET.unpack_from(content, number * _ENTRY.size + _LAST_OFFSET_FROM)[0],
    )


class AbortedLists:
    """The lists of one log."""

    __slots__ = ("_read", "folder", "lists")

    def __init__(self, folder: str = "") -> None:
        """Know none; `folder` is the log's."""
        self.folder = folder
        #: {base offset of a segment that has some, rising: its entries; None: they are in its file}
        self.lists: dict[int, Entries | None] = {}
        #: of the file that was read last, with its segment's base offset
        self._read: tuple[int, bytes] = (-1, b"")

    def path(self, base_offset: int) -> str:
        """Return where the list of a segment is."""
        return f"{self.folder}/{base_offset:020d}{ABORTED_SUFFIX}"

    def note(self, base_offset: int, aborted: AbortedTransaction) -> None:
        """Add one whose marker is the last one in the newest segment, which begins at an offset."""
        held = self.lists.setdefault(base_offset, bytearray())
        assert isinstance(held, bytearray), "a list that is written to is in memory"
        held += aborted.pack()

    def is_held(self, base_offset: int) -> bool:
        """Whether the list of a segment, if it has one, is in memory."""
        return self.lists.get(base_offset, b"") is not None

    def files(self, base_offset: int) -> list[tuple[str, bytes]]:
        """Return (path, content) of the file that a segment needs, if it needs one."""
        held = self.lists.get(base_offset)
        return [] if held is None else [(self.path(base_offset), bytes(held))]

    def release(self, base_offset: int) -> None:
        """Leave a closed segment's list to its file, which is written."""
        if base_offset in self.lists:
            self.lists[base_offset] = None

    def remove(self, base_offset: int) -> None:
        """Forget the list of a segment that goes."""
        self.lists.pop(base_offset, None)

    def swapped(self, base_offset: int, replaced: Sequence[int], *, has_any: bool) -> AbortedLists:
        """Return the lists where a compacted segment is in the place of others, whose files are gone.

        Others than these: a thread may still read a file of the old ones.

        Args:
            base_offset: of the new segment.
            replaced: base offsets of the old ones.
            has_any: whether the new one has a list.
        """
        found = AbortedLists(self.folder)
        left = {base: held for base, held in self.lists.items() if base not in replaced}
        found.lists = dict(sorted([*left.items(), (base_offset, None)])) if has_any else left
        return found

    def between(self, base_offset: int, offset: int, below: int, *, wait: bool) -> list[AbortedTransaction]:
        """Return those that reach into what is read, in the order of their markers.

        Args:
            base_offset: of the segment with the first record.
            offset: of the first record that is read.
            below: exclusive.
            wait: for the disk; else NotCachedError is raised where it must be read.
        """
        found: list[AbortedTransaction] = []
        for base in list(self.lists):
            if base < base_offset:
                continue
            entries = self._entries(base, wait=wait)
            for number in range(_first_from(entries, offset), len(entries) // _ENTRY.size):
                each = AbortedTransaction(*_ENTRY.unpack_from(entries, number * _ENTRY.size)[1:])
                if each.first_offset < below:
                    found.append(each)
                if each.last_stable_offset >= below:
                    return found
        return found

    def _entries(self, base_offset: int, *, wait: bool) -> Entries:
        held = self.lists.get(base_offset)
        if held is not None:
            return held
        known, content = self._read
        if known != base_offset:
            if not wait:
                raise NotCachedError(self.path(base_offset))
            # A segment that was removed meanwhile has no file; what was read of the log counts no more then.
            content = read_file(self.path(base_offset)) or b""
            self._read = (base_offset, content)
        return content
