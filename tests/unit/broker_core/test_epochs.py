"""Where logs part: the ends of leader epochs, and what a follower cuts."""

from __future__ import annotations

import pytest

from broker.core.epochs import EpochEndOffset, epoch_end_at_leader, truncation_offset
from broker.core.fences import has_diverged
from quorum.metadata.numbers import LeaderEpoch


def end_at_leader(requested: int, in_log: tuple[int, int], *, latest: int, end: int = 20) -> EpochEndOffset:
    return epoch_end_at_leader(
        requested,
        in_log,
        latest_epoch_in_log=latest,
        leader_epoch=LeaderEpoch(7),
        epoch_start_offset=15,
        log_end_offset=end,
    )


def test_own_epoch_ends_at_the_end_of_the_log() -> None:
    assert end_at_leader(7, (7, 20), latest=7) == (7, 20)
    assert end_at_leader(7, (-1, -1), latest=4, end=15) == (7, 15)


def test_latest_epoch_in_the_log_ends_where_the_own_epoch_began() -> None:
    assert end_at_leader(4, (4, 15), latest=4, end=15) == (4, 15)
    assert end_at_leader(5, (-1, -1), latest=4, end=15) == (4, 15)
    assert end_at_leader(5, (-1, -1), latest=-1, end=15) == (5, 15)


def test_former_epoch_ends_where_the_log_says() -> None:
    assert end_at_leader(2, (2, 9), latest=7) == (2, 9)
    assert end_at_leader(3, (2, 9), latest=7) == (2, 9)


def test_unknown_epochs_have_no_end() -> None:
    assert end_at_leader(8, (-1, -1), latest=7) == (-1, -1)
    assert end_at_leader(-1, (-1, -1), latest=7) == (-1, -1)


@pytest.mark.parametrize(
    ("end", "last_epoch", "offset", "diverged"),
    [((4, 10), 4, 10, False), ((4, 10), 4, 11, True), ((3, 10), 4, 10, True), ((4, 10), 4, 9, False)],
)
def test_divergence(end: tuple[int, int], last_epoch: int, offset: int, diverged: bool) -> None:
    assert has_diverged(EpochEndOffset(*end), last_epoch, offset) is diverged


def test_follower_cuts_at_the_smaller_end_of_the_epoch() -> None:
    assert truncation_offset(EpochEndOffset(4, 10), EpochEndOffset(4, 12), 15) == 10
    assert truncation_offset(EpochEndOffset(4, 12), EpochEndOffset(4, 10), 15) == 10


def test_follower_without_that_epoch_cuts_its_own_later_epochs_first() -> None:
    assert truncation_offset(EpochEndOffset(4, 10), EpochEndOffset(3, 8), 15) == 8
    assert truncation_offset(EpochEndOffset(4, 10), EpochEndOffset(-1, -1), 15) == 10
