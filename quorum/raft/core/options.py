"""Timing and bounds of the core.

Decides which settings make sense together. Knows nothing of configuration files: the shell fills this in. All
of it is fixed for the life of a `Raft`.
"""

from dataclasses import dataclass, fields

from quorum.raft.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one node. Times are milliseconds, bounds are inclusive."""

    election_timeout_min_ms: float = 300.0
    election_timeout_max_ms: float = 600.0
    heartbeat_interval_ms: float = 50.0
    undurable_ms_max: float = 1200.0  #: a leader whose own disk makes nothing durable for so long hands over
    #: first attempt of a node that hears no leader and has a fresh reason to ask (start, a connection came or
    #: went)
    prompt_delay_min_ms: float = 10.0
    prompt_delay_max_ms: float = 50.0
    #: next attempt after a refusal
    retry_delay_min_ms: float = 20.0
    retry_delay_max_ms: float = 40.0
    entry_bytes_max: int = 16 << 20  #: payload of one entry; a larger proposal is refused
    append_bytes_max: int = 1 << 20  #: entries of one message, but always at least one entry
    inflight_bytes_max: int = 16 << 20  #: sent to one peer and not acknowledged
    #: appended by this leader and not committed: more is refused; not durable here: it steps down
    backlog_bytes_max: int = 256 << 20
    committed_bytes_max: int = 8 << 20  #: committed entries of one Ready, but always at least one entry
    log_cache_bytes_max: int = 64 << 20  #: log tail in memory, besides what is not durable or not applied yet
    snapshot_chunk_bytes_max: int = 256 << 10
    outbox_messages_max: int = 4096  #: messages that wait for a hard state's fsync; the oldest are dropped

    def __post_init__(self) -> None:
        """Check the settings together."""
        for field in fields(self):
            value: float = getattr(self, field.name)
            if not value > 0:
                raise ConfigurationError(f"{field.name} is {value}; it must be above 0")
        for name in ("election_timeout", "prompt_delay", "retry_delay"):
            low: float = getattr(self, f"{name}_min_ms")
            high: float = getattr(self, f"{name}_max_ms")
            if low > high:
                raise ConfigurationError(f"{name}_min_ms is {low}, above {name}_max_ms {high}")
        if self.heartbeat_interval_ms > self.election_timeout_min_ms / 3:
            raise ConfigurationError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}; it must be at most a third of "
                f"election_timeout_min_ms ({self.election_timeout_min_ms})"
            )
