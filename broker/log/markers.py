"""How a transaction ends in a partition: a control batch with one record, which its coordinator sends.

Source: KIP-98; Kafka's EndTransactionMarker and ControlRecordType (3.9), version 0 of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batches import (
    CONTROL,
    CRC_FROM,
    HEADER,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from broker.log.produced import CheckedBatch

#: the end of the record: delta of the offset, length of the key; key: version, type; length of the value;
#: value: version, coordinator epoch; number of headers
_RECORD: Final = Struct(">2shhBhiB")
#: length, attributes, delta of the time
_BEFORE: Final = b"\x20\0\0"
#: the delta has more bytes where compaction has written a delete horizon into the header
_BEFORE_BYTES_MAX: Final = len(_BEFORE) + 9
_BEFORE_KEY: Final = b"\0\x08"
_BEFORE_VALUE: Final = 0x0C
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    """What the record of such a batch says."""

    is_commit: bool
    #: fences coordinators that another one has followed
    coordinator_epoch: int


def end_marker_in(header: BatchHeader, parts: Sequence[Buffer]) -> EndMarker | None:
    """Return what a control batch says; None: it is about something else.

    Args:
        header: of a control batch.
        parts: the batch; its record is in the last one.
    """
    size, content = header.size - HEADER.size, parts[-1]
    # The length is a zigzag varint of one byte: there is no second record.
    if not len(_BEFORE) <= size - _RECORD.size <= _BEFORE_BYTES_MAX or content[-size] != 2 * (size - 1):
        return None
    found = _RECORD.unpack_from(content, len(content) - _RECORD.size)
    before_key, key_version, kind, before_value, version, coordinator_epoch, headers_count = found
    shape = (before_key, key_version, before_value, version, headers_count)
    if shape != (_BEFORE_KEY, _VERSION, _BEFORE_VALUE, _VERSION, 0) or kind not in (_ABORT, _COMMIT):
        return None
    return EndMarker(kind == _COMMIT, coordinator_epoch)


def end_batch(producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int) -> CheckedBatch:
    """Return the control batch that ends a producer's transaction."""
    kind = _COMMIT if marker.is_commit else _ABORT
    record = _BEFORE + _RECORD.pack(
        _BEFORE_KEY, _VERSION, kind, _BEFORE_VALUE, _VERSION, marker.coordinator_epoch, 0
    )
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER.size - LENGTH_OVERHEAD + len(record),
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        records_count=1,
    )
    header = header._replace(crc=crc32c(record, crc32c(HEADER.pack(*header)[CRC_FROM:])))
    return CheckedBatch(header, memoryview(HEADER.pack(*header) + record), key_missing=False)
