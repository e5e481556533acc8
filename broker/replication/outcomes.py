"""What callers hand to the parts of replication and what these answer, as plain values.

Error codes are Kafka's. Offsets named `…_end_offset` and `high_watermark` are exclusive; -1 is "unknown" or
"none", as on the wire.
Source: Kafka's Fetch, Produce, ListOffsets and OffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.wire.codes import ErrorCode


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """Settings of replication in one broker; times in milliseconds."""

    #: A follower that has not caught up for so long leaves the ISR.
    replica_lag_time_max_ms: int = 30_000
    #: How long a leader may hold a follower's fetch that finds nothing new.
    replica_fetch_wait_max_ms: int = 500
    #: What a follower asks for in one fetch: of one partition, and in all.
    replica_fetch_max_bytes: int = 1024 * 1024
    replica_fetch_response_max_bytes: int = 10 * 1024 * 1024
    #: A fetch without an answer for so long counts as a lost connection.
    replica_socket_timeout_ms: int = 30_000
    #: Pauses between attempts to reach a leader: the first, doubled up to the last.
    replica_fetch_backoff_ms: int = 50
    replica_fetch_backoff_max_ms: int = 1000
    #: Fetch sessions that this broker holds.
    max_incremental_fetch_session_cache_slots: int = 1000
    high_watermark_checkpoint_interval_ms: int = 5000
    #: How often segments are closed for their age, at most, and old ones removed.
    retention_check_interval_ms: int = 60_000
    #: How often it is looked which logs are to be compacted; what keys may take in memory; what is read and
    #: written for it in a second.
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 * 1024 * 1024
    log_cleaner_io_max_bytes_per_second: int = 2**63 - 1
    #: Whether the coordinator is asked before the first record of a transaction is appended.
    verifies_transactions: bool = True
    #: A disk that does not answer for so long has failed.
    disk_hang_ms: float = 2000.0


class ProduceOutcome(NamedTuple):
    """What became of the records for one partition."""

    error_code: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    #: (number in the batch, what is wrong)
    record_errors: Sequence[tuple[int, str]] = ()


class DeleteOutcome(NamedTuple):
    """What became of deleting the records before an offset."""

    error_code: ErrorCode
    #: No live replica has records below it.
    low_watermark: int = -1


class EpochEnd(NamedTuple):
    """Where a leader epoch ended (exclusive)."""

    error_code: ErrorCode
    leader_epoch: int = -1
    end_offset: int = -1


@dataclass(slots=True)
class Counters:
    """What has happened since the process started."""

    isr_shrinks: int = 0
    isr_expansions: int = 0
    isr_conflicts: int = 0
    truncations: int = 0
    #: by producers; a repeated batch does not count
    records_produced: int = 0
    bytes_produced: int = 0
    #: given to consumers, and to followers
    bytes_consumed: int = 0
    bytes_replicated: int = 0
