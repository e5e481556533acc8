"""Transactions in a log: what is open, what is stable, what was aborted, also after a restart or a cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.log import cutting, flushing, producers, recovery, segment
from broker.log.batches import CONTROL, TRANSACTIONAL
from broker.log.errors import AppendError, LogStorageError
from broker.log.partition_log import PartitionLog
from controller.wire.codes import ErrorCode
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
from tests.unit.broker_log.transactions import check, end, write


def refused(log: PartitionLog, records: bytes) -> ErrorCode:
    with pytest.raises(AppendError) as caught:
        append_batch(log, records, EPOCH, NOW_MS)
    return caught.value.error_code


def unfinished(log: PartitionLog, producer_id: int, **marker: int) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(AppendError) as caught:
        end(log, producer_id, is_commit=True, **marker)  # type: ignore[arg-type]  # whole numbers only
    assert log.log_end_offset == before
    return caught.value.error_code


def test_an_open_transaction_holds_the_stable_offset(broker: Broker) -> None:
    log = broker.create()
    fill(log, 3)
    assert log.last_stable_offset(2) == 2
    write(log, 1, 0, count=2)
    fill(log, 1)
    write(log, 2, 0)
    write(log, 1, 2)
    assert (log.last_stable_offset(2), log.last_stable_offset(8)) == (2, 3)
    end(log, 1, is_commit=True)
    assert log.last_stable_offset(8) == 3, "the marker is not committed"
    assert log.last_stable_offset(9) == 6
    end(log, 2, is_commit=False)
    assert log.last_stable_offset(10) == 10


def test_a_marker_is_a_control_batch_as_kafka_has_it(broker: Broker) -> None:
    log = broker.create()
    write(log, 258, 0, producer_epoch=3)
    end(log, 258, is_commit=True, producer_epoch=3, coordinator_epoch=77)
    end(log, 258, is_commit=False, producer_epoch=3, coordinator_epoch=77)
    for offset, kind in ((1, 1), (2, 0)):
        content = log.segments.read(offset, 1, below=EVERYTHING, at_least_one=True).records
        assert int.from_bytes(content[21:23], "big") == TRANSACTIONAL | CONTROL
        assert content[43:57] == (258).to_bytes(8, "big") + (3).to_bytes(2, "big") + b"\xff" * 4
        key, value = b"\0\0" + bytes([0, kind]), b"\0\0" + (77).to_bytes(4, "big")
        assert content[61:] == b"\x20\0\0\0\x08" + key + b"\x0c" + value + b"\0"


def test_markers_of_former_epochs_are_refused(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0, producer_epoch=4)
    end(log, 1, is_commit=True, producer_epoch=4, coordinator_epoch=7)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert unfinished(log, 1, producer_epoch=4, coordinator_epoch=6) is fenced
    assert unfinished(log, 1, producer_epoch=3, coordinator_epoch=7) is ErrorCode.INVALID_PRODUCER_EPOCH
    log = broker.revive()
    assert unfinished(log, 1, producer_epoch=4, coordinator_epoch=6) is fenced


def test_a_marker_of_a_higher_epoch_fences_the_producer(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0, producer_epoch=4)
    end(log, 1, is_commit=False, producer_epoch=5)
    late = batch(producer=(1, 4, 1), attributes=TRANSACTIONAL)
    for each in (log, broker.revive()):
        assert refused(each, late) is ErrorCode.INVALID_PRODUCER_EPOCH
    write(broker.log, 1, 0, producer_epoch=5)


@pytest.mark.parametrize(
    ("attributes", "producer"),
    [
        pytest.param(TRANSACTIONAL, (-1, -1, -1), id="no producer"),
        pytest.param(TRANSACTIONAL | CONTROL, (1, 0, 0), id="a marker"),
        pytest.param(CONTROL, (-1, -1, -1), id="a control batch"),
    ],
)
def test_clients_write_no_such_batch(broker: Broker, attributes: int, producer: tuple[int, int, int]) -> None:
    log = broker.create()
    assert refused(log, batch(attributes=attributes, producer=producer)) is ErrorCode.INVALID_RECORD


def test_a_batch_outside_of_an_open_transaction_is_refused(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0)
    assert refused(log, batch(producer=(1, 0, 1))) is ErrorCode.INVALID_TXN_STATE
    end(log, 1, is_commit=True)
    write(log, 1, 1, transactional=False)


def test_the_number_of_open_transactions_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "TRANSACTIONS_MAX", 2)
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 3)
    log = broker.create()
    for producer_id in (1, 2):
        write(log, producer_id, 0)
    third = batch(producer=(3, 0, 0), attributes=TRANSACTIONAL)
    assert refused(log, third) is ErrorCode.NOT_ENOUGH_REPLICAS
    for producer_id in range(10, 20):
        write(log, producer_id, 0, transactional=False)
    # What has an open transaction was not forgotten.
    write(log, 1, 1)
    end(log, 1, is_commit=False)
    append_batch(log, third, EPOCH, NOW_MS)
    assert {each.producer_id for each in log.active_producers()} == {1, 2, 3}


def test_an_open_transaction_does_not_expire(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0)
    write(log, 2, 0, transactional=False)
    expire(log, high_watermark=2, now_ms=NOW_MS + 2 * producers.EXPIRATION_MS)
    assert [each.producer_id for each in log.active_producers()] == [1]
    assert log.last_stable_offset(2) == 0


def test_nothing_below_the_start_is_unstable(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0)
    fill(log, 5)
    log.advance_start(3)
    assert log.last_stable_offset(6) == 3


def without_times(found: list[producers.ActiveProducer]) -> list[tuple[int, ...]]:
    return sorted(each._replace(last_timestamp=0) for each in found)


def history(log: PartitionLog, rounds: int) -> None:
    """Transactions that overlap, over several segments."""
    for number in range(rounds):
        for producer_id in (1, 2, 3):
            write(log, producer_id, number, size=60)
        end(log, 2, is_commit=number % 3 == 0)
        end(log, 1, is_commit=number % 2 == 0)
        fill(log, 1)
        if number % 4:
            end(log, 3, is_commit=False)


def test_a_restart_finds_what_was_open_and_aborted(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000)
    history(log, 30)
    write(log, 1, 30)
    log.settle_flushes()
    assert len(broker.names(".txnindex")) > 5
    end_offset, active = log.log_end_offset, log.active_producers()
    for each in (log, broker.restart(), broker.revive()):
        check(each, end_offset)
        assert without_times(each.active_producers()) == without_times(active)
        assert each.last_stable_offset(end_offset) == end_offset - 1


def test_a_list_is_sound_while_an_earlier_transaction_is_open(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.create()
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 2, is_commit=False)
    broker.restart()
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("back", [1, 2, 5, 9, 40, 100])
def test_a_cut_takes_back_what_ended_behind_it(broker: Broker, back: int) -> None:
    log = broker.create(segment_bytes=2000)
    history(log, 20)
    log.settle_flushes()
    truncate(log, log.log_end_offset - back)
    check(log, log.log_end_offset)
    fill(log, 30)
    check(log, log.log_end_offset)
    for each in (broker.restart(), broker.revive()):
        check(each, each.log_end_offset)


def test_a_log_that_starts_over_has_no_transaction(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000)
    history(log, 10)
    write(log, 1, 10)
    start_anew(log, 500)
    fill(log, 2)
    for each in (log, broker.restart()):
        assert each.last_stable_offset(502) == 502
        assert each.segments.read(500, 1, below=502, at_least_one=True, with_aborted=True).aborted == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[:-1], id="cut"),
        pytest.param(lambda content: content[:20] + b"\xff" + content[21:], id="a wrong offset"),
        pytest.param(lambda content: b"\0\1" + content[2:], id="another version"),
    ],
)
def test_a_damaged_list_is_built_anew(broker: Broker, damage: object) -> None:
    log = broker.create(segment_bytes=2000)
    history(log, 20)
    log.settle_flushes()
    path = sorted(broker.folder.glob("*.txnindex"))[2]
    before = path.read_bytes()
    broker.directory.close()
    path.write_bytes(damage(before))  # type: ignore[operator]  # a function
    log = broker.open().logs[log.key]
    check(log, log.log_end_offset)
    assert path.read_bytes() == before


class Killed:
    """Ends a process before one of the files that it writes or removes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = self.done = 0
        for module in (flushing, cutting, recovery, segment):
            for name in ("replace_file", "remove_file"):
                if hasattr(module, name):
                    patch.setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, do: Callable[..., None]) -> Callable[..., None]:
        def step(*args: object) -> None:
            self.done += 1
            if self.done > self.left:
                raise LogStorageError("the process ends here", "nothing")
            do(*args)

        return step


@pytest.mark.parametrize("back", [0, 1, 7, 23])
def test_a_kill_at_each_write_leaves_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    killed = Killed(monkeypatch)
    for left in range(200):
        killed.left, killed.done = 10_000, 0
        made = Broker(tmp_path / str(left))
        log = made.create(segment_bytes=1500)
        killed.left, killed.done = left, 0
        try:
            history(log, 6)
            log.settle_flushes()
            truncate(log, log.log_end_offset - back)
            made.directory.close()
        except LogStorageError:
            pass
        is_whole = killed.done <= left
        killed.left = 10_000
        made.directory.abandon()
        log = made.open().logs[log.key]
        check(log, log.log_end_offset)
        # What was built anew is there at the next start, too.
        check(made.restart(), log.log_end_offset)
        made.directory.abandon()
        if is_whole:
            return
    raise AssertionError("it never came to its end")


def test_a_list_goes_with_its_segment(broker: Broker) -> None:
    log = broker.create(segment_bytes=2000, retention_bytes=6000)
    history(log, 30)
    for producer_id in (1, 2, 3):
        end(log, producer_id, is_commit=True)
    expire(log, high_watermark=log.log_end_offset, now_ms=NOW_MS)
    assert set(broker.names(".txnindex")) <= set(broker.names(".log"))
    for offset in range(log.log_start_offset, log.log_end_offset, 3):
        found = log.segments.read(offset, 1, below=EVERYTHING, at_least_one=True, with_aborted=True)
        assert all(each.last_offset >= offset for each in found.aborted or ())


def test_a_follower_finds_the_same(broker: Broker, tmp_path: Path) -> None:
    log = broker.create(segment_bytes=2000)
    history(log, 20)
    copy = Broker(tmp_path / "copy")
    follower = copy.create(segment_bytes=3000)
    offset = 0
    while offset < log.log_end_offset:
        found = log.segments.read(offset, 700, below=EVERYTHING, at_least_one=True)
        follower.append_as_follower(found.records, NOW_MS)
        offset = found.next_offset
    check(follower, follower.log_end_offset)
    assert without_times(follower.active_producers()) == without_times(log.active_producers())
    assert read_all(follower) == read_all(log)
    copy.directory.abandon()


def test_a_cut_below_a_snapshot_opens_again_what_it_ended(broker: Broker) -> None:
    log = broker.create()
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 1, is_commit=True)
    end(log, 2, is_commit=False)
    log = broker.restart()
    truncate(log, 2)
    assert log.last_stable_offset(2) == 0
    assert sorted(each.current_txn_start_offset for each in log.active_producers()) == [0, 1]
