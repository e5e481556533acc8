"""A sparse index: pairs of rising numbers in Kafka's file format, kept in memory as the file's bytes.

The offset index holds (relative offset of a batch's last record, position of the batch), the time index
(largest timestamp so far, relative offset of the last record of the batch that has it). Both rise in both
columns, so either can be searched.
Source: Kafka's OffsetIndex and TimeIndex (3.9).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class SparseIndex:
    """The entries of one index, oldest first."""

    __slots__ = ("_content", "_entry")

    def __init__(self, entry: Struct, content: bytes = b"") -> None:
        """Take the bytes of a file; what is no whole entry at its end is dropped."""
        self._entry = entry
        self._content = bytearray(content[: len(content) - len(content) % entry.size])

    def __len__(self) -> int:
        return len(self._content) // self._entry.size

    def __getitem__(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self._content, number * self._entry.size)
        return first, second

    @property
    def size_bytes(self) -> int:
        """Bytes of its file."""
        return len(self._content)

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest entry."""
        return self[len(self) - 1] if self._content else None

    def rises(self) -> bool:
        """Whether both columns rise strictly, as everything that was written does."""
        pairs = list(self._entry.iter_unpack(self._content))
        return all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))

    def append(self, first: int, second: int) -> None:
        """Add an entry; both numbers are larger than those of the last one."""
        self._content += self._entry.pack(first, second)

    def floor(self, column: int, value: int) -> int:
        """Return the number of the last entry whose column is at most `value`; -1 if there is none."""
        return bisect_right(range(len(self)), value, key=lambda number: self[number][column]) - 1

    def cut_from(self, column: int, value: int) -> None:
        """Drop the entries whose column is at least `value`."""
        kept = bisect_left(range(len(self)), value, key=lambda number: self[number][column])
        del self._content[kept * self._entry.size :]

    def to_bytes(self) -> bytes:
        """Return the bytes of its file."""
        return bytes(self._content)
