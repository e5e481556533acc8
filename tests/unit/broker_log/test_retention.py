"""What retention removes, and what it never does."""

from __future__ import annotations

import os

import pytest

from broker.log.errors import OffsetOutOfRangeError
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    expire,
    fill,
    headers,
    read_all,
    truncate,
)

HOUR_MS = 3_600_000


def test_segments_go_by_size_and_the_rest_stays(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=6000, retention_ms=-1)
    fill(log, 100)
    start = expire(log, high_watermark=100, now_ms=NOW_MS)
    assert start == log.log_start_offset >= 60
    assert 6000 <= log.size_bytes < 8000
    assert [each.base_offset for each in headers(read_all(log))] == list(range(start, 100))
    with pytest.raises(OffsetOutOfRangeError):
        log.segments.read(start - 1, 100, below=EVERYTHING, at_least_one=True)
    assert (broker.revive().log_start_offset, broker.log.log_end_offset) == (start, 100)


def test_segments_go_by_the_age_of_their_newest_record(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_ms=HOUR_MS)
    fill(log, 100)
    assert expire(log, high_watermark=100, now_ms=NOW_MS + HOUR_MS) == 0
    start = expire(log, high_watermark=100, now_ms=NOW_MS + HOUR_MS + 50)
    assert 40 <= start <= 50


def test_nothing_above_the_high_watermark_goes(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=0, retention_ms=HOUR_MS)
    fill(log, 100)
    start = expire(log, high_watermark=55, now_ms=NOW_MS + 10 * HOUR_MS)
    assert 40 < start <= 55
    assert log.log_end_offset == 100


def test_the_active_segment_goes_only_by_age(broker: Broker) -> None:
    log = broker.create(retention_bytes=0, retention_ms=HOUR_MS)
    fill(log, 20, leader_epoch=4)
    assert expire(log, high_watermark=20, now_ms=NOW_MS) == 0
    assert expire(log, high_watermark=19, now_ms=NOW_MS + 2 * HOUR_MS) == 0
    assert expire(log, high_watermark=20, now_ms=NOW_MS + 2 * HOUR_MS) == 20
    for each in (log, broker.revive()):
        assert (each.log_start_offset, each.log_end_offset, each.size_bytes) == (20, 20, 0)
        assert each.latest_epoch in (4, -1)
    fill(broker.log, 1)
    assert broker.log.log_end_offset == 21


def test_records_without_a_time_age_by_their_file(broker: Broker) -> None:
    log = broker.create(retention_ms=HOUR_MS)
    append_batch(log, batch([-1]), EPOCH, NOW_MS)
    (path,) = broker.folder.glob("*.log")
    written_ms = path.stat().st_mtime_ns // 1_000_000
    assert expire(log, high_watermark=1, now_ms=written_ms + HOUR_MS) == 0
    os.utime(path, (0, 0))
    assert expire(log, high_watermark=1, now_ms=written_ms) == 1


def test_no_limit_keeps_everything(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=-1, retention_ms=-1)
    fill(log, 100)
    assert expire(log, high_watermark=100, now_ms=NOW_MS * 2) == 0


def test_other_settings_are_obeyed_from_then_on(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_ms=-1)
    fill(log, 50)
    closed = len(broker.names(".log"))
    broker.settings = type(broker.settings)(retention_ms=HOUR_MS)
    log.configure(broker.settings)
    fill(log, 50)
    assert len(broker.names(".log")) == closed
    assert expire(log, high_watermark=100, now_ms=NOW_MS + 2 * HOUR_MS) == 100


def test_epochs_before_the_new_start_are_forgotten(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=4000)
    for leader_epoch in range(1, 6):
        fill(log, 20, leader_epoch=leader_epoch)
    start = expire(log, high_watermark=100, now_ms=NOW_MS)
    assert 60 < start < 80
    for each in (log, broker.revive()):
        assert each.end_offset_for_epoch(2) == (2, start)
        assert each.end_offset_for_epoch(4) == (4, 80)


def test_removed_files_are_gone_at_the_end(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=0)
    fill(log, 100)
    expire(log, high_watermark=100, now_ms=NOW_MS)
    broker.directory.close()
    assert len(broker.names(".log")) == len(broker.names(".index")) == 1
    assert broker.names(".deleted") == []
    broker.open()


def test_nothing_goes_for_its_age_while_the_time_is_not_believed(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_ms=HOUR_MS, retention_bytes=8000)
    fill(log, 100)
    late_ms = NOW_MS + 1000 * HOUR_MS
    start = expire(log, high_watermark=100, now_ms=late_ms, by_age=False)
    assert 0 < start < 90, "what is too much goes all the same"
    assert expire(log, high_watermark=100, now_ms=late_ms) == 100


def segments(broker: Broker) -> list[int]:
    return [int(name) for name in broker.names(".log")]


def append_at(broker: Broker, now_ms: int) -> None:
    append_batch(broker.log, batch([now_ms]), EPOCH, now_ms)


def test_a_slow_topic_keeps_what_is_young_and_no_more(broker: Broker) -> None:
    broker.create(retention_ms=10 * HOUR_MS)
    for hour in range(50):
        now_ms = NOW_MS + hour * HOUR_MS
        append_at(broker, now_ms)
        expire(broker.log, high_watermark=hour + 1, now_ms=now_ms + 1)
    # A segment goes once its newest record is too old: at most twice of what is wanted is there.
    assert 50 - 2 * 11 <= broker.log.log_start_offset <= 50 - 10


@pytest.mark.parametrize("end", ["none", "restart", "revive", "truncated"])
def test_a_segment_closes_when_its_first_record_is_older_than_segment_ms(broker: Broker, end: str) -> None:
    broker.create(segment_ms=HOUR_MS, retention_ms=-1)
    for number in range(100):
        append_at(broker, NOW_MS + number)
    if end == "truncated":
        truncate(broker.log, 50)
    elif end != "none":
        getattr(broker, end)()
    last = broker.log.log_end_offset
    # Nothing above the high watermark goes, but closing removes nothing.
    expire(broker.log, high_watermark=0, now_ms=NOW_MS + HOUR_MS)
    assert segments(broker) == [0]
    expire(broker.log, high_watermark=0, now_ms=NOW_MS + HOUR_MS + 1)
    assert segments(broker) == [0, last]
    expire(broker.log, high_watermark=0, now_ms=NOW_MS + 9 * HOUR_MS)
    assert segments(broker) == [0, last], "an empty segment never closes"
    append_at(broker, NOW_MS + 9 * HOUR_MS)
    expire(broker.log, high_watermark=0, now_ms=NOW_MS + 10 * HOUR_MS)
    assert segments(broker) == [0, last]
    expire(broker.log, high_watermark=0, now_ms=NOW_MS + 10 * HOUR_MS + 1)
    assert segments(broker) == [0, last, last + 1]


def test_a_log_that_is_cut_back_into_a_closed_segment_knows_its_first_record(broker: Broker) -> None:
    broker.create(segment_bytes=2000, segment_ms=HOUR_MS, retention_ms=-1)
    fill(broker.log, 100)
    log = broker.restart()
    truncate(log, 15)
    assert log.log_end_offset == 15
    expire(log, high_watermark=0, now_ms=NOW_MS + HOUR_MS + 10)
    assert log.log_end_offset not in segments(broker)
    expire(log, high_watermark=0, now_ms=NOW_MS + HOUR_MS + 11)
    assert log.log_end_offset in segments(broker)


def test_no_segment_closes_while_the_time_is_not_believed(broker: Broker) -> None:
    broker.create(segment_ms=HOUR_MS)
    append_at(broker, NOW_MS)
    expire(broker.log, high_watermark=1, now_ms=NOW_MS + 2 * HOUR_MS, by_age=False)
    assert segments(broker) == [0]
