"""What the members of a classic group of consumers subscribe to, as far as their metadata says.

Reads the head of ConsumerProtocolSubscription: version and topics; every version begins so.
Source: ConsumerProtocolSubscription.json (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final

from quorum.metadata.group_records import MemberRecord

_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")


def subscribed_topics(members: Iterable[MemberRecord]) -> set[str] | None:
    """Return the topics of all members; None if the metadata of one cannot be read."""
    topics: set[str] = set()
    for member in members:
        for _, metadata in member.protocols:
            found = _topics(metadata)
            if found is None:
                return None
            topics |= found
    return topics


def _topics(metadata: bytes) -> set[str] | None:
    topics: set[str] = set()
    try:
        _, count = _HEAD.unpack_from(metadata)
        position = _HEAD.size
        for _ in range(count):
            topic, position = _string(metadata, position)
            topics.add(topic)
    except (error, ValueError):
        return None
    return topics


def _string(raw: bytes, position: int) -> tuple[str, int]:
    """Read a string; returns it and the position behind it. Raises struct.error or ValueError."""
    (length,) = _LENGTH.unpack_from(raw, position)
    position += _LENGTH.size
    text = raw[position : position + length]
    if length < 0 or len(text) != length:
        raise ValueError("a string is cut short")
    return text.decode("utf-8"), position + length
