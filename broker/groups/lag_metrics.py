"""The lag of consumer groups as metrics.

Names follow those of Kafka's lag exporters. A partition whose leader does not say where its log ends has no
value. Keeps nothing.
Source: Prometheus naming conventions; ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from broker.groups.lag import SERIES_MAX, LagsSeen


def lag_metrics(seen: LagsSeen) -> Iterable[Metric]:
    """Return the families; without values before the first round has ended."""
    each = ["group", "topic", "partition"]
    records = GaugeMetricFamily(
        "quorate_group_lag_records",
        f"records of a partition that a group has not committed; the {SERIES_MAX} largest lags",
        labels=each,
    )
    seconds = GaugeMetricFamily(
        "quorate_group_lag_seconds",
        "for how long the oldest record of a partition waits, at least: since the coordinator first saw it",
        labels=each,
    )
    sums = GaugeMetricFamily(
        "quorate_group_sum_lag_records",
        "records that a group has not committed, of all partitions whose leaders say where they end",
        labels=["group"],
    )
    longest = GaugeMetricFamily(
        "quorate_group_max_lag_seconds",
        "for how long the oldest record waits that a group has not committed, at least",
        labels=["group"],
    )
    unknown = GaugeMetricFamily(
        "quorate_group_unknown_lag_partitions",
        "partitions of a group whose leaders do not say where they end",
        labels=["group"],
    )
    for group, key, lag in seen.rows:
        names = [group, key.topic, str(key.partition)]
        records.add_metric(names, lag.records)
        seconds.add_metric(names, lag.seconds)
    for group, found in (seen.groups or {}).items():
        # What no leader says is absent.
        if found.partitions:
            sums.add_metric([group], found.records)
            longest.add_metric([group], found.seconds)
        unknown.add_metric([group], found.unknown)
    yield from (records, seconds, sums, longest, unknown)
    yield GaugeMetricFamily(
        "quorate_group_lag_left_out",
        "partitions of groups that are left out of quorate_group_lag_records and of the seconds",
        value=seen.left_out,
    )
