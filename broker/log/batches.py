"""Record batches of format 2: their header, their checksum, and what a producer may send.

Reads headers only; records stay closed (broker/log/records.py opens them). The
base offset, the length and the partition leader epoch stand before the checksummed part, so a leader sets
them without a new checksum.
Source: Kafka protocol guide, "Record Batch"; Kafka's LogValidator (3.9).
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.errors import AppendError
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings

Buffer = bytes | memoryview

#: base_offset … records_count, 61 bytes
HEADER: Final = Struct(">qiibIhiqqqhii")
#: base_offset, batch_length, partition_leader_epoch: what the leader sets
PREFIX: Final = Struct(">qii")
#: base_offset and batch_length, which batch_length does not count
LENGTH_OVERHEAD: Final = 12
#: the checksum covers everything from the attributes on
CRC_FROM: Final = 21
MAGIC: Final = 2
_LENGTH_MIN: Final = HEADER.size - LENGTH_OVERHEAD

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_CODEC_MAX: Final = 4
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class BatchHeader(NamedTuple):
    """The header of one batch, as on disk and on the wire."""

    base_offset: int
    #: bytes that follow this field
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    #: -1: not idempotent
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; numbers start again at 0 after 2³¹ − 1."""
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK

    @property
    def append_time_ms(self) -> int:
        """When it was appended, which all its records have as their time; -1: they have their producer's."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else NO_TIMESTAMP


def parse_header(buffer: Buffer, position: int) -> BatchHeader:
    """Read the header that begins at a position; 61 bytes must be there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def plausible(header: BatchHeader) -> bool:
    """Whether bytes look like a header at all: what is checked before its length is believed."""
    return header.magic == MAGIC and header.batch_length >= _LENGTH_MIN and header.last_offset_delta >= 0


def crc_matches(header: BatchHeader, buffer: memoryview, position: int) -> bool:
    """Whether the whole batch at a position has the checksum that its header gives."""
    return header.crc == crc32c(buffer[position + CRC_FROM : position + header.size])


def checked_batches(records: memoryview) -> list[BatchHeader]:
    """Split records into whole batches and check the checksum of each.

    Returns:
        At least one header; the batches follow one another from the first byte to the last.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(records)
    while position < end or not headers:
        headers.append(checked_batch(records, position))
        position += headers[-1].size
    return headers


def whole_size(records: memoryview) -> int:
    """Return how many bytes from the first one on are whole batches with right checksums."""
    position = 0
    with suppress(AppendError):
        while position < len(records):
            position += checked_batch(records, position).size
    return position


def checked_batch(records: memoryview, position: int) -> BatchHeader:
    """Read the header of the batch that begins at a position; the whole batch must be there, and right."""
    end = len(records)
    if end - position < HEADER.size:
        # An old message set can be shorter than a header of format 2.
        if end - position > LENGTH_OVERHEAD + 4 and records[position + 16] != MAGIC:
            _refuse_magic(records[position + 16])
        raise AppendError(
            ErrorCode.CORRUPT_MESSAGE if end else ErrorCode.INVALID_RECORD,
            f"records of {end} bytes end inside of a batch, at byte {position}" if end else "no record batch",
        )
    header = parse_header(records, position)
    if header.magic != MAGIC:
        _refuse_magic(header.magic)
    if not plausible(header) or header.size > end - position or not crc_matches(header, records, position):
        raise AppendError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at byte {position} of {end}: its length ({header.size}) or its checksum is wrong",
        )
    return header


def _refuse_magic(magic: int) -> None:
    raise AppendError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"record batch of format {magic}: only format 2 is stored (Kafka clients from 0.11 on send it)",
    )


def check_produced(header: BatchHeader, settings: TopicSettings) -> None:
    """Check what a producer may send in one batch; the checksum was checked before.

    Args:
        header: the batch's.
        settings: the topic's.
    """
    if header.size > settings.max_message_bytes:
        raise AppendError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {header.size} bytes: max.message.bytes is {settings.max_message_bytes}",
        )
    if header.size > settings.segment_bytes:
        raise AppendError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"batch of {header.size} bytes: segment.bytes is {settings.segment_bytes}",
        )
    if header.records_count != header.last_offset_delta + 1:
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"batch of {header.records_count} records spans {header.last_offset_delta + 1} offsets",
        )
    if header.attributes & CONTROL:
        raise AppendError(ErrorCode.INVALID_RECORD, "a control batch: clients write records")
    if header.attributes & LOG_APPEND_TIME:
        raise AppendError(ErrorCode.INVALID_TIMESTAMP, "a producer does not set the time of appending")
    if header.attributes & CODEC_MASK > _CODEC_MAX:
        raise AppendError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {header.attributes & CODEC_MASK}"
        )
    if header.producer_id != NO_PRODUCER:
        _check_idempotent(header)
    elif header.attributes & TRANSACTIONAL:
        raise AppendError(ErrorCode.INVALID_RECORD, "a transactional batch without a producer id")


def _check_idempotent(header: BatchHeader) -> None:
    if header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0:
        raise AppendError(
            ErrorCode.INVALID_RECORD,
            f"producer id {header.producer_id} with epoch {header.producer_epoch} "
            f"and sequence number {header.base_sequence}",
        )
