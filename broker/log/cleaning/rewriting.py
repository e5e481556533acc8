"""What is left of the batches of a log once it is compacted. Pure.

Offsets stay as they are, and the log has no hole: in place of records that went stands one empty batch. The
base offset of a batch is in no checksum, so that batches follow one another is what tells a damaged one.

A tombstone stays delete.retention.ms after the first round that saw it as the last record of its key; until
when is written into the header of its batch, in place of the base timestamp. A batch by whose sequence number
a producer's repeat is known stays, maybe without records. A batch is folded by its own codec.

Records of aborted transactions go. A marker goes as a tombstone does, after the first round that met no batch
of its transaction; one by which alone a producer's epoch is known stays.
Source: KIP-534; Kafka's Cleaner.shouldRetainRecord and MemoryRecords.filterTo (3.9).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batches import (
    CODEC_MASK,
    CONTROL,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)
from broker.log.cleaning.aborted import Transactions
from broker.log.cleaning.keys import digest
from broker.log.folding import folded
from broker.log.markers import end_marker_in
from broker.log.opened import StoredRecord, opened

_NO_SEQUENCE: Final = -1
_MS_MAX: Final = 2**62

Batch = tuple[BatchHeader, Buffer]


class Rules(NamedTuple):
    """What stays."""

    #: {digest of a key: twice its last offset, and 1 if that is a tombstone}, of what is dirty
    last: Mapping[bytes, int]
    #: the values of `last`, rising
    survivors: Sequence[int]
    #: the batch with this record, and those behind it, were looked at for `last`
    first_dirty: int
    #: records from here on stay
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    #: (producer id, last offset) of the batches by which repeats are known
    remembered: Collection[tuple[int, int]] = frozenset()
    #: (producer id, epoch) of the markers by which alone an epoch is known
    fencing: Collection[tuple[int, int]] = frozenset()
    #: records before it were deleted
    start_offset: int = 0
    #: records with an older time go: the topic deletes, too; None: it does not
    oldest_ms: int | None = None


def cleaned(
    batches: Iterable[Batch], rules: Rules, transactions: Transactions, end_offset: int
) -> Iterator[Batch]:
    """Yield what stays of batches, without a hole.

    Args:
        batches: each begins where the one before it ends.
        rules: what stays.
        transactions: of the log, which have met every batch before these.
        end_offset: where the last one ends.
    """
    gap: BatchHeader | None = None
    for header, content in batches:
        kept = _kept(header, content, rules, transactions)
        if kept is None:
            if gap is not None and gap.partition_leader_epoch == header.partition_leader_epoch:
                gap = gap._replace(last_offset_delta=header.last_offset - gap.base_offset)
                continue
            if gap is not None:
                yield empty_batch(gap)
            gap = _gap(header)
            continue
        if gap is not None:
            yield empty_batch(gap)
            gap = None
        yield kept
    if gap is not None:
        assert gap.last_offset + 1 == end_offset
        yield empty_batch(gap)


def _gap(header: BatchHeader) -> BatchHeader:
    """Return the header of an empty batch in place of another one."""
    return header._replace(
        batch_length=HEADER.size - LENGTH_OVERHEAD,
        magic=MAGIC,
        attributes=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=_NO_SEQUENCE,
        records_count=0,
    )


def empty_batch(header: BatchHeader) -> Batch:
    """Return the batch of a header that has no records; it gets its length and its checksum."""
    return _with_records(header, b"")


def _with_records(header: BatchHeader, records: bytes) -> Batch:
    """Return a batch of a header, which gets its length and its checksum, and of stored records."""
    header = header._replace(batch_length=HEADER.size - LENGTH_OVERHEAD + len(records))
    header = header._replace(crc=crc32c(records, crc32c(HEADER.pack(*header)[CRC_FROM:])))
    return header, HEADER.pack(*header) + records


def _kept(header: BatchHeader, content: Buffer, rules: Rules, transactions: Transactions) -> Batch | None:
    """Return what stays of one batch; None: nothing."""
    if header.attributes & CONTROL:
        return _kept_marker(header, content, rules, transactions)
    is_aborted = transactions.aborts(header)
    if header.base_offset >= rules.end_offset:
        return header, content
    is_remembered = (header.producer_id, header.last_offset) in rules.remembered
    if not header.records_count:
        return (header, content) if is_remembered else None
    kept = [] if is_aborted else _staying(header, content, rules)
    horizon_ms = None
    if not header.attributes & DELETE_HORIZON and any(
        _is_judged_tombstone(header, each, rules) for each in kept or ()
    ):
        horizon_ms = _horizon_ms(rules)
    if kept is None or (len(kept) == header.records_count and horizon_ms is None):
        return header, content
    if kept:
        return _rewritten(header, kept, horizon_ms)
    if not is_remembered:
        return None
    # It has the time of no record, so that no look-up by time leads here.
    return empty_batch(
        header._replace(
            attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON | LOG_APPEND_TIME),
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            records_count=0,
        )
    )


def _kept_marker(
    header: BatchHeader, content: Buffer, rules: Rules, transactions: Transactions
) -> Batch | None:
    if end_marker_in(header, (content,)) is None:
        return header, content
    is_needed = transactions.ends_any(header) or (header.producer_id, header.producer_epoch) in rules.fencing
    if is_needed or header.base_offset >= rules.end_offset:
        return header, content
    if not header.attributes & DELETE_HORIZON:
        return _rewritten(header, opened(header, content), _horizon_ms(rules))
    return (header, content) if rules.now_ms < header.base_timestamp else None


def _horizon_ms(rules: Rules) -> int:
    return min(rules.now_ms + rules.delete_retention_ms, _MS_MAX)


def _staying(header: BatchHeader, content: Buffer, rules: Rules) -> list[StoredRecord] | None:
    """Return the records that stay; None: all do, and none is a tombstone."""
    is_clean = header.last_offset < rules.first_dirty or header.attributes & DELETE_HORIZON
    if is_clean or rules.oldest_ms is not None or header.base_offset < rules.start_offset:
        return [each for each in opened(header, content) if _stays(header, each, rules)]
    # What is dirty was opened before; now the offsets say what stays.
    first = bisect_left(rules.survivors, 2 * header.base_offset)
    last = rules.survivors[first : bisect_left(rules.survivors, 2 * header.last_offset + 2, first)]
    if not last:
        return []
    if len(last) == header.records_count and not any(each & 1 for each in last):
        return None
    deltas = {(each >> 1) - header.base_offset for each in last}
    return [each for each in opened(header, content) if each.offset_delta in deltas]


def _stays(header: BatchHeader, record: StoredRecord, rules: Rules) -> bool:
    offset = header.base_offset + record.offset_delta
    if offset >= rules.end_offset:
        return True
    if record.key is None or offset < rules.start_offset:
        return False
    if offset < rules.last.get(digest(record.key), 2 * offset) >> 1:
        return False
    if rules.oldest_ms is not None:
        time_ms = _time_ms(header, record)
        if NO_TIMESTAMP < time_ms < rules.oldest_ms:
            return False
    if record.has_value:
        return True
    return not header.attributes & DELETE_HORIZON or rules.now_ms < header.base_timestamp


def _is_judged_tombstone(header: BatchHeader, record: StoredRecord, rules: Rules) -> bool:
    return not record.has_value and header.base_offset + record.offset_delta < rules.end_offset


def _time_ms(header: BatchHeader, record: StoredRecord) -> int:
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp
    return header.base_timestamp + record.timestamp_delta


def _rewritten(header: BatchHeader, records: Sequence[StoredRecord], horizon_ms: int | None) -> Batch:
    """Return a batch with some of its records, and with another horizon if one is given."""
    if not header.attributes & LOG_APPEND_TIME:
        newest = max(each.timestamp_delta for each in records)
        header = header._replace(max_timestamp=header.base_timestamp + newest)
    if horizon_ms is None:
        stored = b"".join(each.whole for each in records)
    else:
        shift = header.base_timestamp - horizon_ms
        stored = b"".join(_with_time(each, each.timestamp_delta + shift) for each in records)
        attributes = header.attributes | DELETE_HORIZON
        header = header._replace(base_timestamp=horizon_ms, attributes=attributes)
    header = header._replace(records_count=len(records))
    return _with_records(header, folded(stored, header.attributes & CODEC_MASK))


def _with_time(record: StoredRecord, timestamp_delta: int) -> bytes:
    # The first byte behind the length is that of the attributes, which nobody uses.
    body = b"\0" + _number(timestamp_delta) + record.whole[record.rest :]
    return _number(len(body)) + body


def _number(value: int) -> bytes:
    """Return a number as a zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
