"""What the members of a classic group of consumers subscribe to and are assigned, as their bytes say.

Reads the heads of ConsumerProtocolSubscription (version, topics) and ConsumerProtocolAssignment (version,
partitions by topic); every version begins so.
Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final

from quorum.metadata.group_records import MemberRecord
from quorum.metadata.paths import PartitionKey

_HEAD: Final = Struct(">hi")
_LENGTH: Final = Struct(">h")
_NUMBER: Final = Struct(">i")


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


def assigned_partitions(assignment: bytes) -> tuple[PartitionKey, ...] | None:
    """Return the partitions of an assignment; None if it cannot be read."""
    if not assignment:
        return ()
    keys: list[PartitionKey] = []
    try:
        _, count = _HEAD.unpack_from(assignment)
        position = _HEAD.size
        for _ in range(count):
            topic, position = _string(assignment, position)
            (length,) = _NUMBER.unpack_from(assignment, position)
            for _ in range(length):
                position += _NUMBER.size
                keys.append(PartitionKey(topic, _NUMBER.unpack_from(assignment, position)[0]))
            position += _NUMBER.size
    except (error, ValueError):
        return None
    return tuple(keys)


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
