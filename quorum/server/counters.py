"""What the client port counts, for the four-letter words and the metrics.

Plain numbers that only rise, but the extremes of the latency; a chunk of requests or a run of replies costs
one addition. Soft state. Source: ServerStats of ZooKeeper 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from quorum.platform.histogram import Histogram


@dataclass(slots=True)
class Waits:
    """How long the writes of one connection waited for their outcome, in milliseconds."""

    runs: int = 0
    requests: int = 0
    total_ms: float = 0.0
    last_ms: float = 0.0
    min_ms: float = 0.0
    max_ms: float = 0.0

    def waited(self, requests: int, latency_ms: float) -> None:
        """Count requests that were answered together."""
        self.min_ms = min(self.min_ms, latency_ms) if self.runs else latency_ms
        self.max_ms = max(self.max_ms, latency_ms)
        self.last_ms = latency_ms
        self.total_ms += requests * latency_ms
        self.requests += requests
        self.runs += 1


@dataclass(slots=True)
class Counters:
    """Totals since the start of this process."""

    requests_received: int = 0
    #: replies and events
    packets_sent: int = 0
    connections_accepted: int = 0
    #: closed at once: too many from one address
    connections_rejected: int = 0
    #: closed because nothing could be promised: no leader, or the client has seen more than this node
    handshakes_refused: int = 0
    malformed_frames: int = 0
    #: connections closed because their replies were not read
    overflows: int = 0
    #: connections closed because all together held too much, or no file was left
    connections_shed: int = 0
    #: reads refused because a connection may have no more watches
    watches_refused: int = 0
    latency_count: int = 0
    latency_total_ms: float = 0.0
    latency_min_ms: float = 0.0
    latency_max_ms: float = 0.0
    #: of requests, and of writes among them; never reset
    latencies: Histogram = field(default_factory=Histogram)
    commits: Histogram = field(default_factory=Histogram)

    def answered(self, requests: int, latency_ms: float) -> None:
        """Count requests that were answered together."""
        self.latencies.add(latency_ms, requests)
        self.latency_max_ms = max(self.latency_max_ms, latency_ms)
        if not self.latency_count or latency_ms < self.latency_min_ms:
            self.latency_min_ms = latency_ms
        self.latency_count += requests
        self.latency_total_ms += requests * latency_ms

    def reset(self) -> None:
        """Begin to count again what a server's statistics are made of; refusals stay counted."""
        self.requests_received = self.packets_sent = self.latency_count = 0
        self.latency_total_ms = self.latency_min_ms = self.latency_max_ms = 0.0

    def latency_average_ms(self) -> float:
        """Return the average over all answered requests, 0 if there were none."""
        return self.latency_total_ms / self.latency_count if self.latency_count else 0.0
