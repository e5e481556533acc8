"""Readers get whole batches, within their limits and below the offset that they may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.errors import OffsetOutOfRangeError
from broker.log.partition_log import PartitionLog
from broker.log.results import Read
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    fill,
    headers,
    read_all,
    start_anew,
)


def offsets(log: PartitionLog, offset: int, bytes_max: int, below: int = EVERYTHING) -> list[int]:
    found = log.segments.read(offset, bytes_max, below=below, at_least_one=False)
    return [each.base_offset for each in headers(found.records)]


def test_a_read_begins_with_the_batch_that_holds_the_offset(broker: Broker) -> None:
    log = broker.create()
    for _ in range(5):
        append_batch(log, batch([1, 2, 3]), EPOCH, NOW_MS)
    for offset in range(15):
        assert offsets(log, offset, EVERYTHING) == list(range(offset // 3 * 3, 15, 3))


def test_a_read_holds_as_many_whole_batches_as_fit(broker: Broker) -> None:
    log = broker.create()
    fill(log, 100, size=200)
    size = log.size_bytes // 100
    for count in (0, 1, 2, 30, 99, 100):
        for spare in (0, size - 1):
            found = log.segments.read(0, count * size + spare, below=EVERYTHING, at_least_one=False)
            assert len(found.records) == count * size
            assert found.next_offset == count


def test_one_batch_is_read_although_it_is_too_large(broker: Broker) -> None:
    log = broker.create()
    fill(log, 3, size=500)
    found = log.segments.read(1, 10, below=EVERYTHING, at_least_one=True)
    assert [each.base_offset for each in headers(found.records)] == [1]
    assert found.next_offset == 2
    assert log.segments.read(1, 10, below=EVERYTHING, at_least_one=False) == Read(b"", 1)
    assert log.segments.read(1, 10, below=1, at_least_one=True) == Read(b"", 1)


def test_no_batch_that_ends_above_the_limit_is_read(broker: Broker) -> None:
    log = broker.create()
    for _ in range(200):
        append_batch(log, batch([1, 2], value=b"x" * 50), EPOCH, NOW_MS)
    for below in (0, 1, 2, 3, 100, 101, 398, 399, 400, 500):
        seen = offsets(log, 0, EVERYTHING, below)
        assert seen == list(range(0, min(below, 400) // 2 * 2, 2))


def test_every_offset_is_found_in_every_segment(broker: Broker) -> None:
    log = broker.create(segment_bytes=30_000)
    for number in range(400):
        append_batch(log, batch([1] * (1 + number % 3), value=b"x" * (number % 5 * 90)), EPOCH, NOW_MS)
    assert len(broker.names(".log")) > 3
    for each in (log, broker.restart(), broker.revive()):
        for offset in range(each.log_end_offset):
            found = each.segments.read(offset, 1, below=EVERYTHING, at_least_one=True)
            (header,) = headers(found.records)
            assert header.base_offset <= offset <= header.last_offset
            assert found.next_offset == header.last_offset + 1


@pytest.mark.parametrize("bytes_max", [1, 333, 5000, 20_000, EVERYTHING])
def test_reads_one_after_the_other_yield_everything(broker: Broker, bytes_max: int) -> None:
    log = broker.create(segment_bytes=30_000)
    fill(log, 300, size=300)
    assert [each.base_offset for each in headers(read_all(log, bytes_max))] == list(range(300))


def test_a_read_at_the_end_is_empty_until_more_comes(broker: Broker) -> None:
    log = broker.create()
    assert log.segments.read(0, 100, below=EVERYTHING, at_least_one=True) == Read(b"", 0)
    for number in range(50):
        fill(log, 1)
        found = log.segments.read(number, 10_000, below=EVERYTHING, at_least_one=True)
        assert found.next_offset == number + 1
        assert log.segments.read(number + 1, 10_000, below=EVERYTHING, at_least_one=True) == Read(
            b"", number + 1
        )


@pytest.mark.parametrize("offset", [-1, 4, 11, 1 << 50])
def test_an_offset_outside_of_the_log_is_refused(broker: Broker, offset: int) -> None:
    log = broker.create()
    start_anew(log, 5)
    fill(log, 5)
    with pytest.raises(OffsetOutOfRangeError, match="the log has 5 to 10"):
        log.segments.read(offset, 100, below=EVERYTHING, at_least_one=True)


def test_open_files_stay_below_their_limit(broker: Broker) -> None:
    broker.directory.abandon()
    broker.open_files_max = 3
    broker.open()
    log = broker.create(segment_bytes=500)
    fill(log, 50, size=200)
    assert len(broker.names(".log")) > 10
    assert len(headers(read_all(log))) == 50
    links = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    # One more may be open for its fsync.
    assert sum(str(each).startswith(str(broker.folder)) for each in links) <= 3 + 1


def test_leaders_epochs_are_in_the_batches_that_are_read(broker: Broker) -> None:
    log = broker.create()
    for epoch in (1, 1, 4, 9):
        append_batch(log, batch(), LeaderEpoch(epoch), NOW_MS)
    assert [each.partition_leader_epoch for each in headers(read_all(log))] == [1, 1, 4, 9]
