"""Compacted segments take their places, and a crash at any step leaves the old ones or the new ones."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from broker.log.cleaning.swapping import CleanedSegment
from broker.log.cleaning.work import clean
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.compacting import check_continuous, compact, job_of, rows
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    NOW_MS,
    Broker,
    append_batch,
    headers,
    keyed,
    max_timestamp,
    offset_for_time,
    read_all,
    truncate,
)


def fill_keyed(log: PartitionLog, count: int, *, keys: int = 7) -> None:
    for _ in range(count):
        number = log.log_end_offset
        key = b"key%d" % (number % keys)
        producer = (5, 0, number)
        append_batch(
            log, keyed([(key, b"%d" % number * 20)], producer=producer, at_ms=NOW_MS + number), EPOCH, NOW_MS
        )
    log.settle_flushes()


def test_a_compacted_log_reads_on_and_after_each_start(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    fill_keyed(log, 100)
    before = rows(log)
    active = int(broker.names(".log")[-1])
    assert compact(log) == active
    left = rows(log)
    newest = {key: offset for offset, key in before if offset < active}
    assert [row for row in left if row[0] < active] == sorted((offset, key) for key, offset in newest.items())
    assert [row for row in left if row[0] >= active] == [row for row in before if row[0] >= active]
    assert len(broker.names(".log")) == 5
    assert not [each.name for each in broker.folder.iterdir() if each.suffix in (".swap", ".cleaned")]
    assert {each.stat().st_mode & 0o777 for each in broker.folder.iterdir()} == {0o600}
    check_continuous(log)
    for opens in (broker.restart, broker.revive):
        log = opens()
        check_continuous(log)
        assert rows(log) == left
    fill_keyed(log, 3)
    assert log.log_end_offset == 103
    assert broker.directory.shortened == {}


def test_a_repeat_of_a_compacted_batch_gets_its_offset(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    fill_keyed(log, 40, keys=1)
    for _ in range(3):
        append_batch(log, keyed([(b"key0", b"x" * 900)]), EPOCH, NOW_MS)
    log.settle_flushes()
    compact(log)
    for snapshot in broker.folder.glob("*.snapshot"):
        snapshot.unlink()
    log = broker.revive()
    for number in range(35, 40):
        again = keyed([(b"key0", b"%d" % number * 20)], producer=(5, 0, number), at_ms=NOW_MS + number)
        appended = append_batch(log, again, EPOCH, NOW_MS)
        assert (appended.base_offset, appended.duplicate) == (number, True)


def test_a_log_that_was_truncated_takes_no_compacted_segment(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    fill_keyed(log, 50)
    version, job = job_of(log)
    first = next(clean(job, lambda _bytes: None))
    assert isinstance(first, CleanedSegment)
    truncate(log, 20)
    left = rows(log)
    assert asyncio.run(log.swap_in(version, first)) is None
    assert rows(log) == left == rows(broker.revive())


def test_a_follower_goes_on_within_a_gap_of_its_leader(broker: Broker, tmp_path: Path) -> None:
    leader = broker.create(segment_bytes=1000, cleanup_policy="compact")
    for number in range(30):
        append_batch(leader, keyed([(b"key", b"%d" % number * 40)], at_ms=NOW_MS + number), EPOCH, NOW_MS)
    leader.settle_flushes()
    before = read_all(leader, 100_000)
    compact(leader)
    for end in range(31):
        other = Broker(tmp_path / f"other-{end}")
        follower = other.create(segment_bytes=1000, cleanup_policy="compact")
        if end:
            copied = b"".join(before[at : at + size] for at, size in places(before)[:end])
            follower.append_as_follower(copied, NOW_MS)
        while follower.log_end_offset < leader.log_end_offset:
            found = leader.segments.read(follower.log_end_offset, 500, below=EVERYTHING, at_least_one=True)
            follower.append_as_follower(found.records, NOW_MS)
        check_continuous(follower)
        assert rows(follower)[-1] == rows(leader)[-1]
        other.directory.abandon()


def test_times_are_found_in_what_is_left(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    fill_keyed(log, 100)
    compact(log)
    left = rows(log)
    for number in range(100):
        expected = next((offset for offset, _ in left if offset >= number), None)
        found = offset_for_time(log, NOW_MS + number)
        assert found == (None if expected is None else (NOW_MS + expected, expected))
    assert max_timestamp(log) == (NOW_MS + 99, 99)


def places(records: bytes) -> list[tuple[int, int]]:
    """(position, size) of each batch."""
    found, position = [], 0
    for header in headers(records):
        found.append((position, header.size))
        position += header.size
    return found


class CrashError(Exception):
    """The process is gone."""


CALLS = ("pathlib.Path.rename", "pathlib.Path.unlink", "os.link", "os.fsync", "pathlib.Path.write_bytes")


def crash_at(number: int, work: Callable[[], object]) -> bool:
    """Do work up to the call of the disk with a number; returns whether it ended before."""
    left = [number]
    patches = []
    for name in CALLS:
        owner, _, attribute = name.rpartition(".")
        target = Path if owner == "pathlib.Path" else os
        real = getattr(target, attribute)

        def called(*words: object, _real: Callable[..., object] = real, **named: object) -> object:
            if not left[0]:
                raise CrashError
            left[0] -= 1
            return _real(*words, **named)

        patches.append(mock.patch.object(target, attribute, called))
    for each in patches:
        each.start()
    try:
        work()
    except BaseException:  # noqa: BLE001 - whatever the crash has become on its way
        return False
    finally:
        for each in patches:
            each.stop()
    return True


def test_each_crash_leaves_the_old_or_the_new(broker: Broker, tmp_path: Path) -> None:
    log = broker.create(segment_bytes=1000, cleanup_policy="compact")
    fill_keyed(log, 60)
    old = rows(log)
    broker.directory.close()
    kept = tmp_path / "kept"
    shutil.copytree(broker.path, kept)
    newest = {key: offset for offset, key in old}
    seen = set()
    for number in range(1000):
        log = broker.open().logs[log.key]
        ended = crash_at(number, lambda: compact(broker.log))
        broker.directory.abandon()
        log = broker.open().logs[log.key]
        left = rows(log)
        seen.add(len(left))
        assert set(left) <= set(old)
        assert {key: offset for offset, key in left} == newest
        check_continuous(log)
        assert log.log_end_offset == 60
        assert broker.directory.shortened == {}
        names = {each.suffix for each in broker.folder.iterdir()}
        assert not names & {".swap", ".cleaned", ".link"}
        if ended:
            break
        broker.directory.abandon()
        shutil.rmtree(broker.path)
        shutil.copytree(kept, broker.path)
    assert number > 20
    assert len(seen) > 2
