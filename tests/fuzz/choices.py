"""Bytes read as decisions, so that a mutation of bytes is a mutation of what a program does.

What is read behind the end is zero: every input is a whole program, and a shorter one is a simpler one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: numbers at which arithmetic or a bound may break
NUMBERS: Final = (
    *(0, 1, -1, 2, 3, 4, 5, 6, 7, 31, -2, 100, 255, 256),
    *(2**31 - 1, -(2**31), 2**31, 2**40 - 1, 2**40, 2**63 - 1, -(2**63), 2**63, 2**64 - 1),
)


class Choices:
    """A cursor over the bytes that decide."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def exhausted(self) -> bool:
        """Whether everything from here on would be zero."""
        return self._at >= len(self._data)

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1 (at most 255); small inputs give small numbers."""
        if self.exhausted:
            return 0
        value = self._data[self._at]
        self._at += 1
        return value % limit

    def rarely(self, one_in: int) -> bool:
        """True once in so many times, never at the end of the bytes."""
        return self.below(one_in) == one_in - 1

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def blob(self, bytes_max: int) -> bytes:
        """So many bytes as they stand there."""
        size = self.below(bytes_max + 1)
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def text(self, bytes_max: int) -> str:
        """Text as a server may decode it."""
        return self.blob(bytes_max).decode("utf-8", "replace")

    def number(self) -> int:
        """A number, often an odd one."""
        if self.below(2) == 0:
            return self.pick(NUMBERS)
        return int.from_bytes(self.blob(8), "big", signed=True)

    def value(self, depth: int = 0) -> Any:
        """Anything that msgpack can carry."""
        match self.below(9 if depth < 3 else 7):
            case 0:
                return self.number()
            case 1:
                return self.text(6)
            case 2:
                return self.blob(6)
            case 3:
                return None
            case 4:
                return self.below(2) == 1
            case 5:
                return self.pick((0.0, -1.5, float("inf"), 1e300))
            case 6:
                return self.pick(("/", "/a", "world", "anyone", "digest", "ip", "auth"))
            case 7:
                return [self.value(depth + 1) for _ in range(self.below(4))]
            case _:
                return {self.pick((0, 1, 14, "", "a")): self.value(depth + 1) for _ in range(self.below(3))}
