"""Which topics the members of a classic group of consumers subscribe to."""

from __future__ import annotations

from collections.abc import Iterable

from controller.wire.consumer_protocol import read_subscription
from quorum.metadata.group_records import MemberRecord


def subscribed_topics(members: Iterable[MemberRecord]) -> set[str] | None:
    """Return the topics of all members; None if the metadata of one cannot be read."""
    topics: set[str] = set()
    for member in members:
        for _, metadata in member.protocols:
            found = read_subscription(metadata)
            if found is None:
                return None
            topics.update(found.topics)
    return topics
