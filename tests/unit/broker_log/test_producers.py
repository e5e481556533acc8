"""Idempotent producers: a repeat is appended once, a gap never, also after a truncation or a start."""

from __future__ import annotations

import pytest

from broker.log import producers
from broker.log.errors import AppendError
from broker.log.partition_log import PartitionLog
from broker.log.results import Appended
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    expire,
    fill,
    read_all,
    start_anew,
    truncate,
)

LAST = 2**31 - 1


def send(
    log: PartitionLog,
    sequence: int,
    *,
    count: int = 1,
    producer_epoch: int = 0,
    producer_id: int = 9,
    now_ms: int = NOW_MS,
) -> Appended:
    records = batch([1] * count, producer=(producer_id, producer_epoch, sequence))
    return append_batch(log, records, EPOCH, now_ms)


def refusal(log: PartitionLog, sequence: int, *, count: int = 1, producer_epoch: int = 0) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(AppendError) as caught:
        send(log, sequence, count=count, producer_epoch=producer_epoch)
    assert log.log_end_offset == before
    return caught.value.error_code


def test_a_repeat_gets_the_offsets_of_the_first_time(broker: Broker) -> None:
    log = broker.create()
    fill(log, 10)
    for number in range(7):
        assert send(log, 3 * number, count=3) == Appended(10 + 3 * number, 12 + 3 * number, False)
    for number in (2, 3, 4, 5, 6):
        assert send(log, 3 * number, count=3) == Appended(10 + 3 * number, 12 + 3 * number, True)
    assert log.log_end_offset == 10 + 21
    assert send(log, 21) == Appended(31, 31, False)


@pytest.mark.parametrize(
    ("sequence", "count"),
    [
        pytest.param(0, 3, id="older than the last five"),
        pytest.param(18, 2, id="a part of a known batch"),
        pytest.param(18, 4, id="a known batch and more"),
        pytest.param(22, 1, id="a gap"),
        pytest.param(LAST, 1, id="far away"),
    ],
)
def test_what_is_not_the_next_in_sequence_is_refused(broker: Broker, sequence: int, count: int) -> None:
    log = broker.create()
    for number in range(7):
        send(log, 3 * number, count=3)
    assert refusal(log, sequence, count=count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_numbers_start_again_at_zero(broker: Broker) -> None:
    log = broker.create()
    send(log, LAST - 1)
    assert send(log, LAST, count=3) == Appended(1, 3, False)
    assert send(log, LAST, count=3) == Appended(1, 3, True)
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 2) == Appended(4, 4, False)
    log = broker.revive()
    assert send(log, 2) == Appended(4, 4, True)


def test_the_number_after_the_largest_is_zero(broker: Broker) -> None:
    log = broker.create()
    send(log, LAST)
    assert send(log, 0) == Appended(1, 1, False)


def test_a_new_epoch_of_a_producer_begins_at_zero(broker: Broker) -> None:
    log = broker.create()
    send(log, 0)
    assert refusal(log, 5, producer_epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 0, producer_epoch=1) == Appended(1, 1, False)
    assert refusal(log, 1, producer_epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 0, producer_epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(log, 1, producer_epoch=1) == Appended(2, 2, False)


def test_an_unknown_producer_begins_with_any_number(broker: Broker) -> None:
    log = broker.create()
    assert send(log, 77) == Appended(0, 0, False)
    assert send(log, 78) == Appended(1, 1, False)
    assert send(log, 0, producer_id=10) == Appended(2, 2, False)


def test_a_follower_knows_the_leaders_producers(broker: Broker) -> None:
    log = broker.create()
    for number in range(6):
        send(log, number)
    records = read_all(log, EVERYTHING)
    start_anew(log, 0)
    assert send(log, 40) == Appended(0, 0, False)
    start_anew(log, 0)
    log.append_as_follower(records, NOW_MS)
    assert send(log, 3) == Appended(3, 3, True)
    assert refusal(log, 7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 6) == Appended(6, 6, False)


@pytest.mark.parametrize("segment_bytes", [200, 1_000_000])
@pytest.mark.parametrize("end", ["clean", "killed"])
def test_producers_survive_a_start(broker: Broker, segment_bytes: int, end: str) -> None:
    log = broker.create(segment_bytes=segment_bytes)
    for number in range(9):
        send(log, number)
        send(log, number, producer_id=11, producer_epoch=4)
    log = broker.restart() if end == "clean" else broker.revive()
    for number in range(4, 9):
        assert send(log, number) == Appended(2 * number, 2 * number, True)
    assert send(log, 9, producer_id=11, producer_epoch=4) == Appended(18, 18, False)


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(64)])
def test_a_lost_snapshot_is_read_from_the_records(broker: Broker, content: bytes | None) -> None:
    log = broker.create(segment_bytes=200)
    for number in range(9):
        send(log, number)
    broker.directory.close()
    for path in broker.folder.glob("*.snapshot"):
        path.unlink() if content is None else path.write_bytes(content)
    log = broker.open().logs[log.key]
    assert send(log, 5) == Appended(5, 5, True)
    assert send(log, 9) == Appended(9, 9, False)


def test_truncated_batches_are_forgotten(broker: Broker) -> None:
    log = broker.create()
    for number in range(8):
        send(log, number)
    truncate(log, 6)
    assert refusal(log, 8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 5) == Appended(5, 5, True)
    assert send(log, 6) == Appended(6, 6, False)


@pytest.mark.parametrize("segment_bytes", [200, 1_000_000])
def test_truncation_beyond_what_is_remembered_reads_the_log(broker: Broker, segment_bytes: int) -> None:
    log = broker.create(segment_bytes=segment_bytes)
    for number in range(12):
        send(log, number)
        send(log, number + 50, producer_id=11)
    truncate(log, 5)
    assert send(log, 1) == Appended(2, 2, True)
    assert refusal(log, 12) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, 3) == Appended(5, 5, False)
    assert send(log, 52, producer_id=11) == Appended(6, 6, False)


def test_a_producer_whose_batches_are_all_gone_is_unknown(broker: Broker) -> None:
    log = broker.create()
    fill(log, 1)
    send(log, 0)
    truncate(log, 1)
    assert send(log, 33) == Appended(1, 1, False)


def test_a_snapshot_of_a_truncated_end_is_not_used(broker: Broker) -> None:
    log = broker.create()
    for number in range(4):
        send(log, number)
    log = broker.restart()
    truncate(log, 2)
    # The same offsets, by another producer.
    for number in range(2):
        send(log, number, producer_id=12)
    log = broker.revive()
    assert send(log, 2) == Appended(4, 4, False)
    assert send(log, 1, producer_id=12) == Appended(3, 3, True)


def test_the_number_of_producers_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    log = broker.create()
    for producer_id in (1, 2, 3):
        send(log, 0, producer_id=producer_id)
    send(log, 1, producer_id=1)
    send(log, 0, producer_id=4)
    assert send(log, 40, producer_id=2) == Appended(5, 5, False)
    assert send(log, 1, producer_id=1) == Appended(3, 3, True)


@pytest.mark.parametrize("again", [False, True])
def test_producers_with_one_batch_are_forgotten_first(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    log = broker.create()
    for sequence in (0, 1):
        send(log, sequence, producer_id=1)
    if again:
        log = broker.restart()
    for producer_id in range(10, 20):
        send(log, 0, producer_id=producer_id)
    assert send(log, 1, producer_id=1) == Appended(1, 1, True)
    assert send(log, 0, producer_id=19) == Appended(11, 11, True)
    assert send(log, 7, producer_id=17) == Appended(12, 12, False)
    # Where none has sent one batch only, the one idle longest goes.
    for producer_id in (17, 19):
        send(log, 8 if producer_id == 17 else 1, producer_id=producer_id)
    send(log, 0, producer_id=20)
    assert send(log, 9, producer_id=1) == Appended(16, 16, False)


def test_a_producer_is_forgotten_after_an_idle_day(broker: Broker) -> None:
    log = broker.create()
    send(log, 0)
    send(log, 0, producer_id=10, now_ms=NOW_MS + 1)
    expire(log, high_watermark=0, now_ms=NOW_MS + producers.EXPIRATION_MS)
    assert send(log, 40) == Appended(2, 2, False)
    assert send(log, 0, producer_id=10) == Appended(1, 1, True)


def test_a_repeat_under_another_leader_epoch_is_found(broker: Broker) -> None:
    log = broker.create()
    records = batch([1], producer=(9, 0, 0))
    append_batch(log, records, LeaderEpoch(1), NOW_MS)
    assert append_batch(log, records, LeaderEpoch(2), NOW_MS) == Appended(0, 0, True)
    assert log.latest_epoch == 1
