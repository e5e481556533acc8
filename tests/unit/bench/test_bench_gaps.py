"""The longest pause between acknowledgements, and quantiles of requests one by one."""

from __future__ import annotations

from tests.bench.gaps import longest_gap_s
from tests.support.wire_load import one_by_one


def test_only_pauses_that_end_after_the_strike_count() -> None:
    times_s = [0.0, 5.0, 5.1, 5.9, 6.0]
    assert longest_gap_s(times_s, 0.0) == 5.0
    assert round(longest_gap_s(times_s, 5.0), 6) == 0.8
    assert longest_gap_s(times_s, 6.0) == 0.0
    assert longest_gap_s([], 0.0) == 0.0


def test_a_pause_that_the_strike_falls_into_counts_from_its_beginning() -> None:
    assert longest_gap_s([1.0, 4.0], 3.0) == 3.0


def test_quantiles_of_requests_that_waited_for_each_other() -> None:
    outcome = one_by_one([0.001 * number for number in range(100, 0, -1)])
    assert outcome.count == 100
    assert round(outcome.elapsed_s, 6) == 5.05
    assert round(outcome.p50_ms, 6) == 51.0
    assert round(outcome.p99_ms, 6) == 100.0
    assert one_by_one([0.002]).p99_ms == 2.0
