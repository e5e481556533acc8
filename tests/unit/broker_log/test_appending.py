"""What a log takes, which offsets it gives, and what it leaves of the bytes."""

from __future__ import annotations

import pytest

from broker.log.errors import AppendError
from broker.log.results import Appended
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import (
    EVERYTHING,
    GZIP,
    NOW_MS,
    ZSTD,
    Broker,
    altered,
    append_batch,
    batch,
    headers,
    read_all,
    start_anew,
)


def test_records_get_the_next_offsets(broker: Broker) -> None:
    log = broker.create()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, log.latest_epoch) == (0, 0, 0, -1)
    assert append_batch(log, batch([1, 2, 3]), LeaderEpoch(4), NOW_MS) == Appended(0, 2, False)
    assert append_batch(log, batch([4]), LeaderEpoch(4), NOW_MS) == Appended(3, 3, False)
    assert (log.log_end_offset, log.latest_epoch) == (4, 4)


def test_only_offset_and_epoch_of_a_batch_change(broker: Broker) -> None:
    log = broker.create()
    sent = [batch([1, 2], codec=ZSTD), batch([3], codec=GZIP)]
    for each in sent:
        append_batch(log, each, LeaderEpoch(7), NOW_MS)
    stored = log.segments.read(0, EVERYTHING, below=EVERYTHING, at_least_one=True).records
    assert [(each.base_offset, each.partition_leader_epoch) for each in headers(stored)] == [(0, 7), (2, 7)]
    first = len(sent[0])
    assert stored[8:12] + stored[16:first] == sent[0][8:12] + sent[0][16:]
    assert stored[first + 16 :] == sent[1][16:]
    assert stored == (broker.folder / "00000000000000000000.log").read_bytes()
    assert log.size_bytes == len(stored)


def test_a_follower_appends_several_batches_together(broker: Broker) -> None:
    log = broker.create()
    records = b"".join(batch([number, number], base_offset=2 * number) for number in range(2000))
    assert log.append_as_follower(records, NOW_MS) == Appended(0, 3999, False)
    assert [each.base_offset for each in headers(read_all(log, 100_000))] == list(range(0, 4000, 2))


WHOLE = batch([NOW_MS, NOW_MS])
REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "a flipped byte": (WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
    "a wrong checksum": (altered(WHOLE, keep_crc=True, crc=1), ErrorCode.CORRUPT_MESSAGE),
    "half a batch": (WHOLE[:70], ErrorCode.CORRUPT_MESSAGE),
    "half a header": (WHOLE[:30], ErrorCode.CORRUPT_MESSAGE),
    "a batch and a half": (WHOLE + WHOLE[:80], ErrorCode.INVALID_RECORD),
    "two batches": (WHOLE + WHOLE, ErrorCode.INVALID_RECORD),
    "a length of zero": (altered(WHOLE, batch_length=0), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (altered(WHOLE, batch_length=-5), ErrorCode.CORRUPT_MESSAGE),
    "a negative span": (altered(WHOLE, last_offset_delta=-1), ErrorCode.CORRUPT_MESSAGE),
    "format 1": (altered(WHOLE, magic=1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a short message of format 0": (
        bytes(16) + b"\0" + bytes(20),
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ),
    "a wrong count": (altered(WHOLE, records_count=3), ErrorCode.INVALID_RECORD),
    "no records": (altered(WHOLE, records_count=0), ErrorCode.INVALID_RECORD),
    "a control batch": (altered(WHOLE, attributes=0x20), ErrorCode.INVALID_RECORD),
    "a transaction": (altered(WHOLE, attributes=0x10), ErrorCode.INVALID_RECORD),
    "the broker's time": (altered(WHOLE, attributes=0x08), ErrorCode.INVALID_TIMESTAMP),
    "an unknown codec": (altered(WHOLE, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "too large": (batch(value=b"x" * 3000), ErrorCode.MESSAGE_TOO_LARGE),
    "larger than a segment": (batch(value=b"x" * 2200), ErrorCode.RECORD_LIST_TOO_LARGE),
    "a producer without a sequence": (batch(producer=(5, 0, -1)), ErrorCode.INVALID_RECORD),
    "two batches of one producer": (batch(producer=(5, 0, 0)) * 2, ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_changes_nothing(broker: Broker, name: str) -> None:
    log = broker.create(max_message_bytes=2500, segment_bytes=2000)
    append_batch(log, WHOLE, LeaderEpoch(1), NOW_MS)
    records, error_code = REFUSED[name]
    with pytest.raises(AppendError) as caught:
        append_batch(log, records, LeaderEpoch(2), NOW_MS)
    assert caught.value.error_code is error_code
    assert caught.value.definite
    assert (log.log_end_offset, log.latest_epoch, log.size_bytes) == (2, 1, len(WHOLE))
    assert broker.revive().log_end_offset == 2


def test_a_follower_stores_the_leaders_bytes(broker: Broker) -> None:
    log = broker.create()
    records = batch([1, 2], base_offset=0, leader_epoch=3) + batch([3], base_offset=2, leader_epoch=5)
    assert log.append_as_follower(memoryview(records), NOW_MS) == Appended(0, 2, False)
    assert log.segments.read(0, EVERYTHING, below=EVERYTHING, at_least_one=True).records == records
    assert (log.latest_epoch, log.end_offset_for_epoch(3)) == (5, (3, 2))


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(batch(base_offset=0), id="an offset that it has"),
        pytest.param(batch(base_offset=3), id="a gap"),
        pytest.param(batch(base_offset=2) + batch(base_offset=4), id="a gap between two"),
    ],
)
def test_a_follower_takes_only_what_comes_next(broker: Broker, records: bytes) -> None:
    log = broker.create()
    log.append_as_follower(batch([1, 2], leader_epoch=1), NOW_MS)
    with pytest.raises(AppendError) as caught:
        log.append_as_follower(records, NOW_MS)
    assert caught.value.error_code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 2


def test_a_follower_refuses_a_flipped_byte(broker: Broker) -> None:
    log = broker.create()
    records = batch([1, 2], leader_epoch=1)
    with pytest.raises(AppendError) as caught:
        log.append_as_follower(records[:-3] + b"?" + records[-2:], NOW_MS)
    assert caught.value.error_code is ErrorCode.CORRUPT_MESSAGE


def test_a_followers_batches_fill_segments_as_the_leaders_do(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000)
    for number in range(40):
        append_batch(log, batch([number], value=b"x" * (20 * (number % 7))), LeaderEpoch(1), NOW_MS)
    records = read_all(log, EVERYTHING)
    leaders = {name: (broker.folder / f"{name}.log").read_bytes() for name in broker.names(".log")}
    start_anew(log, 0)
    log.append_as_follower(records, NOW_MS)
    assert {name: (broker.folder / f"{name}.log").read_bytes() for name in broker.names(".log")} == leaders
    assert len(leaders) > 3
