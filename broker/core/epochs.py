"""Where two logs of one partition part: the end of a leader epoch, and how far a follower truncates.

Leader epochs tell what offsets alone cannot: two logs of equal length may hold different records. The leader
answers where an epoch ended in its log; the follower cuts its own log there. Pure functions over what a log
answers.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorum.metadata.numbers import LeaderEpoch

UNDEFINED: Final = -1


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the one asked for, and where it ended (exclusive)."""

    leader_epoch: int
    end_offset: int


def epoch_end_at_leader(
    requested: int,
    in_log: tuple[int, int],
    *,
    latest_epoch_in_log: int,
    leader_epoch: LeaderEpoch,
    epoch_start_offset: int,
    log_end_offset: int,
) -> EpochEndOffset:
    """Return the end of an epoch as the leader sees it.

    The leader's own epoch counts from the moment of the election, also while its log holds no record of it.

    Args:
        requested: the epoch that a follower or consumer fetched last.
        in_log: what the log answers for it; (-1, -1) if it knows no later epoch.
        latest_epoch_in_log: -1 if the log is empty.
        leader_epoch: the present one.
        epoch_start_offset: the log end offset when it began.
        log_end_offset: the present one.
    """
    if requested == leader_epoch:
        return EpochEndOffset(requested, log_end_offset)
    if requested > leader_epoch or requested == UNDEFINED:
        return EpochEndOffset(UNDEFINED, UNDEFINED)
    if in_log[1] != UNDEFINED:
        return EpochEndOffset(*in_log)
    floor = requested if latest_epoch_in_log == UNDEFINED else latest_epoch_in_log
    return EpochEndOffset(floor, epoch_start_offset)


def truncation_offset(leader_end: EpochEndOffset, own_end: EpochEndOffset, log_end_offset: int) -> int:
    """Return where a follower cuts its log after the leader answered with a diverging epoch.

    Args:
        leader_end: the leader's answer.
        own_end: what the own log answers for that epoch.
        log_end_offset: the own one.
    """
    if own_end.end_offset == UNDEFINED:
        return min(leader_end.end_offset, log_end_offset)
    if own_end.leader_epoch != leader_end.leader_epoch:
        # The epochs between differ too: cut what is certainly wrong, the next fetch compares again.
        return min(own_end.end_offset, log_end_offset)
    return min(leader_end.end_offset, own_end.end_offset, log_end_offset)
