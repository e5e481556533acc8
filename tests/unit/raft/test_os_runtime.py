"""The real runtime and disk: lanes, locks, files."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quorum.errors import NodeStoppedError
from quorum.platform.os_runtime import AsyncioRuntime, OsDisk
from quorum.platform.runtime import DataDirInUseError


async def test_a_lane_keeps_its_order_and_answers_in_the_loop() -> None:
    runtime = AsyncioRuntime(asyncio.get_running_loop())
    loop_thread = threading.get_ident()
    worked: list[int] = []
    answers: list[tuple[int | None, str]] = []
    finished = asyncio.Event()

    def work(number: int) -> int:
        assert threading.get_ident() != loop_thread
        worked.append(number)
        if number == 3:
            raise OSError(errno.EIO, "broken")
        return number

    def done(result: int | None, error: BaseException | None) -> None:
        assert threading.get_ident() == loop_thread
        answers.append((result, type(error).__name__))
        if len(answers) == 5:
            finished.set()

    for number in range(5):
        runtime.run_in_thread("journal", lambda number=number: work(number), done)  # type: ignore[misc]
    await asyncio.wait_for(finished.wait(), 10)
    assert worked == [0, 1, 2, 3, 4]
    assert answers == [(0, "NoneType"), (1, "NoneType"), (2, "NoneType"), (None, "OSError"), (4, "NoneType")]
    runtime.close()


async def test_lanes_do_not_wait_for_each_other() -> None:
    runtime = AsyncioRuntime(asyncio.get_running_loop())
    release = threading.Event()
    journal, snapshot = asyncio.Event(), asyncio.Event()
    runtime.run_in_thread("snapshot", lambda: release.wait(10), lambda _result, _error: snapshot.set())
    runtime.run_in_thread("journal", lambda: None, lambda _result, _error: journal.set())
    await asyncio.wait_for(journal.wait(), 10)
    assert not snapshot.is_set()
    release.set()
    await asyncio.wait_for(snapshot.wait(), 10)
    runtime.close()


async def test_a_closed_runtime_takes_no_work() -> None:
    runtime = AsyncioRuntime(asyncio.get_running_loop())
    runtime.close()
    with pytest.raises(NodeStoppedError, match="journal"):
        runtime.run_in_thread("journal", lambda: None, lambda _result, _error: None)


async def test_timers_and_clocks() -> None:
    runtime = AsyncioRuntime(asyncio.get_running_loop())
    begun_ms = runtime.monotonic_ms()
    fired = asyncio.Event()
    runtime.call_later(1, lambda: pytest.fail("was cancelled")).cancel()
    runtime.call_later(20, fired.set)
    await asyncio.wait_for(fired.wait(), 10)
    assert runtime.monotonic_ms() - begun_ms >= 19
    assert runtime.wall_ms() > 1_700_000_000_000
    assert runtime.random.getrandbits(128) != AsyncioRuntime(asyncio.get_running_loop()).random.getrandbits(
        128
    )


def test_a_file_writes_many_buffers_at_an_offset(tmp_path: Path) -> None:
    file = OsDisk().create(str(tmp_path / "file"))
    parts = [bytes([number % 256]) * (number % 7) for number in range(3000)]
    file.pwrite(parts, 10)
    whole = bytes(10) + b"".join(parts)
    assert file.size() == len(whole)
    assert file.pread(1 << 20, 0) == whole
    assert file.pread(5, 10) == whole[10:15]
    assert file.pread(5, 1 << 20) == b""
    file.truncate(12)
    file.fdatasync()
    assert file.pread(100, 0) == whole[:12]
    file.close()
    file.close()


def test_names(tmp_path: Path) -> None:
    disk = OsDisk()
    folder = str(tmp_path / "a" / "b")
    with pytest.raises(FileNotFoundError):
        disk.listdir(folder)
    disk.make_dirs(folder)
    disk.make_dirs(folder)
    disk.create(f"{folder}/z").close()
    disk.create(f"{folder}/y").close()
    with pytest.raises(FileExistsError):
        disk.create(f"{folder}/z")
    disk.rename(f"{folder}/z", f"{folder}/x")
    disk.fsync_dir(folder)
    assert disk.listdir(folder) == ["x", "y"]
    disk.unlink(f"{folder}/x")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/x")


def test_a_folder_is_durable_though_who_made_it_ended_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(OsDisk, "fsync_dir", lambda _disk, path: synced.append(path))
    (tmp_path / "a").mkdir()
    OsDisk().make_dirs(str(tmp_path / "a"))
    assert synced == [str(tmp_path)]
    synced.clear()
    OsDisk().make_dirs(str(tmp_path / "a" / "b" / "c"))
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]


def test_folders_that_another_process_makes_meanwhile_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def make_after_another(path: str, mode: int) -> None:
        make(path, mode)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", make_after_another)
    OsDisk().make_dirs(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        OsDisk().make_dirs(str(tmp_path / "a"))


@pytest.mark.parametrize("writable", [False, True])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, writable: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match=r"Not a regular file|Is a directory") as caught:
            OsDisk().open(str(tmp_path / name), writable=writable)
        assert caught.value.filename == str(tmp_path / name)


def test_what_no_start_would_find_is_not_durable(tmp_path: Path) -> None:
    file = OsDisk().create(str(tmp_path / "a"))
    file.pwrite([b"x"], 0)
    file.fdatasync()
    (tmp_path / "a").unlink()
    with pytest.raises(OSError, match="somebody removed the file") as caught:
        file.fdatasync()
    assert (caught.value.errno, caught.value.filename) == (errno.ESTALE, str(tmp_path / "a"))
    file.close()


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = disk.lock(str(tmp_path))
    with pytest.raises(DataDirInUseError, match=str(tmp_path)):
        disk.lock(str(tmp_path))
    lock.release()
    lock.release()
    disk.lock(str(tmp_path)).release()


def test_a_folder_stays_held_when_somebody_removes_its_lock_file(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = disk.lock(str(tmp_path))
    (tmp_path / "lock").unlink()
    with pytest.raises(DataDirInUseError, match=str(tmp_path)):
        disk.lock(str(tmp_path))
    lock.release()
    disk.lock(str(tmp_path)).release()


def test_a_file_system_that_does_not_lock_folders_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def refused(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refused)
    lock = OsDisk().lock(str(tmp_path))
    with pytest.raises(DataDirInUseError, match=f"id {os.getpid()}"):
        OsDisk().lock(str(tmp_path))
    lock.release()


def test_another_process_is_named_and_its_end_frees_the_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from quorum.platform.os_runtime import OsDisk; lock = OsDisk().lock(sys.argv[1]); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(DataDirInUseError, match=f"id {process.pid}"):
            OsDisk().lock(str(tmp_path))
        process.kill()
        process.wait()
        OsDisk().lock(str(tmp_path)).release()


def test_an_error_names_the_file_also_where_the_kernel_knows_a_descriptor_only(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    file = OsDisk().open(str(path))
    calls: list[Callable[[], object]] = [
        lambda: file.pwrite([b"y"], 0),
        lambda: file.truncate(0),
        lambda: file.pread(1, -1),
    ]
    for call in calls:
        with pytest.raises(OSError, match=r"^\[Errno") as caught:
            call()
        assert caught.value.filename == str(path)
    file.close()
