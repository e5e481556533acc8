"""One partition of a fetch: from where it is read, and what was found there. Plain values.

Error codes are Kafka's. Offsets named `…_end_offset` and `high_watermark` are exclusive; -1 is "unknown" or
"none", as on the wire.
Source: Kafka's Fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import TopicId


class FetchPosition(NamedTuple):
    """From where one partition is read; -1: the reader does not say."""

    #: Of a follower: its log end offset.
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    #: Of the follower that fetches.
    log_start_offset: int = -1
    #: None: it goes by the name.
    topic_id: TopicId | None = None


class FetchOutcome(NamedTuple):
    """What was read of one partition."""

    error_code: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    #: Whole batches; the first may begin before the position.
    records: bytes | memoryview = b""
    #: (leader epoch, end offset) where the reader's log parts from this one.
    diverging_epoch: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    #: (broker id, leader epoch), where the reader asked a wrong broker.
    current_leader: tuple[int, int] | None = None
    #: Exclusive; transactions that begin below it have ended.
    last_stable_offset: int = -1
    #: (producer id, first offset) of the aborted transactions that reach into the records; None: all
    #: records were asked for.
    aborted: Sequence[tuple[int, int]] | None = None
