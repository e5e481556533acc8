"""How lag is told in records, in seconds and as a trend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.health.lag import ENDS_MAX, LagHistory, LogEnds, Trend, trend
from quorum.metadata.paths import PartitionKey

KEY = PartitionKey("orders", 0)
OTHER = PartitionKey("orders", 1)


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ([1, 2, 3, 4, 5], None),
        ([1, 2, 3, 4, 5, 6], Trend.GROWING),
        ([9, 9, 1, 2, 3, 4, 5, 6], Trend.GROWING),
        ([60, 50, 40, 30, 20, 0], Trend.SHRINKING),
        ([5, 5, 5, 5, 5, 5], Trend.STEADY),
        ([10, 400, 20, 380, 10, 400], Trend.STEADY),
        ([0, 0, 9, 9, 0, 0], Trend.STEADY),
    ],
)
def test_a_trend_is_told_from_the_last_samples(lags: list[int], told: Trend | None) -> None:
    assert trend(lags) is told


def test_seconds_count_from_the_sample_that_showed_the_record() -> None:
    ends = LogEnds()
    for now_s, log_end in ((0.0, 10), (10.0, 20), (20.0, 20), (30.0, 50)):
        ends.see(now_s, log_end)
    assert ends.lag(0, 40.0) == (50, 40.0)
    assert ends.lag(10, 40.0) == (40, 30.0)
    assert ends.lag(19, 40.0) == (31, 30.0)
    assert ends.lag(20, 40.0) == (30, 10.0)
    assert ends.lag(50, 40.0) == (0, 0.0)
    assert ends.lag(60, 40.0) == (0, 0.0), "a commit beyond the end"


def test_a_log_that_begins_anew_forgets_the_old_times() -> None:
    ends = LogEnds()
    ends.see(0.0, 100)
    ends.see(50.0, 3)
    assert ends.lag(0, 60.0) == (3, 10.0)


@given(st.lists(st.integers(0, 5), max_size=400), st.integers(0, 2000))
def test_seconds_never_exceed_how_long_the_record_was_there(steps: list[int], committed: int) -> None:
    """Each sample is a second after the one before; thinning forgets precision and never claims more."""
    ends, log_end, appended_s = LogEnds(), 0, None
    ends.see(0.0, 0)
    for now_s, step in enumerate(steps, 1):
        log_end += step
        if appended_s is None and log_end > committed:
            appended_s = now_s
        ends.see(float(now_s), log_end)
    lag = ends.lag(committed, len(steps))
    assert lag.records == max(0, log_end - committed)
    assert 0 <= lag.seconds <= (0 if appended_s is None else len(steps) - appended_s)


def test_a_log_with_many_ends_keeps_its_first_and_its_latest() -> None:
    ends = LogEnds()
    count = 50 * ENDS_MAX
    for each in range(count):
        ends.see(float(each), each + 1)
    assert ends.lag(0, count).seconds == count
    assert ends.lag(count - 1, count).seconds == 1


def test_a_group_is_summed_over_its_partitions() -> None:
    history = LagHistory()
    committed = {"billing": {KEY: 5, OTHER: 2}, "idle": {}}
    history.take(0.0, committed, {KEY: 8, OTHER: 2})
    found = history.take(10.0, committed, {KEY: 9, OTHER: 7})
    assert found["billing"]._replace(trend=None) == (9, 10.0, None, {KEY: (4, 10.0), OTHER: (5, 0.0)}, 0)
    assert found["idle"] == (0, 0.0, None, {}, 0)


def test_what_no_leader_says_is_unknown_and_no_number() -> None:
    history = LagHistory()
    committed = {"billing": {KEY: 5, OTHER: 2}}
    history.take(0.0, committed, {KEY: 8, OTHER: 12})
    away = history.take(10.0, committed, {KEY: 8})["billing"]
    assert (away.records, away.unknown, away.partitions) == (3, 1, {KEY: (3, 10.0)})
    back = history.take(20.0, committed, {KEY: 8, OTHER: 12})["billing"]
    assert back.partitions[OTHER] == (10, 20.0), "what was seen before the leader went away still counts"


def test_a_missing_partition_makes_no_trend() -> None:
    history = LagHistory()
    committed = {"billing": {KEY: 0, OTHER: 0}}
    for each in range(5):
        history.take(float(each), committed, {KEY: each, OTHER: 100})
    assert history.take(5.0, committed, {KEY: 5})["billing"].trend is None
    assert history.take(6.0, committed, {KEY: 6, OTHER: 100})["billing"].trend is None


def test_a_group_that_reads_slower_than_is_written_grows() -> None:
    history = LagHistory()
    for each in range(6):
        found = history.take(float(each), {"billing": {KEY: each}}, {KEY: 3 * each})
    assert found["billing"].trend is Trend.GROWING


def test_what_nobody_commits_any_more_is_forgotten() -> None:
    history = LagHistory()
    history.take(0.0, {"billing": {KEY: 0}}, {KEY: 5})
    assert history.take(1.0, {}, {KEY: 5}) == {}
    assert history.take(2.0, {"billing": {KEY: 0}}, {KEY: 5})["billing"].seconds == 0.0
