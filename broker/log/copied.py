"""Batches that a follower copies: they continue its log as the leader has them.

Source: Kafka's UnifiedLog.appendAsFollower (3.9), KIP-107.
"""

from __future__ import annotations

from broker.log.batches import BatchHeader, Buffer, checked_batches
from broker.log.cleaning.rewriting import empty_batch
from broker.log.errors import AppendError
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey


def copied_batches(
    records: Buffer, offset: int, key: PartitionKey, *, is_empty: bool
) -> tuple[list[BatchHeader], list[tuple[Buffer, ...]]]:
    """Split what a leader answered into its batches.

    Args:
        records: one or more whole batches.
        offset: where the log ends.
        key: the partition, for the error.
        is_empty: whether the log has no batch. Its first one may begin before the log does, if records of
            that batch were deleted.

    Returns:
        The headers, and the bytes of each batch.
    """
    view = memoryview(records)
    headers: list[BatchHeader] = []
    buffers: list[tuple[Buffer, ...]] = []
    position = 0
    for found in checked_batches(view):
        header = found
        content: Buffer = view[position : position + header.size]
        position += header.size
        if not buffers and not header.records_count and header.base_offset < offset <= header.last_offset:
            # The leader has compacted what is around the end of this log: the rest of the gap continues it.
            left = header.last_offset - offset
            header, content = empty_batch(header._replace(base_offset=offset, last_offset_delta=left))
        spans_start = is_empty and not buffers and header.base_offset <= offset <= header.last_offset
        if header.base_offset != offset and not spans_start:
            raise AppendError(
                ErrorCode.INVALID_RECORD,
                f"batch at offset {header.base_offset} of the leader; "
                f"{key.topic}-{key.partition} goes on at {offset}",
            )
        headers.append(header)
        buffers.append((content,))
        offset = header.last_offset + 1
    return headers, buffers
