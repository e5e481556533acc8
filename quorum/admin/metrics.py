"""Metrics of one node in Prometheus' text format 0.0.4.

Decides which registry a node's metrics live in: one of its own, never the library's global one, so that
several nodes in one process do not mix and a program that embeds a node keeps its registry. Does not know
what is measured; the node hands out its families, read at each scrape. Keeps no state.

Source: Prometheus' exposition formats; prometheus_client, custom collectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quorum import __version__
from quorum.config.certificates import Certificates
from quorum.platform.audit import AuditLog
from quorum.platform.disk_room import FreeRoom
from quorum.platform.interpreter import interpreter

#: What /metrics answers with.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _NodeCollector(Collector):
    """Asks the node for its families at each scrape; tells what runs it."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read
        labels = {"version": __version__, **interpreter()}
        self._build = InfoMetricFamily(
            "quorate_build", "What runs: versions, and how Python was built", labels
        )

    def collect(self) -> Iterable[Metric]:
        """Return the node's families (called by the registry)."""
        yield self._build
        yield from self._read()


class MetricsPage:
    """The metrics page of one node."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Make a registry of the node's families and those of its process and garbage collector.

        Args:
            read: returns the node's metric families with their values of now.
        """
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_NodeCollector(read))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        """Return the page, UTF-8."""
        return generate_latest(self._registry)


def audit_metrics(audit: AuditLog | None) -> Iterable[Metric]:
    """Yield what became of the lines of the audit log; nothing without one."""
    if audit is not None:
        yield CounterMetricFamily(
            "quorate_audit_lines", "Lines of the audit log that are in its file", value=audit.written_count
        )
        yield CounterMetricFamily(
            "quorate_audit_lines_lost",
            "Lines of the audit log that the disk did not take in time",
            value=audit.lost_count,
        )


def room_metrics(room: FreeRoom | None) -> Iterable[Metric]:
    """Yield what room the disk of the data directory has; nothing if that is not known."""
    if room is None:
        return
    for name, text, value in (
        ("free_bytes", "Bytes that are free on the disk of the data directory", room.free_bytes),
        ("size_bytes", "Bytes of the disk of the data directory", room.size_bytes),
        ("free_change_bytes", "How much the free bytes rose; below 0: they fell", room.change_bytes),
        (
            "free_change_seconds",
            "In how many seconds they rose or fell: since metrics were read first",
            room.span_s,
        ),
    ):
        yield GaugeMetricFamily(f"quorate_disk_{name}", text, value=float(value))


def tls_metrics(certificates: Certificates) -> Iterable[Metric]:
    """Yield what the TLS ports of one process have done, and until when their certificates are good."""
    expiry = GaugeMetricFamily(
        "quorate_tls_certificate_expiry_seconds",
        "When the first certificate of a [tls.NAME] expires, in seconds since 1970",
        labels=["name"],
    )
    done = CounterMetricFamily(
        "quorate_tls_handshakes", "TLS handshakes of accepted connections", labels=["port"]
    )
    failed = CounterMetricFamily(
        "quorate_tls_handshakes_failed", "Accepted connections that came to no TLS", labels=["port"]
    )
    for name, until_s in certificates.expiries().items():
        expiry.add_metric([name], until_s)
    for name, port in certificates.ports.items():
        done.add_metric([name], port.handshakes)
        failed.add_metric([name], port.failed)
    yield from (expiry, done, failed)
