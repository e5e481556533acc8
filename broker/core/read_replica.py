"""Which replica a consumer should read from: one in its own rack that has what it wants.

Only the leader decides; it knows how far the followers are. Racks are compared as strings.
Source: docs/concepts/guarantees.md, "Consumers"; KIP-392.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.core.partition import LeaderState

#: The leader itself.
NO_PREFERENCE: Final = -1


def preferred_read_replica(
    leader: LeaderState, racks: Mapping[int, str], rack: str, fetch_offset: int, log_end_offset: int
) -> int:
    """Return a follower in sync in the consumer's rack, the one that is furthest; or NO_PREFERENCE.

    Args:
        leader: the partition's state.
        racks: {live broker id: rack}, "" for none.
        rack: the consumer's, "" if it did not say.
        fetch_offset: what it asks for.
        log_end_offset: the leader's.
    """
    if not rack or racks.get(leader.broker_id) == rack:
        return NO_PREFERENCE
    best, furthest = NO_PREFERENCE, -1
    for replica in leader.isr:
        progress = leader.followers.get(replica)
        if progress is None or racks.get(replica) != rack:
            continue
        reaches = progress.log_start_offset <= fetch_offset <= min(progress.log_end_offset, log_end_offset)
        if reaches and progress.log_end_offset > furthest:
            best, furthest = replica, progress.log_end_offset
    return best
