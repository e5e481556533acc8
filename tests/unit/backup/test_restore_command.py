"""`quorate restore` without nodes: what it writes, what it refuses, and where a backup may lie."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from quorum.backup.manifest import encode_manifest
from quorum.backup.places import PlaceError, new_backup
from quorum.backup.reading import read_backup, rebuild
from quorum.backup.replaying import Limit
from quorum.cli.commands.restore import ATTEMPT_MAX
from quorum.cli.main import main
from quorum.config.node import NodeSection, RaftSection
from quorum.core.feature_levels import BASE_LEVEL
from quorum.core.machine import FORCED_SESSION_ID_JUMP, FORCED_ZXID_JUMP
from quorum.core.restoring import begin_anew
from quorum.node.storage import Storage, open_storage
from quorum.platform.os_runtime import OsDisk
from quorum.raft.core.entry import EntryKind
from quorum.raft.datadir.identity import Start
from tests.unit.backup.written import Log, nodes_of, run_of, write_backup
from tests.unit.core.driver import data_at, dump, stat_at


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    log = Log()
    log.batch(
        run_of(1, [1, "/kept", b"v", None, 0], [1, "/gone", b"", None, 1], [1, "/kept/alive", b"", None, 1])
    )
    log.batch(run_of(2, [5, "/kept", b"w", -1], [9, "/"]))
    log.add(EntryKind.NOOP, b"")
    write_backup(tmp_path / "backup", log.entries)
    return tmp_path / "backup"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The node.toml of node 2 of a cluster of two; its data directory is missing."""
    secret = tmp_path / "peer.secret"
    secret.touch(0o600)
    secret.write_text("s" * 32)
    file = tmp_path / "node.toml"
    file.write_text(
        '[node]\nid = 2\ncluster = "anew"\ndata_dir = "data"\n'
        '[listen]\nclient = "127.0.0.1:1"\npeer = "127.0.0.1:2"\nadmin = "127.0.0.1:3"\n'
        '[members]\n1 = "127.0.0.1:4"\n2 = "127.0.0.1:2"\n'
        '[security]\npeer_secret_file = "peer.secret"\n'
    )
    return file


def opened(data_dir: Path) -> Storage:
    node = NodeSection(2, "anew", data_dir)
    storage = open_storage(node, RaftSection(), OsDisk(), Start.PLAIN, random.SystemRandom())
    storage.close()
    return storage


def report_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(capsys.readouterr().out))


def test_a_node_starts_from_what_a_restore_wrote(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", str(backup), "--config", str(config), "--json"]) == 0
    report, data_dir = report_of(capsys), config.parent / "data"
    storage = opened(data_dir)
    machine = storage.machine
    assert (storage.identity.cluster_id, storage.identity.founder) == (report["cluster_id"], True)
    assert storage.mark is not None
    assert storage.mark.configuration is None
    assert machine.sessions == {}
    assert (report["ephemerals_left_out"], report["sessions_closed"]) == (2, 2)
    assert (report["data_dir"], report["as_of_zxid"]) == (str(data_dir), 6)
    assert report["next_zxid"] == machine.zxid + 1 > 6 + FORCED_ZXID_JUMP
    assert machine.session_counter == 2 + FORCED_SESSION_ID_JUMP
    stat = stat_at(machine, "/kept")
    # A creation and a deletion of a child.
    assert (stat.czxid, stat.mzxid, stat.version, stat.cversion, stat.children) == (3, 6, 1, 2, 0)
    assert set(nodes_of(machine)) == {"/", "/kept", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}
    assert not {path.stat().st_mode & 0o077 for path in (data_dir, *data_dir.rglob("*"))} - {0}


def test_each_attempt_is_another_cluster_with_later_zxids_and_sessions(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for attempt in (1, 2, ATTEMPT_MAX):
        words = ["restore", str(backup), "--config", str(config), "--json", "--attempt", str(attempt)]
        assert main(words) == 0
        reports.append(report_of(capsys))
        storage = opened(config.parent / "data")
        assert storage.identity.cluster_id == reports[-1]["cluster_id"]
        assert reports[-1]["next_zxid"] == storage.machine.zxid + 1 > 6 + attempt * FORCED_ZXID_JUMP
        assert storage.machine.session_counter == 2 + attempt * FORCED_SESSION_ID_JUMP
        shutil.rmtree(config.parent / "data")
    assert len({report["cluster_id"] for report in reports}) == 3
    jumps = (FORCED_ZXID_JUMP, (ATTEMPT_MAX - 1) * FORCED_ZXID_JUMP)
    assert tuple(report["next_zxid"] - reports[0]["next_zxid"] for report in reports[1:]) == jumps


@pytest.mark.parametrize("attempt", [0, -1, ATTEMPT_MAX + 1])
def test_an_attempt_that_does_not_count_is_a_usage_error(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str], attempt: int
) -> None:
    assert main(["restore", str(backup), "--config", str(config), "--attempt", str(attempt)]) == 2
    assert f"error: --attempt {attempt} is not in 1 … {ATTEMPT_MAX}" in capsys.readouterr().err
    assert not (config.parent / "data").exists()


def test_founders_on_both_sides_of_a_raised_level_are_two_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A raise takes no zxid, so the last point without it is the last point, too."""
    log = Log()
    log.batch(run_of(1, [1, "/kept", b"v", None, 0]))
    log.control(["level", BASE_LEVEL + 1])
    write_backup(tmp_path / "backup", log.entries)
    reports = []
    for words in ([], ["--as-of-zxid", "3"], ["--as-of-zxid", "3"]):
        assert main(["restore", str(tmp_path / "backup"), "--dry-run", "--json", *words]) == 0
        reports.append(report_of(capsys))
    assert {report["as_of_zxid"] for report in reports} == {3}
    assert reports[0]["cluster_id"] != reports[1]["cluster_id"] == reports[2]["cluster_id"]


def test_the_founding_of_a_restored_state_is_its_next_transaction(backup: Path) -> None:
    machine = rebuild(backup, has_snapshot=False).machine
    begin_anew(machine, 6, machine.last_stamp_ms)
    before = machine.zxid
    payload = b'{"voters":{"1":{"address":"10.0.0.1:2281","incarnation":""}},"learners":{}}'
    machine.apply_found(machine.applied_index + 1, 9, 0, "d" * 32, b"k" * 32, payload)
    assert (machine.zxid, machine.cluster_id, machine.session_key) == (before + 1, "d" * 32, b"k" * 32)
    assert (
        data_at(machine, "/zookeeper/config")
        == b"server.1=10.0.0.1:2281:0:participant\nversion=%x" % machine.zxid
    )
    assert data_at(machine, "/kept") == b"w"
    machine.check_invariants()


def test_a_point_is_the_same_state_however_it_is_named(backup: Path) -> None:
    """All founders of a cluster must have the same one, and the same place in the log."""
    found = []
    for limit in (Limit(), Limit(zxid=6), Limit(stamp_ms=rebuild(backup, has_snapshot=False).stamp_ms)):
        rebuilt = rebuild(backup, has_snapshot=False, limit=limit)
        begin_anew(rebuilt.machine, 6, rebuilt.stamp_ms)
        rebuilt.machine.check_invariants()
        found.append(dump(rebuilt.machine))
    assert found[0] == found[1] == found[2]
    assert found[0]["applied"][:2] == (1, 1)


def test_a_state_that_does_not_follow_from_the_log_is_damage(
    backup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = read_backup(backup)._replace(state_digest="0" * 32)
    (backup / "backup.json").write_bytes(encode_manifest(manifest))
    assert main(["restore", str(backup), "--dry-run"]) == 1
    assert f"error: {backup}/journal: its log leads to a state with digest" in capsys.readouterr().err


def test_a_dry_run_reports_and_writes_nothing(backup: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(backup.parent.rglob("*"))
    assert main(["restore", str(backup), "--dry-run", "--as-of-zxid", "5", "--json"]) == 0
    report = report_of(capsys)
    assert (report["as_of_zxid"], report["data_dir"], report["znodes"]) == (5, None, 5)
    assert sorted(backup.parent.rglob("*")) == before


def test_a_damaged_backup_leaves_no_data_directory(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = backup / "journal"
    journal.write_bytes(journal.read_bytes()[:-1])
    assert main(["restore", str(backup), "--config", str(config)]) == 1
    assert f"error: {journal}: it has " in capsys.readouterr().err
    assert not (config.parent / "data").exists()


def test_a_data_directory_that_holds_something_is_untouched(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = config.parent / "data"
    data_dir.mkdir()
    (data_dir / "mine").write_text("x")
    assert main(["restore", str(backup), "--config", str(config)]) == 1
    said = capsys.readouterr().err
    assert f"error: node.data_dir {data_dir} is not empty: it holds mine" in said
    assert [each.name for each in data_dir.iterdir()] == ["mine"]


def test_an_empty_data_directory_and_the_rest_of_a_killed_restore_are_used(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = config.parent / "data"
    (data_dir / "restoring" / "snapshots").mkdir(parents=True)
    assert main(["restore", str(backup), "--config", str(config)]) == 0
    assert "data directory: " in capsys.readouterr().out
    assert sorted(each.name for each in data_dir.iterdir()) == ["identity.json", "journal", "snapshots"]
    opened(data_dir)


def test_a_disk_that_fails_leaves_nothing(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quorum.backup.restoring.write_identity", fail)
    assert main(["restore", str(backup), "--config", str(config)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert not (config.parent / "data").exists()


@pytest.mark.parametrize("last", ["snapshots", "journal", "identity.json"])
def test_a_disk_that_fails_while_the_parts_take_their_places_leaves_an_empty_folder(
    backup: Path, config: Path, capsys: pytest.CaptureFixture[str], last: str
) -> None:
    """So that the next restore is not refused."""
    data_dir = config.parent / "data"
    data_dir.mkdir()
    fsync_dir = OsDisk.fsync_dir

    def fail(disk: OsDisk, path: str) -> None:
        if path == str(data_dir) and (data_dir / last).exists():
            raise OSError(5, "Input/output error")
        fsync_dir(disk, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OsDisk, "fsync_dir", fail)
        assert main(["restore", str(backup), "--config", str(config)]) == 1
    assert "Input/output error" in capsys.readouterr().err
    assert list(data_dir.iterdir()) == []
    assert main(["restore", str(backup), "--config", str(config)]) == 0


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 1), ("", 1)])
def test_a_terminal_is_asked(
    backup: Path, config: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    monkeypatch.setattr("quorum.cli.commands.restore.is_terminal", lambda _stream: True)
    assert main(["restore", str(backup), "--config", str(config)]) == code
    assert (config.parent / "data").exists() == (code == 0)


def test_yes_asks_nobody(backup: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr("quorum.cli.commands.restore.is_terminal", lambda _stream: True)
    assert main(["restore", str(backup), "--config", str(config), "--yes"]) == 0


@pytest.mark.parametrize("words", [["--as-of-zxid", "99"], ["--as-of-time", "soon"], ["--as-of-zxid", "x"]])
def test_a_wrong_point_is_a_usage_error(backup: Path, config: Path, words: list[str]) -> None:
    assert main(["restore", str(backup), "--config", str(config), *words]) == 2
    assert not (config.parent / "data").exists()


# -- places ------------------------------------------------------------------------------------------------


def copied(backup: Path) -> Callable[[Path], None]:
    def copy(folder: Path) -> None:
        for path in backup.iterdir():
            shutil.copy(path, folder)

    return copy


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_a_url_takes_a_backup_and_gives_it_back(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    url = f"{scheme}://{tmp_path}/remote/one"
    with new_backup(url) as folder:
        copied(backup)(folder)
    assert main(["restore", url, "--dry-run", "--json"]) == 0
    assert report_of(capsys)["as_of_zxid"] == 6
    assert main(["backup", url, "--admin", "http://127.0.0.1:9"]) == 2
    assert "is not empty" in capsys.readouterr().err
    system, path = fsspec.core.url_to_fs(url)
    with system.open(f"{path}/journal", "wb") as file:
        file.write(b"other")
    # Named where it lies, not where it was copied to.
    assert main(["restore", url, "--dry-run"]) == 1
    assert f"error: {url}/journal: it has 5 bytes" in capsys.readouterr().err
    system.rm_file(f"{path}/backup.json")
    assert main(["restore", url, "--dry-run"]) == 1
    assert f"error: {url}/backup.json: it is missing" in capsys.readouterr().err


def test_a_url_that_keeps_something_else_is_found_by_the_backup(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fsspec.filesystem("memory")
    put = type(system).put_file

    def forgetful(self: Any, source: str, target: str, **options: Any) -> None:
        put(self, source, target, **options)
        if target.endswith("journal"):
            self.pipe_file(target, b"")

    monkeypatch.setattr(type(system), "put_file", forgetful)
    url = f"memory://{tmp_path}/x"
    with pytest.raises(Exception, match=f"^{url}/journal: it has 0 bytes"), new_backup(url) as folder:
        copied(backup)(folder)


def test_a_failed_upload_leaves_nothing_behind(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fsspec.filesystem("memory")
    put = type(system).put_file

    def failing(self: Any, source: str, target: str, **options: Any) -> None:
        if target.endswith("backup.json"):
            raise OSError("the bucket is full")
        put(self, source, target, **options)

    url = f"memory://{tmp_path}/full"
    with monkeypatch.context() as patched:
        patched.setattr(type(system), "put_file", failing)
        with (
            pytest.raises(PlaceError, match="writing it failed: the bucket is full"),
            new_backup(url) as folder,
        ):
            copied(backup)(folder)
    assert list(system.find(f"{tmp_path}/full")) == []
    with new_backup(url) as folder:
        copied(backup)(folder)
    # What cannot be taken back is named.
    again = f"memory://{tmp_path}/kept"
    monkeypatch.setattr(type(system), "put_file", failing)
    monkeypatch.setattr(type(system), "rm_file", failing_removal)
    with (
        pytest.raises(
            PlaceError,
            match=f"bucket is full; files stay there: {again}: removing .* failed: the bucket is locked",
        ),
        new_backup(again) as folder,
    ):
        copied(backup)(folder)


def failing_removal(_system: Any, _path: str) -> None:
    raise OSError("the bucket is locked")


def test_without_the_extra_the_command_that_installs_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert main(["restore", "s3://bucket/one", "--dry-run"]) == 2
    assert "pip install 'quorate[backup]'" in capsys.readouterr().err


def test_a_scheme_without_a_driver_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restore", "nowhere://bucket/one", "--dry-run"]) == 2
    assert "error: nowhere://bucket/one cannot be reached" in capsys.readouterr().err


def test_a_target_that_holds_something_is_refused_and_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("x")
    assert main(["backup", str(tmp_path)]) == 2
    assert f"error: TARGET {tmp_path} is no empty folder" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]


def test_a_backup_of_nodes_that_do_not_answer_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", str(tmp_path / "one"), "--admin", "http://127.0.0.1:9,http://127.0.0.1:19"]) == 1
    assert "error: http://127.0.0.1:19 cannot be reached" in capsys.readouterr().err
    assert not (tmp_path / "one").exists()
