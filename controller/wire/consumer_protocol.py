"""What the members of a classic group of consumers say of themselves, and what they are assigned.

Reads the head of ConsumerProtocolSubscription (version, topics, user data, and from version 1 on what the
member owns) and of ConsumerProtocolAssignment; every version begins so. Writes assignments of version 0.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Final, NamedTuple

_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
#: The first subscription that says what its member owns.
_OWNED_VERSION: Final = 1

#: {topic: partitions}
Partitions = dict[str, tuple[int, ...]]


class Subscription(NamedTuple):
    """What a member says of itself."""

    topics: tuple[str, ...]
    #: None: that cannot be read.
    owned: Partitions | None


def read_subscription(metadata: bytes) -> Subscription | None:
    """Read what a member sent for a protocol; None if that is no subscription."""
    reader = _Reader(metadata)
    try:
        version = reader.short()
        topics = tuple(reader.text() for _ in range(reader.number()))
    except (error, ValueError):
        return None
    if version < _OWNED_VERSION:
        return Subscription(topics, {})
    try:
        reader.skip(max(0, reader.number()))
        return Subscription(topics, reader.partitions())
    except (error, ValueError):
        return Subscription(topics, None)


def read_assignment(assignment: bytes) -> Partitions | None:
    """Read what a member was assigned; None if that is no assignment."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    try:
        reader.short()
        return reader.partitions()
    except (error, ValueError):
        return None


def write_assignment(partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Return an assignment as a member reads it."""
    parts = [_SHORT.pack(0), _INT.pack(len(partitions))]
    for topic, indexes in partitions.items():
        name, held = topic.encode(), list(indexes)
        parts += [_SHORT.pack(len(name)), name, _INT.pack(len(held)), *map(_INT.pack, held)]
    return b"".join([*parts, _INT.pack(-1)])


class _Reader:
    """Reads from the front; raises struct.error or ValueError where the bytes end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._position = 0

    def short(self) -> int:
        (number,) = _SHORT.unpack_from(self._raw, self._position)
        self._position += _SHORT.size
        return int(number)

    def number(self) -> int:
        (number,) = _INT.unpack_from(self._raw, self._position)
        self._position += _INT.size
        return int(number)

    def skip(self, length: int) -> bytes:
        taken = self._raw[self._position : self._position + length]
        if length < 0 or len(taken) != length:
            raise ValueError("it is cut short")
        self._position += length
        return taken

    def text(self) -> str:
        return self.skip(self.short()).decode("utf-8")

    def partitions(self) -> Partitions:
        found: Partitions = {}
        for _ in range(self.number()):
            topic = self.text()
            found[topic] = tuple(self.number() for _ in range(self.number()))
        return found
