"""Deleted records stay deleted: after every kind of end, and for whoever copies or cuts the log."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from broker.log import log_start
from broker.log.errors import AppendError, OffsetOutOfRangeError
from broker.log.log_start import LOG_START_NAME
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.samples import (
    EVERYTHING,
    NOW_MS,
    Broker,
    batch,
    expire,
    fill,
    max_timestamp,
    read_all,
    truncate,
)


def delete_to(log: PartitionLog, offset: int) -> None:
    log.advance_start(offset)
    log.settle_flushes()


def test_records_below_the_start_cannot_be_read(broker: Broker) -> None:
    log = broker.create()
    fill(log, 10)
    delete_to(log, 4)
    assert (log.log_start_offset, log.durable_start_offset, log.log_end_offset) == (4, 4, 10)
    with pytest.raises(OffsetOutOfRangeError):
        log.segments.read(3, 1000, below=EVERYTHING, at_least_one=True)
    assert log.end_offset_for_epoch(0) == (0, 4)
    delete_to(log, 2)
    assert log.log_start_offset == 4


@pytest.mark.parametrize("end", ["restart", "revive"])
def test_the_start_survives(broker: Broker, end: str) -> None:
    log = broker.create()
    fill(log, 10)
    delete_to(log, 4)
    log = getattr(broker, end)()
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (4, 10, 1)
    fill(log, 1)
    delete_to(log, 11)
    log = getattr(broker, end)()
    assert (log.log_start_offset, log.log_end_offset) == (11, 11)
    assert not broker.directory.shortened


def test_a_start_that_is_not_written_yet_is_not_called_durable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, go_on = broker.create(), threading.Event()
    fill(log, 10)
    written = log_start.write_log_start
    monkeypatch.setattr(
        log_start, "write_log_start", lambda *note: written(*note) if go_on.wait(10) else None
    )
    log.advance_start(4)
    assert (log.log_start_offset, log.durable_start_offset) == (4, 0)
    go_on.set()
    log.settle_flushes()
    assert log.durable_start_offset == 4


def test_segments_below_the_start_go_with_the_next_retention(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_ms=-1, retention_bytes=-1)
    fill(log, 100)
    segments = len(broker.names(".log"))
    delete_to(log, 55)
    assert len(broker.names(".log")) == segments
    assert expire(log, high_watermark=100, now_ms=NOW_MS) == 55
    assert 4 <= len(broker.names(".log")) <= segments - 5
    for each in (log, broker.revive()):
        assert each.log_start_offset == 55
        assert each.segments.read(55, 1000, below=EVERYTHING, at_least_one=True).records


def test_a_crash_that_takes_the_tail_brings_nothing_back(broker: Broker) -> None:
    """The start was durable, the records at it were not."""
    log = broker.create()
    fill(log, 10)
    delete_to(log, 10)
    (path,) = broker.folder.glob("*.log")
    broker.directory.abandon()
    os.truncate(path, path.stat().st_size // 2)
    log = broker.open().logs[log.key]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (10, 10, 0)
    assert log.key in broker.directory.shortened
    fill(log, 2)
    log = broker.revive()
    assert (log.log_start_offset, log.log_end_offset) == (10, 12)


@pytest.mark.parametrize("damage", ["zeroed", "halved", "flipped"])
def test_a_damaged_note_hides_no_record(broker: Broker, damage: str) -> None:
    log = broker.create()
    fill(log, 200)
    delete_to(log, 110)
    path = broker.folder / LOG_START_NAME
    content = path.read_bytes()
    broker.directory.abandon()
    flipped = content.replace(b"110", b"190")
    path.write_bytes(
        {"zeroed": bytes(len(content)), "halved": content[: len(content) // 2], "flipped": flipped}[damage]
    )
    log = broker.open().logs[log.key]
    assert (log.log_start_offset, log.log_end_offset) == (0, 200)


def test_a_log_cut_below_its_start_goes_on_there(broker: Broker) -> None:
    """After an unclean election: the leader has other records at these offsets, which must not be hidden."""
    log = broker.create()
    fill(log, 10)
    delete_to(log, 8)
    truncate(log, 5)
    assert (log.log_start_offset, log.durable_start_offset, log.log_end_offset) == (5, 5, 5)
    fill(log, 5)
    assert (broker.revive().log_start_offset, broker.log.log_end_offset) == (5, 10)
    assert len(read_all(broker.log)) == broker.log.size_bytes


def test_a_log_cut_above_its_start_keeps_it(broker: Broker) -> None:
    log = broker.create()
    fill(log, 10)
    delete_to(log, 4)
    truncate(log, 7)
    assert (broker.revive().log_start_offset, broker.log.log_end_offset) == (4, 7)


def test_an_empty_log_takes_a_batch_that_spans_its_start(tmp_path: Path) -> None:
    """A new replica begins where the leader's log does, which may be inside of a batch."""
    broker = Broker(tmp_path)
    log = broker.create()
    log.truncate_fully_and_start_at(15)
    log.settle_flushes()
    spans = batch([NOW_MS + each for each in range(10)], base_offset=10, leader_epoch=3)
    with pytest.raises(AppendError):
        log.append_as_follower(batch(base_offset=10, leader_epoch=3), NOW_MS)
    follows = batch([NOW_MS], base_offset=20, leader_epoch=3)
    log.append_as_follower(spans + follows, NOW_MS)
    for each in (log, broker.revive(), broker.restart()):
        assert (each.log_start_offset, each.log_end_offset) == (15, 21)
        assert each.end_offset_for_epoch(2) == (2, 15)
        assert each.segments.read(15, 1000, below=EVERYTHING, at_least_one=True).records == spans + follows
    truncate(broker.log, 17)
    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (15, 15)
    assert broker.revive().log_end_offset == 15
    with pytest.raises(AppendError):
        broker.log.append_as_follower(follows, NOW_MS)
    broker.directory.close()


def test_the_newest_record_is_one_that_is_left(broker: Broker) -> None:
    log = broker.create()
    for offset, later_ms in enumerate((0, 900, 5, 7, 6)):
        log.append_as_follower(batch([NOW_MS + later_ms], base_offset=offset, leader_epoch=1), NOW_MS)
    assert max_timestamp(log) == (NOW_MS + 900, 1)
    delete_to(log, 2)
    assert max_timestamp(log) == (NOW_MS + 7, 3)
    delete_to(log, 5)
    assert max_timestamp(log) == (-1, -1)


def test_an_epoch_of_which_nothing_is_left_goes_when_the_next_one_begins(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.create()
    fill(log, 4, leader_epoch=1)
    delete_to(log, 4)
    assert log.end_offset_for_epoch(1) == (1, 4)
    fill(log, 2, leader_epoch=2)
    for each in (log, broker.restart()):
        assert each.end_offset_for_epoch(1) == (1, 4)
        assert each.end_offset_for_epoch(2) == (2, 6)
    assert "damaged" not in caplog.text
