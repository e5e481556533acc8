"""ListOffsets: which offsets a leader names, and what it does not say yet.

While a new leader does not know whether all of the former epochs is committed, it names no offset that could
fall below one that was named before (KIP-207). Finding a record by time is the caller's; here is what may be
said of it.
Source: docs/concepts/guarantees.md, "Consumers"; KIP-79, KIP-207, KIP-405, KIP-734, KIP-1005.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.core.partition import LeaderState
from broker.core.reading import read_limit
from broker.core.replica_inputs import LogView
from controller.wire.codes import ErrorCode

#: Timestamps of ListOffsets that are none.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
#: The first offset on this disk; no records are anywhere else.
EARLIEST_LOCAL: Final = -4
#: The last offset that was moved to other storage: there is none.
LATEST_TIERED: Final = -5


class ListedOffset(NamedTuple):
    """The offset that belongs to a timestamp; -1: none."""

    error_code: ErrorCode
    #: Milliseconds since 1970.
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def is_certain(leader: LeaderState, is_follower: bool) -> bool:
    """Whether a leader may name the end of its log to a reader: it falls no more."""
    return is_follower or leader.knows_what_is_committed()


def without_looking(
    leader: LeaderState, timestamp: int, log: LogView, *, is_follower: bool, read_committed: bool = False
) -> ListedOffset | None:
    """Answer for a timestamp that needs no look at records; None: a record must be found.

    Args:
        leader: this replica.
        timestamp: milliseconds since 1970, or one of the constants above.
        log: the leader's.
        is_follower: sees the end of the log where a consumer sees the high watermark.
        read_committed: a consumer that sees the last stable offset.
    """
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return ListedOffset(ErrorCode.NONE, -1, log.log_start_offset)
    if timestamp == LATEST:
        if not is_certain(leader, is_follower):
            return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        end = read_limit(leader, is_follower, log, read_committed=read_committed)
        return ListedOffset(ErrorCode.NONE, -1, end, leader.leader_epoch)
    if timestamp == LATEST_TIERED:
        return ListedOffset(ErrorCode.NONE)
    return ListedOffset(ErrorCode.INVALID_REQUEST) if timestamp < MAX_TIMESTAMP else None


def of_record(
    timestamp: int, offset: int, log: LogView, *, end_offset: int, is_certain: bool
) -> ListedOffset:
    """Answer with a record that was found.

    Args:
        timestamp: of the record.
        offset: of the record; records of a batch that spans the start may be deleted.
        log: the leader's, as it is now.
        end_offset: what the reader saw (exclusive) when it asked.
        is_certain: whether the leader might name that end then.
    """
    offset = max(offset, log.log_start_offset)
    if offset < end_offset:
        return ListedOffset(ErrorCode.NONE, timestamp, offset)
    return ListedOffset(ErrorCode.NONE if is_certain else ErrorCode.OFFSET_NOT_AVAILABLE)
