"""Whose data directory it is, and who may format it."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path

import pytest

from quorum.errors import DataDamagedError, DataDirError
from quorum.platform.os_runtime import OsDisk
from quorum.platform.runtime import DataDirInUseError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.datadir.identity import (
    Identity,
    NotFormattedError,
    Start,
    WrongIdentityError,
    journal_directory,
    load_identity,
    open_data_dir,
    snapshot_directory,
    store_cluster_id,
)
from quorum.raft.journal.journal import Journal, JournalOptions
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

DATA = "/srv/node-1"
IDENTITY = f"{DATA}/identity.json"
FORMATTING = [Start.BOOTSTRAP, Start.JOIN]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(random.Random(0))


def started(
    disk: MemoryDisk, start: Start = Start.PLAIN, cluster: str = "local", node_id: int = 1
) -> Identity:
    identity, lock = open_data_dir(disk, DATA, cluster, node_id, start=start, rng=random.Random(disk.life))
    lock.release()
    return identity


@pytest.mark.parametrize("start", FORMATTING)
def test_an_empty_directory_is_formatted_and_stays_what_it_is(disk: MemoryDisk, start: Start) -> None:
    identity = started(disk, start)
    assert identity[:2] == ("local", 1)
    assert len(bytes.fromhex(identity.incarnation)) == 16
    assert identity.founder == (start is Start.BOOTSTRAP)
    assert identity.cluster_id == ""
    disk.power_cut(Cut.NOTHING)
    assert [started(disk, again) for again in (Start.PLAIN, *FORMATTING)] == [identity] * 3
    Journal.open(disk, journal_directory(DATA), JournalOptions(), lambda _line: None)
    assert disk.listdir(snapshot_directory(DATA)) == []
    assert disk.listdir(DATA) == ["identity.json", "journal", "lock", "snapshots"]


def test_each_formatting_draws_another_incarnation(disk: MemoryDisk) -> None:
    other = MemoryDisk(random.Random(0))
    other.life = 1
    assert started(disk, Start.BOOTSTRAP).incarnation != started(other, Start.BOOTSTRAP).incarnation


@pytest.mark.parametrize("exists", [True, False])
def test_a_plain_start_on_an_empty_directory_says_what_fits(disk: MemoryDisk, exists: bool) -> None:
    if exists:
        disk.make_dirs(DATA)
    for _ in range(2):
        with pytest.raises(NotFormattedError) as caught:
            started(disk)
        for word in (DATA, "--bootstrap", "--join", "members replace"):
            assert word in str(caught.value)
    with pytest.raises(NotFormattedError):
        load_identity(disk, DATA)
    assert started(disk, Start.BOOTSTRAP).founder


def test_a_directory_that_holds_something_else_is_refused(disk: MemoryDisk) -> None:
    disk.plant(f"{DATA}/holiday.jpg", b"...")
    for start in Start:
        with pytest.raises(DataDirError, match=r"holiday\.jpg"):
            started(disk, start)
    assert "holiday.jpg" in disk.listdir(DATA)


def test_a_file_systems_own_folder_does_not_count(disk: MemoryDisk) -> None:
    disk.make_dirs(f"{DATA}/lost+found")
    started(disk, Start.BOOTSTRAP)


def test_another_cluster_and_another_node_are_refused_by_name(disk: MemoryDisk) -> None:
    started(disk, Start.BOOTSTRAP)
    for start in Start:
        with pytest.raises(WrongIdentityError, match=r"node\.cluster = 'other'") as caught:
            started(disk, start, cluster="other")
        assert "'local'" in str(caught.value)
        with pytest.raises(WrongIdentityError, match=r"node\.id = 2"):
            started(disk, start, node_id=2)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"{}", b"[" * 60_000])
def test_a_file_that_is_no_identity_is_refused(disk: MemoryDisk, content: bytes) -> None:
    started(disk, Start.BOOTSTRAP)
    disk.plant(IDENTITY, content)
    for start in Start:
        with pytest.raises(DataDirError) as caught:
            started(disk, start)
        assert IDENTITY in str(caught.value)
        assert caught.value.remedy


def test_every_single_flipped_bit_is_noticed(disk: MemoryDisk) -> None:
    identity = started(disk, Start.BOOTSTRAP)
    content = disk.content(IDENTITY)
    for bit in range(8 * len(content)):
        disk.plant(IDENTITY, content)
        disk.flip_bit(IDENTITY, bit)
        try:
            assert load_identity(disk, DATA) == identity
        except DataDirError:
            continue
        # Only white space between the fields may change without a word.
        assert json.loads(disk.content(IDENTITY)) == json.loads(content)


def test_an_identity_of_a_later_format_is_refused_without_calling_it_damaged(disk: MemoryDisk) -> None:
    started(disk, Start.BOOTSTRAP)
    disk.plant(IDENTITY, b'{"format": 7}')
    with pytest.raises(DataDirError, match="format = 7") as caught:
        started(disk)
    assert not isinstance(caught.value, DataDamagedError)


def test_the_cluster_id_is_added_once(disk: MemoryDisk) -> None:
    identity = started(disk, Start.BOOTSTRAP)
    known = store_cluster_id(disk, DATA, identity, "ab" * 16)
    assert known == identity._replace(cluster_id="ab" * 16)
    disk.power_cut(Cut.NOTHING)
    assert started(disk) == known
    assert store_cluster_id(disk, DATA, known, "ab" * 16) == known
    with pytest.raises(WrongIdentityError, match="cd" * 16):
        store_cluster_id(disk, DATA, known, "cd" * 16)


def test_one_process_at_a_time(disk: MemoryDisk) -> None:
    _, lock = open_data_dir(disk, DATA, "local", 1, start=Start.BOOTSTRAP, rng=random.Random(1))
    with pytest.raises(DataDirInUseError):
        started(disk)
    lock.release()
    started(disk)


def test_a_refusal_frees_the_directory(disk: MemoryDisk) -> None:
    started(disk, Start.BOOTSTRAP)
    with pytest.raises(WrongIdentityError):
        started(disk, node_id=2)
    assert disk.locked == set()


def test_a_disk_that_refuses_is_named(disk: MemoryDisk) -> None:
    for code, remedy in ((errno.EACCES, "owner or mode"), (errno.EIO, "healthy disk")):
        disk.fail("create", code, path_part="segment")
        with pytest.raises(DataDirError, match=os.strerror(code)) as caught:
            started(disk, Start.BOOTSTRAP)
        assert remedy in caught.value.remedy
        assert disk.locked == set()


@pytest.mark.parametrize("cut", list(Cut))
def test_formatting_can_be_cut_anywhere(cut: Cut) -> None:
    for calls in range(80):
        disk = MemoryDisk(random.Random(calls))
        disk.stop_after(calls)
        try:
            started(disk, Start.BOOTSTRAP)
            finished = True
        except Stopped:
            finished = False
        disk.power_cut(cut)
        identity = started(disk, Start.BOOTSTRAP)
        Journal.open(disk, journal_directory(DATA), JournalOptions(), lambda _line: None)
        disk.power_cut(Cut.NOTHING)
        assert started(disk) == identity
        if finished:
            return
    pytest.fail("formatting takes more calls than were tried")


@pytest.mark.parametrize("cut", list(Cut))
def test_adding_the_cluster_id_can_be_cut_anywhere(cut: Cut) -> None:
    for calls in range(20):
        disk = MemoryDisk(random.Random(calls))
        identity = started(disk, Start.BOOTSTRAP)
        disk.stop_after(calls)
        try:
            store_cluster_id(disk, DATA, identity, "ab" * 16)
            finished = True
        except Stopped:
            finished = False
        disk.power_cut(cut)
        found = started(disk)
        assert found._replace(cluster_id="") == identity
        assert found.cluster_id in (("ab" * 16,) if finished else ("", "ab" * 16))
        if finished:
            return
    pytest.fail("adding the id takes more calls than were tried")


def test_what_a_killed_process_wrote_is_durable_once_a_start_counts_on_it(disk: MemoryDisk) -> None:
    identity = started(disk, Start.BOOTSTRAP)
    disk.stop_at("fsync_dir", path_part=DATA)
    with pytest.raises(Stopped):
        store_cluster_id(disk, DATA, identity, "ab" * 16)
    disk.kill()
    known = started(disk)
    assert known.cluster_id == "ab" * 16
    disk.power_cut(Cut.NOTHING)
    assert started(disk) == known


def test_a_lost_identity_never_gives_its_journal_a_new_one(disk: MemoryDisk) -> None:
    started(disk, Start.BOOTSTRAP)
    journal, _ = Journal.open(disk, journal_directory(DATA), JournalOptions(), lambda _line: None)
    journal.append([Entry(1, 1, EntryKind.NOOP, 1, b"")])
    disk.kill()
    disk.unlink(IDENTITY)
    with pytest.raises(DataDirError, match="journal"):
        started(disk, Start.BOOTSTRAP)
    # Not even with the marker that an interrupted formatting leaves.
    disk.plant(f"{DATA}/formatting", b"")
    with pytest.raises(DataDirError, match="in use"):
        started(disk, Start.BOOTSTRAP)


def test_on_real_files(tmp_path: Path) -> None:
    data = str(tmp_path / "data" / "node-1")
    disk = OsDisk()
    identity, lock = open_data_dir(disk, data, "local", 3, start=Start.JOIN, rng=random.SystemRandom())
    assert json.loads((tmp_path / "data" / "node-1" / "identity.json").read_text())["node_id"] == 3
    lock.release()
    again, lock = open_data_dir(disk, data, "local", 3, start=Start.PLAIN, rng=random.SystemRandom())
    assert again == identity
    assert not again.founder
    lock.release()
