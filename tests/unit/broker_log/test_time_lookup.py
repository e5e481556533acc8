"""Offsets by time, also inside of compressed batches."""

from __future__ import annotations

import random

import cramjam
import pytest

from broker.log import time_lookup
from broker.log.batches import parse_header
from broker.log.errors import UnreadableBatchError
from broker.log.partition_log import PartitionLog
from broker.log.records import walk
from broker.log.unfolding import UNFOLDED_BYTES_MAX
from controller.wire.codes import ErrorCode
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
    append_batch,
    batch,
    fill,
    max_timestamp,
    offset_for_time,
    truncate,
)

CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "xerial": XERIAL, "lz4": LZ4, "zstd": ZSTD}


def append(log: PartitionLog, times: list[int], codec: int = NONE, value: bytes = b"value") -> None:
    append_batch(log, batch(times, codec=codec, value=value), EPOCH, NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_the_first_record_at_a_time_is_found_in_its_batch(broker: Broker, codec: str) -> None:
    log = broker.create()
    append(log, [100, 110, 120], CODECS[codec])
    append(log, [130, 105, 150], CODECS[codec])
    expected = {0: (100, 0), 100: (100, 0), 101: (110, 1), 120: (120, 2), 121: (130, 3), 131: (150, 5)}
    for each in (log, broker.revive(), broker.restart()):
        assert {time: offset_for_time(each, time) for time in expected} == expected
        assert offset_for_time(each, 151) is None
        assert max_timestamp(each) == (150, 5)


def test_an_empty_log_has_no_times(broker: Broker) -> None:
    log = broker.create()
    assert offset_for_time(log, 0) is None
    assert max_timestamp(log) == (-1, -1)
    append(log, [-1])
    assert max_timestamp(log) == (-1, -1)
    assert offset_for_time(log, 0) is None


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
            assert offset_for_time(each, wanted) == first
        assert max_timestamp(each) == (max(times), times.index(max(times)))


def test_truncation_forgets_later_times(broker: Broker) -> None:
    log = broker.create()
    fill(log, 200)
    truncate(log, 90)
    for each in (log, broker.revive(), broker.restart()):
        assert max_timestamp(each) == (NOW_MS + 89, 89)
        assert offset_for_time(each, NOW_MS + 90) is None


def stored(log: PartitionLog, content: bytes) -> None:
    """A batch as the log may hold it from before records were looked at when they are produced."""
    log.append_as_follower(altered(content, base_offset=log.log_end_offset), NOW_MS)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_records_that_cannot_be_opened_are_named(broker: Broker, codec: str) -> None:
    log = broker.create()
    whole = batch([100, 200], codec=CODECS[codec])
    stored(log, whole[:70] + b"\xa5" * (len(whole) - 70))
    with pytest.raises(UnreadableBatchError, match="batch at offset 0 cannot be opened") as caught:
        offset_for_time(log, 150)
    assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(UnreadableBatchError):
        max_timestamp(log)


@pytest.mark.parametrize("content", [b"", b"\x80" * 20, b"\x7e" + b"\0" * 9, b"\x01" * 30])
def test_malformed_records_are_named(broker: Broker, content: bytes) -> None:
    log = broker.create()
    stored(log, altered(batch([100, 200])[:61] + content, batch_length=49 + len(content)))
    with pytest.raises(UnreadableBatchError):
        offset_for_time(log, 150)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_a_batch_that_unfolds_too_far_is_refused(codec: str) -> None:
    whole = batch([100, 200], codec=CODECS[codec], value=b"x" * 300_000)
    header = parse_header(whole, 0)
    assert walk(header, whole, at_least=150).offset == 1
    with pytest.raises(UnreadableBatchError):
        walk(header, whole, unfolded_bytes_max=100_000)


def test_a_bomb_that_is_stored_is_opened_within_bounds(broker: Broker) -> None:
    """256 MiB of zeros in 8 KiB, which a log may hold from before: it is no record, and is not kept."""
    log = broker.create()
    bomb = bytes(cramjam.zstd.compress(bytes(UNFOLDED_BYTES_MAX)))
    count = 2**31 - 1
    folded = altered(batch([100], codec=ZSTD)[:61] + bomb, batch_length=49 + len(bomb))
    stored(log, altered(folded, last_offset_delta=count - 1, records_count=count))
    with pytest.raises(UnreadableBatchError, match=f"{count} records in {UNFOLDED_BYTES_MAX} bytes"):
        offset_for_time(log, 50)
    with pytest.raises(UnreadableBatchError, match="record 0"):
        walk(parse_header(folded, 0), folded)


def test_a_header_that_promises_a_later_time_is_followed_by_the_next_batch(broker: Broker) -> None:
    log = broker.create()
    stored(log, altered(batch([100, 200]), max_timestamp=500))
    append(log, [120, 130])
    append(log, [400])
    assert offset_for_time(log, 150) == (200, 1)
    assert offset_for_time(log, 300) == (400, 4)


def test_a_search_over_many_headers_goes_on_where_it_ended(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_lookup, "HEADERS_MAX", 3)
    log = broker.create()
    for timestamp in (500, *[10] * 50, 600, 20, 700):
        append(log, [timestamp])
    assert [offset_for_time(log, each) for each in (400, 501, 601, 701)] == [
        *((500, 0), (600, 51), (700, 53)),
        None,
    ]
    assert log.segments.batch_for_time(501, 0) == 3


def test_the_brokers_time_counts_for_every_record(broker: Broker) -> None:
    log = broker.create()
    stamped = altered(batch([100, 110, 120]), attributes=0x08, max_timestamp=500)
    log.append_as_follower(stamped, NOW_MS)
    assert offset_for_time(log, 300) == (500, 0)
    assert max_timestamp(log) == (500, 0)
