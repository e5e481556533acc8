"""Metrics of a node that have more than one value: histograms, what each peer lacks, the change log.

Decides names and units only. Keeps no state; the parts count.

Source: Prometheus, "Metric and label naming".
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily, Metric

from quorum.changelog.recorder import ChangeRecorder
from quorum.node.member import QuorumMember


def families(member: QuorumMember, recorder: ChangeRecorder) -> Iterable[Metric]:
    """Yield them with their values of now."""
    yield from _histograms(member)
    yield from _peers(member)
    for name, text, value in (
        (
            "quorate_changelog_first_zxid",
            "First transaction that the change log retains",
            recorder.first_zxid,
        ),
        ("quorate_changelog_last_zxid", "Last transaction in the change log", recorder.last_zxid),
        ("quorate_changelog_bytes", "Bytes of the change log", recorder.size_bytes),
        (
            "quorate_changelog_pending_bytes",
            "Bytes of changes that wait for the disk",
            recorder.pending_bytes,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=float(value))


def _histograms(member: QuorumMember) -> Iterable[Metric]:
    clients, journal, replica = member.frontend.counters, member.writer.statistics, member.replica
    for name, text, histogram in (
        ("quorate_journal_write_seconds", "The disk's time for a group of the journal", journal.durations),
        ("quorate_apply_seconds", "Applying an entry, a batch of writes as a rule", replica.applies),
        ("quorate_election_seconds", "No leader known, until one was", replica.elections),
        ("quorate_commit_seconds", "A client's write until it is applied here", clients.commits),
        ("quorate_request_seconds", "A client's request until its reply", clients.latencies),
    ):
        yield HistogramMetricFamily(name, text, histogram.buckets(), histogram.sum_s)


def _peers(member: QuorumMember) -> Iterable[Metric]:
    """Yield what each peer lacks; of the leader, nothing elsewhere."""
    status = member.core.status()
    lag = GaugeMetricFamily("quorate_peer_lag_entries", "Log entries that a peer lacks", labels=["peer"])
    inflight = GaugeMetricFamily(
        "quorate_peer_inflight_bytes", "Bytes on their way to a peer", labels=["peer"]
    )
    for peer in status.peers:
        if peer.node_id != status.node_id:
            lag.add_metric([str(peer.node_id)], float(max(0, status.last_index - peer.match_index)))
            inflight.add_metric([str(peer.node_id)], float(peer.inflight_bytes))
    yield lag
    yield inflight
