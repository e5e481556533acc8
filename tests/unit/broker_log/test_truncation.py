"""Leader epochs: which one wrote what, what of it survives a truncation, a start and a lost file."""

from __future__ import annotations

import os

import pytest

from broker.log.partition_log import PartitionLog
from broker.log.recovery import EPOCHS_NAME
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    KEY,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    fill,
    headers,
    read_all,
    start_anew,
    truncate,
)

#: epoch 2 wrote 0 to 3, epoch 3 wrote 4 and 5, epoch 7 wrote 6 to 9
QUESTIONS = {-1: (-1, -1), 0: (0, 0), 1: (1, 0), 2: (2, 4), 3: (3, 6), 5: (3, 6), 7: (7, 10), 8: (-1, -1)}


def three_epochs(broker: Broker, **settings: int) -> PartitionLog:
    log = broker.create(**settings)
    for leader_epoch, count in ((2, 4), (3, 2), (7, 4)):
        fill(log, count, leader_epoch=leader_epoch)
    return log


def answers(log: PartitionLog) -> dict[int, tuple[int, int]]:
    return {leader_epoch: log.end_offset_for_epoch(leader_epoch) for leader_epoch in QUESTIONS}


def test_an_epoch_ends_where_the_next_one_begins(broker: Broker) -> None:
    assert broker.create().end_offset_for_epoch(0) == (-1, -1)
    broker.directory.delete(KEY)
    assert answers(three_epochs(broker)) == QUESTIONS


@pytest.mark.parametrize("segment_bytes", [300, 1_000_000])
def test_epochs_survive_every_kind_of_end(broker: Broker, segment_bytes: int) -> None:
    three_epochs(broker, segment_bytes=segment_bytes)
    assert answers(broker.revive()) == QUESTIONS
    assert answers(broker.restart()) == QUESTIONS
    assert answers(broker.restart()) == QUESTIONS
    assert answers(broker.revive()) == QUESTIONS


@pytest.mark.parametrize("content", [None, b"", b"0\n2\n1 0\n", b"0\n2\n5 9\n2 4\n", b"\xff\n"])
def test_a_lost_epoch_file_is_read_from_the_records(broker: Broker, content: bytes | None) -> None:
    three_epochs(broker, segment_bytes=300)
    broker.directory.close()
    path = broker.folder / EPOCHS_NAME
    path.unlink() if content is None else path.write_bytes(content)
    assert answers(broker.open().logs[KEY]) == QUESTIONS


def test_epochs_of_a_torn_end_do_not_come_back(broker: Broker) -> None:
    log = broker.create()
    fill(log, 2, leader_epoch=1)
    fill(log, 2, leader_epoch=2)
    broker.directory.close()
    path = broker.folder / "00000000000000000000.log"
    os.truncate(path, path.stat().st_size // 4 - 1)
    log = broker.open().logs[KEY]
    fill(log, 2, leader_epoch=2)
    for each in (log, broker.revive(), broker.restart()):
        assert each.end_offset_for_epoch(1) == (1, 0)
        assert each.end_offset_for_epoch(2) == (2, 2)


def test_truncation_forgets_later_epochs(broker: Broker) -> None:
    log = three_epochs(broker)
    truncate(log, 6)
    assert (log.log_end_offset, log.latest_epoch, log.end_offset_for_epoch(7)) == (6, 3, (-1, -1))
    fill(log, 1, leader_epoch=8)
    for each in (log, broker.revive(), broker.restart()):
        assert each.end_offset_for_epoch(3) == (3, 6)
        assert each.end_offset_for_epoch(8) == (8, 7)


def test_truncation_reaches_back_over_segments(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000)
    fill(log, 100)
    kept = read_all(log)[: 31 * log.size_bytes // 100]
    assert len(broker.names(".log")) > 8
    truncate(log, 31)
    assert read_all(log) == kept
    assert log.log_end_offset == 31
    log = broker.revive()
    assert read_all(log) == kept
    fill(log, 60, leader_epoch=2)
    assert [each.base_offset for each in headers(read_all(log))] == list(range(91))
    assert read_all(broker.revive())[: len(kept)] == kept


def test_a_batch_across_the_new_end_goes_as_a_whole(broker: Broker) -> None:
    log = broker.create()
    for _ in range(3):
        append_batch(log, batch([1, 2, 3]), EPOCH, NOW_MS)
    truncate(log, 7)
    assert log.log_end_offset == 6
    assert [each.base_offset for each in headers(read_all(log))] == [0, 3]


@pytest.mark.parametrize("offset", [10, 11, 1000])
def test_truncation_at_the_end_or_behind_it_changes_nothing(broker: Broker, offset: int) -> None:
    log = three_epochs(broker)
    truncate(log, offset)
    assert (log.log_end_offset, answers(log)) == (10, QUESTIONS)


@pytest.mark.parametrize("offset", [0, 3])
def test_truncation_before_the_start_begins_there_anew(broker: Broker, offset: int) -> None:
    log = broker.create()
    start_anew(log, 3)
    fill(log, 5, leader_epoch=2)
    truncate(log, offset)
    for each in (log, broker.revive()):
        assert (each.log_start_offset, each.log_end_offset, each.latest_epoch) == (offset, offset, -1)


def test_a_log_starts_anew_where_its_leader_does(broker: Broker) -> None:
    log = three_epochs(broker, segment_bytes=300)
    start_anew(log, 5000)
    for each in (log, broker.revive(), broker.restart()):
        assert (each.log_start_offset, each.log_end_offset, each.size_bytes) == (5000, 5000, 0)
        assert each.end_offset_for_epoch(7) == (-1, -1)
    log = broker.log
    log.append_as_follower(batch(base_offset=5000, leader_epoch=9), NOW_MS)
    for each in (log, broker.revive()):
        assert (each.log_start_offset, each.log_end_offset, each.latest_epoch) == (5000, 5001, 9)


def test_readers_find_what_was_appended_after_a_truncation(broker: Broker) -> None:
    log = broker.create()
    fill(log, 300, size=300)
    read_all(log)
    for end_offset in (299, 250, 120, 3):
        truncate(log, end_offset)
        append_batch(log, batch([1] * 4, value=b"y" * end_offset), LeaderEpoch(2), NOW_MS)
        found = log.segments.read(end_offset, 10, below=EVERYTHING, at_least_one=True)
        assert [each.records_count for each in headers(found.records)] == [4]
        assert [each.base_offset for each in headers(read_all(log))] == list(range(end_offset + 1))
