"""Histograms: each duration stands in the bucket of the first bound that it does not exceed."""

from __future__ import annotations

from quorum.platform.histogram import BOUNDS_MS, Histogram


def test_buckets_are_cumulative_and_inclusive() -> None:
    histogram = Histogram()
    histogram.add(0.1)
    histogram.add(0.2, 3)
    histogram.add(1e9)
    buckets = histogram.buckets()
    assert buckets[:3] == [("0.0001", 1.0), ("0.00025", 4.0), ("0.0005", 4.0)]
    assert buckets[-2:] == [("10", 4.0), ("+Inf", 5.0)]
    assert len(buckets) == len(BOUNDS_MS) + 1
    assert histogram.sum_s == (0.1 + 0.6000000000000001 + 1e9) / 1000
