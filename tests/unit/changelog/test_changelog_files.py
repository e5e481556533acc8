"""The files of the change log: retention, restarts, power cuts, and disks that refuse."""

from __future__ import annotations

import asyncio
import errno
import random
import threading

import pytest

from quorum.changelog import recorder as recorder_module
from quorum.changelog.files import DamagedChangelogError
from quorum.changelog.recorder import CHANGELOG_LANE, READS_MAX
from quorum.changelog.rows import ENCODERS, JSON_LINES
from quorum.core.machine import StateMachine
from quorum.errors import DataDirError
from tests.support.memory_disk import Cut, MemoryDisk
from tests.unit.changelog.recording import FOLDER, RETENTION_BYTES_MAX, Recorded, all_rows, new_files
from tests.unit.core.driver import replay


def zxids(driver: Recorded, from_zxid: int = 0) -> list[int]:
    return [row["zxid"] for row in driver.rows(from_zxid)]


def write(driver: Recorded, count: int, size: int = 1000) -> None:
    """Write one znode again and again; each record holds two images."""
    if driver.machine.tree.get("/w") is None:
        driver.client.make("/w")
    for number in range(count):
        driver.client.put("/w", b"%d" % number + bytes(size))
        if number % 5 == 0:
            driver.settle()
    driver.settle()


def state_after(driver: Recorded, applied: int) -> StateMachine:
    """The state that a snapshot of the first entries restores."""
    machine = StateMachine()
    for entry in driver.entries[:applied]:
        replay(machine, entry)
    return machine


def test_the_oldest_segments_go_when_there_are_too_many_bytes() -> None:
    driver = Recorded()
    write(driver, 100)
    assert 0 < driver.files.first_zxid < 100
    kept = zxids(driver, driver.files.first_zxid)
    assert kept == list(range(driver.files.first_zxid, driver.zxid + 1))
    assert driver.files.size_bytes <= RETENTION_BYTES_MAX + 17_000
    assert driver.files.size_bytes == driver.disk.used_bytes


def test_the_oldest_segments_go_when_all_in_them_is_too_old() -> None:
    driver = Recorded(retention_bytes_max=1 << 22, retention_age_ms=300)
    write(driver, 120, 10_000)
    oldest = driver.files.first_zxid
    assert oldest > 0
    stamp_ms = driver.rows(oldest)[0]["ts"]
    assert driver.stamp_ms - 600 < stamp_ms < driver.stamp_ms - 300


def test_nothing_goes_for_its_age_while_the_time_is_not_believed() -> None:
    driver = Recorded(retention_bytes_max=1 << 22, retention_age_ms=300, believes=lambda time_ms: time_ms < 0)
    write(driver, 120, 10_000)
    assert driver.files.first_zxid == 0


def test_any_zxid_is_found_in_any_segment_before_and_after_a_restart() -> None:
    driver = Recorded(retention_bytes_max=1 << 20)
    write(driver, 200)
    rows = driver.rows()
    for _ in range(2):
        for zxid in range(0, driver.zxid + 1, 7):
            assert all_rows(driver.files, zxid)[0] == rows[zxid]
        driver.restart(state_after(driver, len(driver.entries)), len(driver.entries))
    assert driver.rows() == rows


@pytest.mark.parametrize("cut", list(Cut))
@pytest.mark.parametrize("seed", range(4))
def test_after_a_power_cut_the_journal_gives_the_same_history_again(cut: Cut, seed: int) -> None:
    driver = Recorded(MemoryDisk(random.Random(seed)), retention_bytes_max=1 << 20)
    write(driver, 40)
    applied = len(driver.entries)
    driver.recorder.sync()
    write(driver, 30)
    rows = driver.rows()
    driver.disk.power_cut(cut)
    driver.restart(state_after(driver, applied), applied)
    assert driver.rows() == rows


def test_without_a_sync_a_lost_tail_lets_the_log_begin_behind_it() -> None:
    driver = Recorded()
    write(driver, 3)
    applied = len(driver.entries)
    driver.disk.power_cut(Cut.NOTHING)
    before = driver.zxid
    driver.restart(state_after(driver, applied), applied)
    assert (driver.files.first_zxid, driver.files.last_zxid) == (before + 1, before)
    driver.connect()
    assert zxids(driver) == [before + 1]


def test_what_lies_behind_an_older_snapshot_is_written_again() -> None:
    driver = Recorded(retention_bytes_max=1 << 20)
    write(driver, 60)
    rows = driver.rows()
    for applied in (len(driver.entries) - 1, 20, 0):
        driver.restart(state_after(driver, applied), applied)
        assert driver.rows() == rows


def test_an_installed_snapshot_is_where_the_log_begins_anew() -> None:
    driver = Recorded()
    write(driver, 3)
    other = Recorded()
    write(other, 10)
    driver.recorder.installed(other.machine)
    driver.settle()
    assert (driver.files.first_zxid, zxids(driver)) == (other.zxid + 1, [])
    assert driver.disk.listdir(FOLDER) == []


def test_a_full_disk_keeps_what_waits_and_writes_it_later() -> None:
    driver = Recorded()
    driver.settle()
    driver.disk.fail("pwrite", errno.ENOSPC, times=2)
    driver.client.make("/a")
    driver.runtime.advance(50)
    driver.runtime.settle()
    assert driver.files.last_zxid == 1
    driver.client.make("/b")
    assert zxids(driver) == [0, 1, 2, 3]


def test_a_disk_that_refuses_for_too_long_costs_history_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "PENDING_BYTES_MAX", 10_000)
    driver = Recorded()
    driver.settle()
    driver.disk.fail("pwrite", errno.EIO, times=5)
    for number in range(20):
        driver.client.make(f"/a{number}", bytes(1000))
    gap = driver.zxid
    driver.disk.forgive()
    driver.client.make("/b")
    rows = driver.rows(driver.files.first_zxid)
    assert 2 < driver.files.first_zxid <= gap
    assert [row["zxid"] for row in rows] == list(range(driver.files.first_zxid, driver.zxid + 1))


def test_a_disk_that_is_too_slow_makes_the_apply_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "PENDING_BYTES_MAX", 10_000)
    driver = Recorded()
    for number in range(50):
        driver.client.make(f"/a{number}", bytes(1000))
        assert driver.recorder.pending_bytes <= 12_000
    assert zxids(driver) == list(range(52))


def test_a_failed_fsync_lets_the_log_begin_anew() -> None:
    driver = Recorded()
    write(driver, 3)
    driver.disk.fail("fdatasync", errno.EIO)
    driver.recorder.sync()
    assert driver.files.first_zxid == driver.zxid + 1
    driver.client.make("/a")
    assert zxids(driver) == [driver.zxid]


def test_a_folder_that_cannot_be_read_lets_the_log_begin_anew() -> None:
    driver = Recorded()
    write(driver, 3)
    rows = driver.rows()
    driver.disk.fail("listdir", errno.EIO)
    applied = len(driver.entries)
    driver.restart(state_after(driver, applied), applied)
    driver.client.make("/a")
    assert zxids(driver) == [rows[-1]["zxid"] + 1]


def test_a_segment_of_a_newer_build_is_refused_and_stays_as_it_is() -> None:
    driver = Recorded()
    write(driver, 3)
    name = f"{FOLDER}/{driver.disk.listdir(FOLDER)[0]}"
    newer = b"QCL2" + driver.disk.content(name)[4:]
    driver.disk.plant(name, newer)
    with pytest.raises(DataDirError, match=r"\.changes has format 2, and this build reads up to 1") as caught:
        driver.restart(state_after(driver, 1), 1)
    assert "start the build that wrote it" in caught.value.remedy
    assert driver.disk.content(name) == newer


def test_damage_in_a_segment_is_told_and_not_read_over() -> None:
    driver = Recorded(retention_bytes_max=1 << 18)
    write(driver, 100)
    names = driver.disk.listdir(FOLDER)
    assert len(names) > 2
    driver.disk.flip_bit(f"{FOLDER}/{names[0]}", 8 * 5000)
    with pytest.raises(DamagedChangelogError) as caught:
        all_rows(driver.files, 0)
    assert caught.value.next_zxid == int(names[1][:16], 16)
    rows = all_rows(driver.files, caught.value.next_zxid)
    assert rows[0]["zxid"] == caught.value.next_zxid


def test_what_waits_is_written_when_the_node_stops() -> None:
    driver = Recorded()
    driver.client.make("/a")
    driver.recorder.stop()
    driver.recorder.close()
    files = new_files(driver.disk)
    files.open(driver.zxid)
    assert [row["zxid"] for row in all_rows(files)] == [0, 1, 2]


def test_one_drain_writes_what_several_entries_did() -> None:
    driver = Recorded()
    for number in range(10):
        driver.client.make(f"/a{number}")
    driver.runtime.advance(50)
    assert driver.runtime.work(CHANGELOG_LANE)
    assert not driver.runtime.work(CHANGELOG_LANE)
    assert driver.files.last_zxid == driver.zxid


async def test_reads_of_the_past_do_not_hold_up_the_change_log() -> None:
    driver = Recorded()
    write(driver, 3)
    begun, ends = threading.Event(), threading.Event()

    def visit(_path: str, _before: bytes | None, _after: bytes | None) -> None:
        begun.set()
        assert ends.wait(30)

    passes = [
        asyncio.ensure_future(driver.recorder.visit_changes(0, driver.zxid, visit))
        for _ in range(READS_MAX + 1)
    ]
    assert await asyncio.to_thread(begun.wait, 30)
    try:
        async with asyncio.timeout(30):
            assert await driver.recorder.read(0, 1_000, ENCODERS[JSON_LINES])
        assert not any(each.done() for each in passes)
    finally:
        ends.set()
    assert await asyncio.gather(*passes) == [driver.zxid] * len(passes)
