"""What a producer sent for one partition: one batch, looked at from its first byte to its last.

Two steps: the batch as a whole, which is quick, and its records, which may be compressed or many, so that the
caller does it in a thread. What does not fit is refused as INVALID_RECORD; nothing of it is stored, since a
reader that meets it stops without an error.
Source: Kafka's LogValidator (3.9), which also writes the largest timestamp into the header.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batches import (
    CODEC_MASK,
    CRC_FROM,
    HEADER,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
    check_produced,
    checked_batch,
)
from broker.log.errors import AppendError, UnreadableBatchError
from broker.log.opened import opened
from broker.log.records import walk
from broker.log.unfolding import UNFOLDED_BYTES_MAX
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_setting_rows import INT64_MAX
from quorum.metadata.topic_settings import TopicSettings

#: what a batch may unfold to, as a multiple of max.message.bytes; UNFOLDED_BYTES_MAX in any case
UNFOLDED_FACTOR: Final = 16
#: records of one batch that an answer names
RECORD_ERRORS_MAX: Final = 1000


class ProducedBatch(NamedTuple):
    """A whole batch of a kind that is taken; its records were not looked at."""

    header: BatchHeader
    content: Buffer
    unfolded_bytes_max: int
    #: whether the topic limits how old its records may be
    age_matters: bool
    key: PartitionKey
    #: whether the topic is compacted: each record needs a key
    keys_matter: bool

    @property
    def is_compressed(self) -> bool:
        """Whether its records must be unfolded first."""
        return self.header.attributes & CODEC_MASK != 0


class CheckedBatch(NamedTuple):
    """A batch that may be appended."""

    header: BatchHeader
    content: memoryview
    #: whether a record has no key
    key_missing: bool
    #: the smallest time of a record; None: the topic has no limit for it, or no record has a time
    oldest_ms: int | None = None


def produced_batch(records: Buffer, settings: TopicSettings, key: PartitionKey) -> ProducedBatch:
    """Check what a producer sent for one partition, but for the records inside: it must be one whole batch.

    Args:
        records: one batch.
        settings: the topic's.
        key: which partition.
    """
    header = checked_batch(memoryview(records), 0)
    if header.size != len(records):
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"{len(records)} bytes for one partition, its first batch has {header.size}: "
            "send one batch for each partition",
        )
    check_produced(header, settings)
    unfolded_bytes_max = min(UNFOLDED_FACTOR * settings.max_message_bytes, UNFOLDED_BYTES_MAX)
    age_matters = not settings.has_append_time and settings.timestamp_before_max_ms != INT64_MAX
    return ProducedBatch(header, records, unfolded_bytes_max, age_matters, key, settings.compacts)


def checked_batch_of(
    batch: ProducedBatch,
    *,
    unfolded_bytes_max: int = UNFOLDED_BYTES_MAX,
    plain_bytes_max: int = UNFOLDED_BYTES_MAX,
) -> CheckedBatch:
    """Look at the records of a batch; may run in any thread.

    Args:
        batch: whose `unfolded_bytes_max` is kept.
        unfolded_bytes_max: what else bounds it.
        plain_bytes_max: as in walk().
    """
    try:
        bytes_max = min(unfolded_bytes_max, batch.unfolded_bytes_max)
        walked = walk(
            batch.header,
            batch.content,
            oldest=batch.age_matters,
            unfolded_bytes_max=bytes_max,
            plain_bytes_max=plain_bytes_max,
        )
    except UnreadableBatchError as error:
        raise AppendError(ErrorCode.INVALID_RECORD, error.message) from error
    if walked.key_missing and batch.keys_matter:
        raise _without_keys(batch)
    checked = CheckedBatch(batch.header, memoryview(batch.content), walked.key_missing, walked.oldest)
    if walked.timestamp == batch.header.max_timestamp:
        return checked
    # Look-ups by time and retention believe the header.
    return with_header(checked, batch.header._replace(max_timestamp=walked.timestamp))


def _keyless(key: PartitionKey) -> str:
    """Return Kafka's words."""
    return f"Compacted topic cannot accept message without key in topic partition {key.topic}-{key.partition}"


def _without_keys(batch: ProducedBatch) -> AppendError:
    """Return Kafka's error for a batch with records that have no key."""
    records = opened(batch.header, batch.content)
    keyless = _keyless(batch.key)
    found = [(number, keyless) for number, each in enumerate(records) if each.key is None]
    some = ", ".join(f"RecordError(batchIndex={number}, message='{text}')" for number, text in found[:3])
    return AppendError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(found)} record errors in total, "
        f"and only showing the first three errors at most: [{some}]",
        found[:RECORD_ERRORS_MAX],
    )


def with_times(batch: CheckedBatch, settings: TopicSettings, key: PartitionKey, now_ms: int) -> CheckedBatch:
    """Give a batch the time of its append, or check the times that its producer gave, as its topic wants.

    Args:
        batch: from checked_batch_of().
        settings: the topic's.
        key: which partition.
        now_ms: the time of the append.
    """
    header = batch.header
    if batch.key_missing and settings.compacts:
        # The topic is compacted only since the batch was checked.
        raise AppendError(ErrorCode.INVALID_RECORD, _keyless(key))
    if settings.has_append_time:
        stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
        return with_header(batch, stamped)
    low = now_ms - settings.timestamp_before_max_ms
    high = now_ms + settings.timestamp_after_max_ms
    oldest_ms = low if batch.oldest_ms is None else batch.oldest_ms
    if oldest_ms < low or header.max_timestamp > high:
        found = oldest_ms if oldest_ms < low else header.max_timestamp
        raise AppendError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {found} of a record is out of range. The timestamp should be within [{low}, {high}]",
        )
    return batch


def with_header(batch: CheckedBatch, header: BatchHeader) -> CheckedBatch:
    """Return a batch with the same records and another header, whose checksum becomes right.

    Args:
        batch: from checked_batch_of().
        header: says the same about the records, but for their times.
    """
    records = batch.content[HEADER.size :]
    header = header._replace(crc=crc32c(records, crc32c(HEADER.pack(*header)[CRC_FROM:])))
    content = memoryview(b"".join((HEADER.pack(*header), records)))
    return batch._replace(header=header, content=content)
