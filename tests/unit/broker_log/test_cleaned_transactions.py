"""What compaction leaves of transactions, their markers and the lists of aborted ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.log.batches import CONTROL, DELETE_HORIZON, TRANSACTIONAL, BatchHeader
from broker.log.markers import EndMarker, end_marker_in
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.compacting import check_continuous, compact, rows
from tests.unit.broker_log.samples import (
    EPOCH,
    NOW_MS,
    Broker,
    altered,
    append_batch,
    headers,
    keyed,
    read_all,
)
from tests.unit.broker_log.test_swapping import crash_at
from tests.unit.broker_log.transactions import check, end, scan


def transaction(
    log: PartitionLog, producer_id: int, key: bytes, *, is_commit: bool, sequence: int = 0
) -> None:
    records = keyed([(key, b"x" * 100)], producer=(producer_id, 0, sequence))
    append_batch(log, altered(records, attributes=TRANSACTIONAL), EPOCH, NOW_MS)
    end(log, producer_id, is_commit=is_commit)


def close_segment(log: PartitionLog) -> None:
    for _ in range(8):
        append_batch(log, keyed([(b"filler", b"x" * 150)]), EPOCH, NOW_MS)
    log.settle_flushes()


def forget_producers(log: PartitionLog) -> None:
    """Nothing of a producer stays for its own sake."""
    log.delete_expired(high_watermark=log.log_end_offset, now_ms=NOW_MS + 10**9, by_age=True)


def markers(log: PartitionLog) -> list[BatchHeader]:
    return [each for each in headers(read_all(log)) if each.attributes & CONTROL]


def test_aborted_records_go_and_hide_no_others(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    transaction(log, 1, b"a", is_commit=True)
    transaction(log, 2, b"a", is_commit=False)
    close_segment(log)
    compact(log)
    assert [row for row in rows(log) if row[1] == b"a"] == [(0, b"a")]
    check_continuous(log)


def test_nothing_above_the_stable_offset_is_compacted(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    close_segment(log)
    close_segment(log)
    start = log.log_end_offset
    records = keyed([(b"a", b"x")], producer=(1, 0, 0))
    append_batch(log, altered(records, attributes=TRANSACTIONAL), EPOCH, NOW_MS)
    close_segment(log)
    before = rows(log)
    came_to = compact(log)
    assert 0 < came_to <= start
    assert [row for row in rows(log) if row[0] >= came_to] == [row for row in before if row[0] >= came_to]
    assert len(rows(log)) < len(before)
    end(log, 1, is_commit=True)
    assert compact(log) > start


def test_a_marker_goes_after_its_records_and_its_horizon(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    for producer_id in (1, 2):
        transaction(log, producer_id, b"a", is_commit=producer_id == 1)
    transaction(log, 3, b"a", is_commit=True)
    close_segment(log)
    forget_producers(log)
    horizons = []
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 50, NOW_MS + 51):
        compact(log, now_ms=now_ms, delete_retention_ms=50)
        found = markers(log)
        horizons.append([each.base_timestamp for each in found if each.attributes & DELETE_HORIZON])
        assert all(each.max_timestamp == NOW_MS for each in found)
    # The records went in the first round, so that the second one met none.
    assert horizons == [[], [NOW_MS + 51] * 2, [NOW_MS + 51] * 2, []]
    (last,) = markers(log)
    assert last.producer_id == 3
    assert broker.names(".txnindex") == []
    check_continuous(log)
    check(broker.revive(), log.log_end_offset)


def test_a_marker_with_a_horizon_says_the_same(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    end(log, 1, is_commit=False, coordinator_epoch=7)
    close_segment(log)
    forget_producers(log)
    for retention_ms in (10, 10**12):
        compact(log, delete_retention_ms=retention_ms)
        content = read_all(log)
        header = headers(content)[0]
        assert header.attributes & DELETE_HORIZON
        assert end_marker_in(header, (content[: header.size],)) == EndMarker(False, 7)


def test_a_marker_stays_where_nothing_else_fences(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    end(log, 1, is_commit=False, producer_epoch=5)
    close_segment(log)
    for later_ms in range(3):
        compact(log, now_ms=NOW_MS + later_ms)
    for each in broker.folder.glob("*.snapshot"):
        each.unlink()
    log = broker.revive()
    assert [(each.producer_id, each.producer_epoch) for each in log.active_producers()] == [(1, 5)]


def test_snapshots_before_the_end_go_with_it(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    for _ in range(4):
        close_segment(log)
    came_to = compact(log)
    assert [int(name) for name in broker.names(".snapshot")] == [came_to]


def history(log: PartitionLog) -> None:
    for number in range(3):
        for producer_id in (1, 2, 3):
            is_commit = (number + producer_id) % 3 == 0
            transaction(log, producer_id, b"key%d" % producer_id, is_commit=is_commit, sequence=number)
        close_segment(log)


@pytest.mark.parametrize("forgets", [True, False])
def test_each_crash_leaves_lists_that_fit(broker: Broker, tmp_path: Path, forgets: bool) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    history(log)
    if forgets:
        forget_producers(log)
    broker.directory.close()
    kept = tmp_path / "kept"
    shutil.copytree(broker.path, kept)
    # What is left of the first round has the same steps: of those every third is enough.
    for every in (1, 3, 3):
        for number in range(0, 1000, every):
            log = broker.open().logs[log.key]
            end_offset = log.log_end_offset
            ended = crash_at(number, lambda: compact(broker.log, now_ms=NOW_MS + 1))
            broker.directory.abandon()
            log = broker.open().logs[log.key]
            check_lists(log)
            check_continuous(log)
            assert log.last_stable_offset(end_offset) == log.log_end_offset == end_offset
            assert not {each.suffix for each in broker.folder.iterdir()} & {".swap", ".cleaned", ".link"}
            broker.directory.abandon()
            if ended:
                break
            shutil.rmtree(broker.path)
            shutil.copytree(kept, broker.path)
        assert number > 20
        # The next round begins with what this one has left.
        shutil.rmtree(kept)
        shutil.copytree(broker.path, kept)
    # Of each key the last committed record is left, with the marker of its transaction.
    assert not forgets or len(markers(broker.open().logs[log.key])) == 3


def check_lists(log: PartitionLog) -> None:
    """Each entry has its marker, and those with records are as a scan finds them."""
    found = log.segments.aborted.between(0, 0, log.log_end_offset, wait=True)
    ends = {(each.producer_id, each.base_offset) for each in markers(log)}
    assert {(each.producer_id, each.last_offset) for each in found} <= ends
    wanted = {(each.producer_id, each.last_offset) for each in scan(log).aborted}
    assert wanted <= {(each.producer_id, each.last_offset) for each in found}
