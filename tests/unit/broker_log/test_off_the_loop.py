"""The event loop waits for no disk: what appends, truncations, reads and the close leave to threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.datadir.directory import LogDirectory, open_in_thread
from broker.log import files
from broker.log.errors import LogStorageError
from broker.log.files import NotCachedError
from broker.log.partition_log import PartitionLog
from quorum.metadata.paths import PartitionKey
from tests.unit.broker_log.samples import (
    EPOCH,
    EVERYTHING,
    KEY,
    NOW_MS,
    SETTINGS,
    TOPIC_ID,
    Broker,
    append_batch,
    batch,
    fill,
    headers,
    read_all,
)

DEADLINE_S = 20.0
HANG_MS = 300.0


class Disk:
    """Fsyncs that a test holds back, or has fail."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()
        self.fails = False
        self.takes_s = 0.0

    def fsync(self, _descriptor: int) -> None:
        """Wait until the test lets it go."""
        self.asked.set()
        self.free.wait(DEADLINE_S)
        if self.takes_s:
            # The fault itself: nothing ever sets it.
            threading.Event().wait(self.takes_s)
        if self.fails:
            raise OSError(5, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(os, "fsync", made.fsync)
    yield made
    made.free.set()


def waits(log: PartitionLog) -> bool:
    """Whether the next append must wait."""
    return log.must_wait(200, 1)


async def append(log: PartitionLog, count: int, waiting: asyncio.Event | None = None) -> None:
    """Append as a broker does: each batch waits for its turn, and the first one that does says so."""
    for _ in range(count):
        content = batch([NOW_MS], value=b"x" * 125)
        if waiting is not None and log.must_wait(len(content), 1):
            waiting.set()
        await log.before_append(len(content), 1)
        append_batch(log, content, EPOCH, NOW_MS)


async def test_an_append_waits_for_rolls_of_its_own_partition_alone(broker: Broker, disk: Disk) -> None:
    one = broker.create(segment_bytes=2000)
    other = broker.directory.create(PartitionKey("other", 0), TOPIC_ID, broker.settings)
    disk.free.clear()
    waiting = asyncio.Event()
    appending = asyncio.create_task(append(one, 100, waiting))
    async with asyncio.timeout(DEADLINE_S):
        await waiting.wait()
        before = one.log_end_offset
        assert 20 <= before < 40, "two segments wait for the disk, and the third one is full"
        await append(other, 15)
        assert (one.log_end_offset, other.log_end_offset) == (before, 15)
        disk.free.set()
        await appending
    assert [each.base_offset for each in headers(read_all(one))] == list(range(100))


async def test_flush_messages_bounds_what_is_not_fsynced(broker: Broker, disk: Disk) -> None:
    log = broker.create(flush_messages=3)
    disk.free.clear()
    fill(log, 2)
    assert not disk.asked.is_set()
    fill(log, 3)
    assert disk.asked.wait(DEADLINE_S)
    assert waits(log), "the sixth record has an fsync of its own, after the one under way"
    disk.free.set()
    await append(log, 1)
    await log.settled()
    assert log.log_end_offset == 6


async def test_flush_ms_fsyncs_a_log_at_rest_once(broker: Broker, disk: Disk) -> None:
    log = broker.create(flush_ms=100)
    log.flush_by_age(1000)
    assert not disk.asked.is_set(), "it has no record"
    for now_ms in (1000, 1100):
        fill(log, 1)
        log.flush_by_age(now_ms)
        assert disk.asked.wait(DEADLINE_S)
        await log.settled()
        disk.asked.clear()
    fill(log, 1)
    log.flush_by_age(1199)
    await log.settled()
    assert not disk.asked.is_set(), "that is 99 ms after the one before"
    log.flush_by_age(1200)
    await log.settled()
    disk.asked.clear()
    log.flush_by_age(1300)
    await log.settled()
    assert not disk.asked.is_set(), "there is nothing new"


async def test_a_log_that_gets_its_topic_id_again_waits_for_no_disk(broker: Broker, disk: Disk) -> None:
    fill(broker.create(), 3)
    broker.directory.close()
    path = broker.folder / "partition.metadata"
    path.write_bytes(b"")
    log = broker.open().logs[KEY]
    disk.free.clear()
    broker.directory.adopt(KEY, TOPIC_ID)
    assert log.topic_id == TOPIC_ID
    assert path.read_bytes() == b""
    disk.free.set()
    # Its folder goes only afterwards.
    broker.directory.delete(KEY)
    assert broker.directory.flusher.failure is None
    broker.directory.close()
    assert broker.open().logs == {}


async def test_a_failure_is_final_for_every_log(broker: Broker, disk: Disk) -> None:
    one = broker.create(segment_bytes=2000)
    other = broker.directory.create(PartitionKey("other", 0), TOPIC_ID, broker.settings)
    disk.fails = True
    fill(one, 11)
    with pytest.raises(LogStorageError, match="Input/output"):
        await one.settled()
    disk.fails = False
    for log in (one, other):
        assert not waits(log), "the append says why it cannot go"
        with pytest.raises(LogStorageError, match="Input/output"):
            fill(log, 1)
    with pytest.raises(LogStorageError, match="Input/output"):
        broker.directory.begin_checkpoint({}).result()
    assert [*broker.folder.glob("*.index")] == [], "nothing vouches for what was lost"
    with pytest.raises(LogStorageError, match="Input/output"):
        await broker.directory.leave(clean=True, hang_ms=HANG_MS)
    assert not broker.open().clean_start
    assert broker.log.log_end_offset == 11
    assert set(broker.directory.shortened) == {one.key, other.key}, "what is read may not be on the disk"


async def test_a_disk_that_does_not_answer_has_failed(broker: Broker, disk: Disk) -> None:
    log = broker.create(segment_bytes=2000)
    flusher = broker.directory.flusher
    disk.free.clear()
    fill(log, 11)
    disk.asked.wait(DEADLINE_S)
    assert flusher.check(0, HANG_MS) is None
    assert flusher.check(HANG_MS, HANG_MS) is None
    failure = flusher.check(1, HANG_MS)
    assert failure is not None
    assert "has not answered" in failure.message
    began_s = time.monotonic()
    await broker.directory.leave(clean=False, hang_ms=HANG_MS)
    assert time.monotonic() - began_s < DEADLINE_S / 2, "the end does not wait for it"
    with pytest.raises(LogStorageError, match="has not answered"):
        append_batch(log, batch(), EPOCH, NOW_MS)


async def test_a_clean_end_does_not_wait_for_a_silent_disk(broker: Broker, disk: Disk) -> None:
    fill(broker.create(), 3)
    disk.free.clear()
    with pytest.raises(LogStorageError, match="has not answered"):
        await broker.directory.leave(clean=True, hang_ms=HANG_MS)


def test_a_long_queue_is_no_silence(broker: Broker, disk: Disk) -> None:
    log = broker.create(segment_bytes=2000)
    flusher = broker.directory.flusher
    disk.takes_s = 0.02
    fill(log, 100)
    began_s = seen_s = time.monotonic()
    while log.must_wait(2000, 1):
        now_s = time.monotonic()
        # Each fsync is another step: their ages do not add up.
        assert flusher.check((now_s - seen_s) * 1000, 500) is None
        seen_s = now_s
    log.settle_flushes()
    assert time.monotonic() - began_s > 0.6


def test_a_flush_of_much_is_many_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART_BYTES", 4096)
    fill(broker.create(), 100)
    (path,) = broker.folder.glob("*.log")
    assert len([*files.write_back(str(path))]) == -(-path.stat().st_size // 4096)
    with pytest.raises(LogStorageError, match="No such file"):
        next(files.write_back(f"{path}.gone"))


async def test_truncations_of_one_turn_share_their_fsyncs(broker: Broker, disk: Disk) -> None:
    logs = [broker.directory.create(PartitionKey("many", number), TOPIC_ID, SETTINGS) for number in range(40)]
    for log in logs:
        fill(log, 10)
    disk.takes_s = 0.1
    turns_s: list[float] = []

    async def heartbeat() -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(0)
            turns_s.append(time.monotonic() - began_s)

    async def truncate(log: PartitionLog) -> None:
        assert await log.truncate_patiently(5, lambda: True)
        assert waits(log)
        await log.settled()

    beating = asyncio.create_task(heartbeat())
    began_s = time.monotonic()
    await asyncio.gather(*map(truncate, logs))
    took_s = time.monotonic() - began_s
    beating.cancel()
    assert {log.log_end_offset for log in logs} == {5}
    alone_s = len(logs) * 2 * disk.takes_s
    assert took_s < alone_s / 2, "one after the other they would take twice as long at least"
    assert len(turns_s) > 20, "the loop went on all the while"


async def test_a_truncation_that_is_wanted_no_longer_does_nothing(broker: Broker) -> None:
    log = broker.create()
    fill(log, 10)
    assert not await log.truncate_patiently(5, lambda: False)
    assert log.log_end_offset == 10


@pytest.mark.parametrize("segment_bytes", [2000, 1_000_000])
async def test_a_patient_truncation_does_what_an_immediate_one_does(
    broker: Broker, segment_bytes: int
) -> None:
    log = broker.create(segment_bytes=segment_bytes)
    fill(log, 60, leader_epoch=1)
    fill(log, 40, leader_epoch=2)
    assert await log.truncate_patiently(35, lambda: True)
    await log.settled()
    fill(log, 5, leader_epoch=3)
    for each in (log, broker.revive(), broker.restart()):
        assert [found.base_offset for found in headers(read_all(each))] == list(range(40))
        assert each.end_offset_for_epoch(2) == (1, 35)


def evict(folder: Path) -> None:
    """Have the page cache forget the log's records."""
    os.sync()
    for path in folder.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


async def test_what_is_not_in_memory_is_read_in_a_thread(broker: Broker) -> None:
    log = broker.create(segment_bytes=100_000)
    fill(log, 2000)
    expected = read_all(log)
    log = broker.restart()
    for offset in (0, 700, 1999):
        evict(broker.folder)
        with pytest.raises(NotCachedError):
            log.segments.read(offset, 1000, below=EVERYTHING, at_least_one=True, wait=False)
        found = await log.segments.read_patiently(offset, 1000, below=EVERYTHING, at_least_one=True)
        assert found.records in expected
        assert headers(found.records)[0].base_offset == offset


async def test_a_cold_read_that_a_truncation_overtakes_finds_what_is_there_now(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.create()
    fill(log, 500)
    log = broker.restart()
    asked, free = threading.Event(), threading.Event()

    def read_late(path: str, size: int, position: int) -> bytes:
        found = files.read_range(path, size, position)
        if not asked.is_set():
            asked.set()
            free.wait(DEADLINE_S)
        return found

    monkeypatch.setattr("broker.log.segment.read_range", read_late)
    reading = asyncio.create_task(
        log.segments.read_patiently(450, 1 << 20, below=EVERYTHING, at_least_one=True)
    )
    await asyncio.to_thread(asked.wait, DEADLINE_S)
    assert await log.truncate_patiently(450, lambda: True)
    await log.settled()
    append_batch(log, batch([7] * 3), EPOCH, NOW_MS)
    free.set()
    found = await reading
    assert [(each.base_offset, each.records_count) for each in headers(found.records)] == [(450, 3)]


def opens(broker: Broker) -> partial[LogDirectory]:
    return partial(
        LogDirectory.open,
        broker.path,
        broker_id=1,
        cluster_id="cluster-a",
        settings_of=lambda _topic: broker.settings,
    )


async def test_a_start_waits_for_the_disk_in_threads(broker: Broker, disk: Disk) -> None:
    fill(broker.create(), 10)
    broker.directory.abandon()
    disk.free.clear()
    starting = asyncio.create_task(open_in_thread(opens(broker)))
    await asyncio.to_thread(disk.asked.wait, DEADLINE_S)
    assert not starting.done()
    disk.free.set()
    broker.directory = await starting
    assert broker.log.log_end_offset == 10


async def test_a_start_that_is_given_up_leaves_the_directory_free(broker: Broker, disk: Disk) -> None:
    broker.create()
    broker.directory.abandon()
    disk.free.clear()
    starting = asyncio.create_task(open_in_thread(opens(broker)))
    await asyncio.to_thread(disk.asked.wait, DEADLINE_S)
    starting.cancel()
    await asyncio.wait([starting])
    threads = [each for each in threading.enumerate() if each.name == "quorate-log-open"]
    disk.free.set()
    for each in threads:
        each.join(DEADLINE_S)
    assert not broker.open().clean_start


def test_a_log_that_cannot_be_opened_ends_the_start(broker: Broker) -> None:
    for number in range(10):
        fill(broker.directory.create(PartitionKey("many", number), TOPIC_ID, SETTINGS), 1)
    broker.directory.abandon()
    (path,) = (broker.path / "many-4").glob("*.log")
    path.rename(path.with_suffix(".kept"))
    path.mkdir()
    with pytest.raises(LogStorageError, match="Is a directory"):
        broker.open()
    path.rmdir()
    path.with_suffix(".kept").rename(path)
    assert {each.log_end_offset for each in broker.open().logs.values()} == {1}
