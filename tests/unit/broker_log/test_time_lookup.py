"""Offsets by time, also inside of compressed batches."""

from __future__ import annotations

import random

import pytest

from broker.log import records
from broker.log.errors import UnreadableBatchError
from broker.log.partition_log import PartitionLog
from controller.messages.codes import ErrorCode
from tests.unit.broker_log.samples import (
    EPOCH,
    GZIP,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    XERIAL,
    ZSTD,
    Broker,
    altered,
    batch,
    fill,
)

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "xerial": XERIAL, "lz4": LZ4, "zstd": ZSTD}


def append(log: PartitionLog, times: list[int], codec: int = NONE, value: bytes = b"value") -> None:
    log.append_as_leader(batch(times, codec=codec, value=value), EPOCH, NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_record_at_a_time_is_found_in_its_batch(broker: Broker, codec: str) -> None:
    log = broker.create()
    append(log, [100, 110, 120], CODECS[codec])
    append(log, [130, 105, 150], CODECS[codec])
    expected = {0: (100, 0), 100: (100, 0), 101: (110, 1), 120: (120, 2), 121: (130, 3), 131: (150, 5)}
    for each in (log, broker.revive(), broker.restart()):
        assert {time: each.offset_for_time(time) for time in expected} == expected
        assert each.offset_for_time(151) is None
        assert each.max_timestamp() == (150, 5)


def test_an_empty_log_has_no_times(broker: Broker) -> None:
    log = broker.create()
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() == (-1, -1)
    append(log, [-1])
    assert log.max_timestamp() == (-1, -1)
    assert log.offset_for_time(0) is None


@pytest.mark.parametrize("segment_bytes", [3000, 1_000_000])
def test_times_that_do_not_rise_are_found_as_a_scan_finds_them(broker: Broker, segment_bytes: int) -> None:
    log = broker.create(segment_bytes=segment_bytes)
    rng = random.Random(7)
    times: list[int] = []
    while len(times) < 600:
        some = [1000 + 10 * len(times) + rng.randrange(-500, 500) for _ in range(rng.randrange(1, 4))]
        append(log, some, rng.choice([NONE, LZ4]), b"x" * rng.randrange(200))
        times += some
    for each in (log, broker.revive()):
        for wanted in range(0, 8000, 37):
            first = next(((time, offset) for offset, time in enumerate(times) if time >= wanted), None)
            assert each.offset_for_time(wanted) == first
        assert each.max_timestamp() == (max(times), times.index(max(times)))


def test_truncation_forgets_later_times(broker: Broker) -> None:
    log = broker.create()
    fill(log, 200)
    log.truncate_to(90)
    for each in (log, broker.revive(), broker.restart()):
        assert each.max_timestamp() == (NOW_MS + 89, 89)
        assert each.offset_for_time(NOW_MS + 90) is None


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_records_that_cannot_be_opened_are_named(broker: Broker, codec: str) -> None:
    log = broker.create()
    whole = batch([100, 200], codec=CODECS[codec])
    broken = altered(whole[:70] + b"\xa5" * (len(whole) - 70))
    log.append_as_leader(broken, EPOCH, NOW_MS)
    with pytest.raises(UnreadableBatchError, match="batch at offset 0 cannot be opened") as caught:
        log.offset_for_time(150)
    assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(UnreadableBatchError):
        log.max_timestamp()


@pytest.mark.parametrize("content", [b"", b"\x80" * 20, b"\x7e" + b"\0" * 9, b"\x01" * 30])
def test_malformed_records_are_named(broker: Broker, content: bytes) -> None:
    log = broker.create()
    broken = altered(batch([100, 200])[:61] + content, batch_length=49 + len(content))
    log.append_as_leader(broken, EPOCH, NOW_MS)
    with pytest.raises(UnreadableBatchError):
        log.offset_for_time(150)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_a_batch_that_unfolds_too_far_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    log = broker.create()
    append(log, [100, 200], CODECS[codec], b"x" * 300_000)
    assert log.offset_for_time(150) == (200, 1)
    monkeypatch.setattr(records, "UNFOLDED_BYTES_MAX", 100_000)
    with pytest.raises(UnreadableBatchError):
        log.offset_for_time(150)


def test_the_brokers_time_counts_for_every_record(broker: Broker) -> None:
    log = broker.create()
    stamped = altered(batch([100, 110, 120]), attributes=0x08, max_timestamp=500)
    log.append_as_follower(stamped, NOW_MS)
    assert log.offset_for_time(300) == (500, 0)
    assert log.max_timestamp() == (500, 0)
