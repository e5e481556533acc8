"""Whose log directory it is, what is in it, and what becomes of logs that are deleted or set aside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from broker.datadir.directory import STRAY_KEPT_MS
from broker.log.errors import DamagedLogDirectoryError, ForeignLogDirectoryError, LogStorageError
from quorum.errors import DataDirError
from quorum.metadata.paths import PartitionKey
from quorum.platform.runtime import DataDirInUseError
from tests.support.nodes import REPOSITORY
from tests.unit.broker_log.samples import KEY, SETTINGS, TOPIC_ID, Broker, fill, headers, read_all


def test_an_empty_directory_is_formatted_once(broker: Broker) -> None:
    incarnation = broker.directory.incarnation
    assert re.fullmatch(r"[0-9a-f]{32}", incarnation)
    assert (broker.directory.logs, broker.directory.high_watermarks) == ({}, {})
    assert not broker.started_clean()
    broker.directory.close()
    assert broker.open().incarnation == incarnation
    assert broker.started_clean()
    properties = (broker.path / "meta.properties").read_text()
    assert properties.splitlines()[:-1] == [
        *("version=0", "broker.id=1", "cluster.id=cluster-a", f"incarnation={incarnation}"),
    ]
    assert (broker.path / "meta.properties.copy").read_text() == properties


def test_another_empty_directory_has_another_incarnation(broker: Broker, tmp_path: Path) -> None:
    other = Broker(tmp_path / "other")
    assert other.directory.incarnation != broker.directory.incarnation
    other.directory.abandon()


def test_a_directory_of_another_cluster_or_broker_is_refused(broker: Broker) -> None:
    broker.create()
    broker.directory.close()
    with pytest.raises(ForeignLogDirectoryError, match=r"cluster with id cluster-a.*quorum's is cluster-b"):
        broker.open(cluster_id="cluster-b")
    with pytest.raises(ForeignLogDirectoryError, match=r"broker 1, and this is broker 2") as caught:
        broker.open(broker_id=2)
    assert "start it as broker 1" in str(caught.value)
    # A refused start changes nothing.
    assert broker.open().clean_start


def test_a_directory_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(ForeignLogDirectoryError, match="holds letters"):
        Broker(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["letters", "lock"]


NEWER = "version=1\nbroker.id=1\ncluster.id=cluster-a\nincarnation=b\n"


def test_a_directory_of_a_newer_build_is_refused_and_stays_as_it_is(broker: Broker) -> None:
    broker.directory.close()
    paths = [broker.path / name for name in ("meta.properties", "meta.properties.copy")]
    for path in paths:
        path.write_text(NEWER)
    with pytest.raises(ForeignLogDirectoryError, match=r"has version 1, and this build reads 0") as caught:
        broker.open()
    assert "start the build that wrote it" in str(caught.value)
    assert [path.read_text() for path in paths] == [NEWER, NEWER]


@pytest.mark.parametrize("name", ["meta.properties", "meta.properties.copy"])
def test_a_damaged_identity_is_written_again_from_its_copy(broker: Broker, name: str) -> None:
    incarnation = broker.directory.incarnation
    path = broker.path / name
    whole = path.read_bytes()
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole) - 1)]
    for content in (b"", bytes(len(whole)), whole[: len(whole) // 2], whole[:-20], *flipped, None):
        broker.directory.close()
        path.unlink() if content is None else path.write_bytes(content)
        assert broker.open().incarnation == incarnation, content
        assert path.read_bytes() == whole


def test_an_identity_without_a_checksum_is_read(broker: Broker) -> None:
    incarnation = broker.directory.incarnation
    broker.directory.close()
    (broker.path / "meta.properties.copy").unlink()
    path = broker.path / "meta.properties"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert broker.open().incarnation == incarnation


@pytest.mark.parametrize("content", ["", "broker.id=1\n", NEWER.replace("=1", "=0", 1)])
def test_a_damaged_identity_is_refused(broker: Broker, content: str) -> None:
    broker.directory.close()
    for name in ("meta.properties", "meta.properties.copy"):
        (broker.path / name).write_text(content)
    with pytest.raises(DamagedLogDirectoryError, match=r"meta\.properties is damaged"):
        broker.open()


def test_a_directory_in_use_is_refused(broker: Broker) -> None:
    with pytest.raises(DataDirInUseError, match=f"in use by the process with id {os.getpid()}"):
        Broker(broker.path)
    broker.create()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirError, match="cannot be used"):
        Broker(tmp_path / "file" / "data")


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from tests.unit.broker_log.samples import Broker; "
    code += "Broker(Path(sys.argv[1])).create(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "data")], cwd=REPOSITORY, check=False)
    broker = Broker(tmp_path / "data")
    assert list(broker.directory.logs) == [KEY]
    assert not broker.started_clean()
    broker.directory.close()


def test_logs_are_found_again_with_their_topic(broker: Broker) -> None:
    keys = [PartitionKey("a", 0), PartitionKey("a-1", 0), PartitionKey("a", 10), PartitionKey("a.b_c", 2)]
    ids = {key: uuid.uuid4() for key in keys}
    for number, key in enumerate(keys):
        fill(broker.directory.create(key, ids[key], SETTINGS), number)
    for name in ("snapshots", "a-", "-1", "a-01", "a b-1"):
        (broker.path / name).mkdir()
    broker.directory.close()
    found = broker.open().logs
    assert {key: each.topic_id for key, each in found.items()} == ids
    assert [found[key].log_end_offset for key in keys] == [0, 1, 2, 3]
    assert (broker.path / "snapshots").is_dir()


def test_a_topic_id_is_stored_as_kafka_does(broker: Broker) -> None:
    broker.directory.create(KEY, uuid.UUID(int=1), SETTINGS)
    content = (broker.folder / "partition.metadata").read_text()
    assert content == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"


def test_a_log_without_a_topic_id_has_none(broker: Broker) -> None:
    broker.directory.create(KEY, None, SETTINGS)
    assert broker.restart().topic_id is None


def test_a_topic_id_that_a_power_cut_emptied_is_none(broker: Broker) -> None:
    broker.create()
    broker.directory.abandon()
    (broker.folder / "partition.metadata").write_bytes(b"")
    assert broker.open().logs[KEY].topic_id is None


@pytest.mark.parametrize("content", [b"topic_id: ?\n", b"\0" * 44, b"version: 0\ntopic_id: bw6bHA"])
def test_a_damaged_topic_id_is_written_again(broker: Broker, content: bytes) -> None:
    fill(broker.create(), 3)
    broker.directory.close()
    (broker.folder / "partition.metadata").write_bytes(content)
    assert broker.open().logs[KEY].topic_id is None
    broker.directory.adopt(KEY, TOPIC_ID)
    assert (broker.log.topic_id, broker.log.log_end_offset) == (TOPIC_ID, 3)
    assert broker.restart().topic_id == TOPIC_ID


def test_a_log_is_not_made_twice(broker: Broker) -> None:
    fill(broker.create(), 3)
    with pytest.raises(LogStorageError):
        broker.create()
    assert broker.log.log_end_offset == 3


def test_a_deleted_log_is_gone_at_once(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.directory.begin_checkpoint({KEY: 5}).result()
    broker.directory.delete(KEY)
    assert (broker.directory.logs, broker.directory.high_watermarks) == ({}, {})
    assert broker.create().log_end_offset == 0
    broker.directory.close()
    assert [each.name for each in broker.path.iterdir() if each.is_dir()] == [broker.folder.name]
    assert broker.open().logs[KEY].log_end_offset == 0


def test_what_is_left_of_a_deleted_log_goes_at_the_start(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.directory.abandon()
    broker.folder.rename(broker.path / f"{broker.folder.name}.{uuid.uuid4().hex}-delete")
    assert broker.open().logs == {}
    broker.directory.close()
    assert [each for each in broker.path.iterdir() if each.is_dir()] == []
    broker.open()


def test_a_stray_is_kept_for_a_week(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.directory.set_aside(KEY)
    assert broker.directory.logs == {}
    (stray,) = broker.path.glob("orders-3.*-stray")
    assert broker.create().log_end_offset == 0
    broker.restart()
    assert (stray / "00000000000000000000.log").stat().st_size > 1000
    long_ago_s = time.time() - STRAY_KEPT_MS / 1000 - 60
    os.utime(stray, (long_ago_s, long_ago_s))
    broker.restart()
    broker.directory.close()
    assert not stray.exists()
    broker.open()


def test_the_longest_topic_name_can_be_set_aside(broker: Broker) -> None:
    key = PartitionKey("t" * 249, 12345)
    broker.directory.create(key, TOPIC_ID, SETTINGS)
    broker.directory.set_aside(key)
    (stray,) = broker.path.glob("t*-stray")
    assert len(stray.name) == 255
    broker.directory.close()
    assert broker.open().logs == {}


def test_high_watermarks_are_replaced_as_a_whole(broker: Broker) -> None:
    other = PartitionKey("a-b", 0)
    broker.directory.begin_checkpoint({KEY: 17, other: 0}).result()
    assert (broker.path / "replication-offset-checkpoint").read_text() == "0\n2\na-b 0 0\norders 3 17\n"
    broker.directory.abandon()
    assert broker.open().high_watermarks == {KEY: 17, other: 0}
    broker.directory.begin_checkpoint({KEY: 18}).result()
    assert broker.directory.high_watermarks == {KEY: 18}
    broker.directory.abandon()
    (broker.path / "replication-offset-checkpoint.tmp").write_text("0\n1\nhalf")
    assert broker.open().high_watermarks == {KEY: 18}


@pytest.mark.parametrize("content", ["", "0\n2\norders 3 17\n", "7\n1\norders 3 17\n", "0\n1\norders 3\n"])
def test_a_damaged_checkpoint_counts_as_none(broker: Broker, content: str) -> None:
    broker.directory.close()
    (broker.path / "replication-offset-checkpoint").write_text(content)
    assert broker.open().high_watermarks == {}


def test_a_log_below_its_high_watermark_is_named(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.directory.begin_checkpoint({KEY: 10}).result()
    broker.revive()
    assert broker.directory.shortened == {}
    broker.directory.abandon()
    os.truncate(broker.folder / "00000000000000000000.log", 700)
    broker.open()
    assert broker.directory.shortened == {KEY: 10}
    assert broker.log.log_end_offset == 3


def test_a_shortened_log_is_named_until_that_is_noted_elsewhere(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.directory.abandon()
    os.truncate(broker.folder / "00000000000000000000.log", 700)
    for end in ("killed", "stopped", "killed"):
        broker.open()
        assert (list(broker.directory.shortened), broker.log.log_end_offset) == ([KEY], 3), end
        broker.directory.begin_checkpoint({KEY: 3}).result()
        broker.directory.abandon() if end == "killed" else broker.directory.close()
    broker.open()
    broker.directory.shortened.clear()
    broker.directory.begin_shortened().result()
    broker.revive()
    assert broker.directory.shortened == {}


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_after_a_power_cut_every_log_counts_as_shortened(broker: Broker, end: str) -> None:
    fill(broker.create(), 10)
    broker.directory.begin_checkpoint({KEY: 7}).result()
    broker.directory.close() if end == "stopped" else broker.directory.abandon()
    (broker.path / "boot-id").write_text("another boot\n")
    broker.open()
    assert broker.directory.shortened == ({KEY: 7} if end == "killed" else {})
    assert broker.directory.lost_power is (end == "killed")
    broker.revive()
    assert broker.directory.shortened == ({KEY: 7} if end == "killed" else {})
    assert not broker.directory.lost_power


def test_a_damaged_list_of_shortened_logs_names_them_all(broker: Broker) -> None:
    broker.create()
    broker.directory.close()
    (broker.path / "shortened-checkpoint").write_bytes(bytes(20))
    broker.open()
    assert broker.directory.shortened == {KEY: 0}


@pytest.mark.parametrize("damage", ["zeroed", "halved", "emptied", "missing"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_no_damaged_file_of_a_log_refuses_a_start_or_loses_a_record(
    broker: Broker, damage: str, end: str
) -> None:
    fill(broker.create(segment_bytes=20_000), 250)
    wanted = read_all(broker.log)
    broker.directory.begin_checkpoint({KEY: 250}).result()
    broker.directory.close() if end == "stopped" else broker.directory.abandon()
    small = [each for each in broker.path.rglob("*") if each.is_file() and each.suffix != ".log"]
    small = [each for each in small if each.name != "lock"]
    # The size of each file before: what one start writes is damaged for the next one, too.
    for path in small:
        if path.exists():
            content = path.read_bytes()
            if damage == "missing":
                path.unlink()
            else:
                kept = {"zeroed": bytes(len(content)), "halved": content[: len(content) // 2], "emptied": b""}
                path.write_bytes(kept[damage])
        log = broker.open().logs[KEY]
        assert read_all(log) == wanted, path
        assert log.log_end_offset == 250
        assert log.end_offset_for_epoch(1) == (1, 250)
        broker.directory.close() if end == "stopped" else broker.directory.abandon()


def test_an_end_is_clean_only_if_it_was_closed(broker: Broker) -> None:
    fill(broker.create(), 10)
    broker.restart()
    assert broker.started_clean()
    broker.revive()
    assert not broker.started_clean()
    broker.restart()
    assert broker.started_clean()


def test_a_disk_that_fails_at_the_end_frees_the_directory(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.create(), 10)

    def refuse(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(LogStorageError):
            broker.directory.close()
    broker.open()
    assert not broker.started_clean()
    assert len(headers(read_all(broker.log))) == 10


def test_many_logs_are_closed_and_found_again(broker: Broker) -> None:
    keys = [PartitionKey("many", partition) for partition in range(300)]
    for key in keys:
        fill(broker.directory.create(key, TOPIC_ID, SETTINGS), 2)
    broker.directory.close()
    assert {key: each.log_end_offset for key, each in broker.open().logs.items()} == dict.fromkeys(keys, 2)


def test_a_directory_without_logs_may_change_its_broker(broker: Broker) -> None:
    before = broker.directory.incarnation
    broker.directory.close()
    broker.open(broker_id=2)
    assert broker.directory.incarnation != before
