"""Transactions in the tests of a log, and what a naive scan of all its batches makes of them."""

from __future__ import annotations

from typing import NamedTuple

from broker.log.aborted import AbortedTransaction
from broker.log.batches import CONTROL, TRANSACTIONAL
from broker.log.markers import EndMarker, end_batch
from broker.log.partition_log import PartitionLog
from broker.log.results import Appended
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import EPOCH, NOW_MS, append_batch, batch, headers, read_all


def write(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    *,
    count: int = 1,
    producer_epoch: int = 0,
    size: int = 5,
    transactional: bool = True,
    leader_epoch: LeaderEpoch = EPOCH,
) -> Appended:
    """Append a batch of an open transaction, or begin one."""
    records = batch(
        [NOW_MS] * count,
        value=b"x" * size,
        attributes=TRANSACTIONAL if transactional else 0,
        producer=(producer_id, producer_epoch, sequence),
    )
    return append_batch(log, records, leader_epoch, NOW_MS)


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    is_commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: LeaderEpoch = EPOCH,
) -> Appended:
    """Append a marker."""
    marker = EndMarker(is_commit, coordinator_epoch)
    made = end_batch(producer_id, producer_epoch, marker, NOW_MS)
    return log.append_produced(made, leader_epoch, NOW_MS)


class Scanned(NamedTuple):
    """What all batches of a log say."""

    #: {producer id: first offset}
    open: dict[int, int]
    #: (first offset, offset of the marker)
    ended: list[tuple[int, int]]
    aborted: list[AbortedTransaction]

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = [first for first, marker in self.ended if marker >= high_watermark]
        return min([high_watermark, *unstable, *self.open.values()])

    def aborted_between(self, offset: int, below: int) -> list[AbortedTransaction]:
        return [each for each in self.aborted if each.last_offset >= offset and each.first_offset < below]


def scan(log: PartitionLog) -> Scanned:
    """Read a log from its first batch to its last."""
    found = Scanned({}, [], [])
    records, position = read_all(log), 0
    for header in headers(records):
        content = records[position : position + header.size]
        position += header.size
        if header.attributes & CONTROL:
            first = found.open.pop(header.producer_id, None)
            if first is None:
                continue
            found.ended.append((first, header.base_offset))
            # By the protocol guide: the type is in the key, behind its version.
            if not int.from_bytes(content[68:70], "big"):
                stable = min(found.open.values(), default=header.base_offset + 1)
                found.aborted.append(
                    AbortedTransaction(header.producer_id, first, header.base_offset, stable)
                )
        elif header.attributes & TRANSACTIONAL:
            found.open.setdefault(header.producer_id, header.base_offset)
    return found


def check(log: PartitionLog, high_watermark: int, reads: int = 7) -> None:
    """Compare a log with what a scan of it finds."""
    scanned = scan(log)
    assert log.last_stable_offset(high_watermark) == scanned.last_stable_offset(high_watermark)
    step = max(log.log_end_offset // reads, 1)
    for offset in range(log.log_start_offset, log.log_end_offset, step):
        found = log.segments.read(offset, 500, below=log.log_end_offset, at_least_one=True, with_aborted=True)
        assert found.aborted == scanned.aborted_between(offset, found.next_offset)
