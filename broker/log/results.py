"""What a log answers: where records are, and records.

Source: Kafka's LogAppendInfo and FetchDataInfo (3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.log.aborted import AbortedTransaction


class Appended(NamedTuple):
    """Where records are in the log."""

    base_offset: int
    #: of the last record, inclusive
    last_offset: int
    #: an idempotent producer's repeat: nothing was appended, the offsets are those of the first time
    duplicate: bool
    #: when, where the topic's records have that as their time; -1: they have their producer's
    append_time_ms: int = -1


class Read(NamedTuple):
    """Whole batches; the first one may begin before the offset that was asked for."""

    records: bytes
    #: behind the last record
    next_offset: int
    #: those that reach into the records; None: nobody asked
    aborted: Sequence[AbortedTransaction] | None = None
