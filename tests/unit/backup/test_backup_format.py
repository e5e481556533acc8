"""Files of a backup: whatever changes is found and named, and any point of the log can be restored."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from quorum.backup.manifest import (
    BackupDamagedError,
    BackupVersionError,
    decode_manifest,
    encode_manifest,
    restored_cluster_id,
)
from quorum.backup.points import point_of, read_time, written_time
from quorum.backup.reading import read_backup, rebuild
from quorum.backup.replaying import Limit
from quorum.core.codes import INT64_MAX
from quorum.core.machine import FORCED_ZXID_JUMP
from quorum.errors import UsageError
from quorum.raft.core.entry import EntryKind
from quorum.raft.journal.handing import HandedEntryError, pack_entries, unpack_entries, with_another_key
from quorum.raft.requests.payloads import IMPORT_FORMAT
from tests.unit.backup.written import (
    SESSION_KEY,
    SESSIONS,
    STAMP_MS,
    Log,
    nodes_of,
    random_commands,
    run_of,
    write_backup,
)

FLIPS = 400
COMMANDS = 60


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("format") / "backup"
    log = Log()
    for session_id, command in random_commands(random.Random(1), 20):
        log.batch(run_of(session_id, command))
    write_backup(folder, log.entries)
    return folder


def test_a_flipped_bit_is_found_and_its_file_named(backup: Path) -> None:
    rng = random.Random(2)
    for _ in range(FLIPS):
        path = rng.choice(sorted(backup.iterdir()))
        whole = path.read_bytes()
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            with pytest.raises((BackupDamagedError, BackupVersionError), match=path.name):
                read_backup(backup)
        finally:
            path.write_bytes(whole)
    read_backup(backup)


@pytest.mark.parametrize("name", ["backup.json", "journal"])
def test_a_cut_missing_or_foreign_file_is_found_and_named(backup: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(backup, copy)
    whole = (copy / name).read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (copy / name).write_bytes(whole[:length])
        with pytest.raises(BackupDamagedError, match=name):
            read_backup(copy)
    (copy / name).unlink()
    with pytest.raises(BackupDamagedError, match=f"{name}: it is missing"):
        read_backup(copy)
    (copy / name).write_bytes(whole)
    (copy / "notes.txt").write_text("x")
    with pytest.raises(BackupDamagedError, match=r"notes\.txt: it is no file of this backup"):
        read_backup(copy)


def test_a_folder_that_is_no_backup_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(BackupDamagedError, match=r"backup\.json: it is missing"):
            read_backup(folder)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BackupDamagedError, match=r"it is no folder"):
        read_backup(tmp_path / "file")


@pytest.mark.parametrize("seed", range(4))
def test_every_zxid_is_a_point_also_within_a_batch(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    commands = random_commands(rng, COMMANDS)
    single, grouped = Log(), Log()
    expected = {}
    for session_id, command in commands:
        single.batch(run_of(session_id, command))
    while commands:
        size = rng.randrange(1, 9)
        grouped.batch(*[run_of(session_id, command) for session_id, command in commands[:size]])
        commands = commands[size:]
    expiries = [["expire", session_id, session_id, 10_000] for session_id in SESSIONS]
    for proposal in expiries:
        single.control(proposal)
    grouped.control(*expiries)

    last = write_backup(tmp_path / "grouped", grouped.entries)
    write_backup(tmp_path / "single", single.entries)
    for zxid in range(last.first_zxid, last.last_zxid + 1):
        expected[zxid] = nodes_of(rebuild(tmp_path / "single", has_snapshot=False, limit=Limit(zxid)).machine)
        found = rebuild(tmp_path / "grouped", has_snapshot=False, limit=Limit(zxid))
        assert (found.machine.zxid, nodes_of(found.machine)) == (zxid, expected[zxid])
        found.machine.check_invariants()
    assert len({str(each) for each in expected.values()}) > COMMANDS // 3


def test_a_point_in_the_gap_of_a_forced_start_is_the_transaction_before_it(tmp_path: Path) -> None:
    log = Log()
    log.batch(run_of(1, [1, "/before", b"", None, 0]))
    voters = {"1": {"address": "127.0.0.1:2281", "incarnation": "a" * 32}}
    forced = {"cluster_id": "e" * 32, "voters": voters, "learners": {}, "retired": []}
    log.add(EntryKind.MEMBERS, json.dumps(forced).encode())
    log.batch(run_of(1, [1, "/after", b"", None, 0]))
    last = write_backup(tmp_path, log.entries).last_zxid
    assert last == 4 + FORCED_ZXID_JUMP
    for zxid, reached in ((3, 3), (4, 3), (last - 2, 3), (last, last)):
        machine = rebuild(tmp_path, has_snapshot=False, limit=Limit(zxid)).machine
        assert (machine.zxid, "/after" in nodes_of(machine)) == (reached, zxid == last)


def test_steps_of_an_import_are_points_and_the_gaps_that_they_leave_are_not(tmp_path: Path) -> None:
    log, source, floor = Log(), "zookeeper:2181", 1 << 33
    node = ["/kept", b"x", None, [5, 5, 5, 0, 0, 0, 0, 0], 0]
    begin, write = ["begin", source, floor, None], ["write", source, floor + 9, [node]]
    # What is refused leaves no gap.
    log.batch(
        ["begin", "", floor * 2, None], begin, write, ["open", source, floor, None], shape=IMPORT_FORMAT
    )
    log.batch(["open", source, floor + 20, None], shape=IMPORT_FORMAT)
    log.batch(run_of(1, [1, "/after", b"", None, 0]))
    last = write_backup(tmp_path, log.entries).last_zxid
    assert last == floor + 22
    points = {2: 2, floor: 2, floor + 1: 1, floor + 9: 1, floor + 10: 10, floor + 20: 10, floor + 21: 21}
    for zxid, reached in points.items():
        machine = rebuild(tmp_path, has_snapshot=False, limit=Limit(zxid)).machine
        assert machine.zxid == (reached if reached == 2 else floor + reached)
        assert ("/kept" in nodes_of(machine), "/after" in nodes_of(machine)) == (zxid >= floor + 10, False)
        assert machine.transaction.import_source == (source if floor < zxid < floor + 21 else "")
    assert "/after" in nodes_of(rebuild(tmp_path, has_snapshot=False).machine)


def test_a_time_is_the_last_transaction_at_or_before_it(backup: Path) -> None:
    manifest = read_backup(backup)
    whole = rebuild(backup, has_snapshot=False)
    assert whole.stamp_ms == manifest.last_ms
    zxids = [
        rebuild(backup, has_snapshot=False, limit=Limit(stamp_ms=stamp)).machine.zxid
        for stamp in (STAMP_MS + 30, STAMP_MS + 39, STAMP_MS + 40, INT64_MAX)
    ]
    # Entry 3 makes two sessions, each later entry holds one command.
    assert zxids == [2, 2, 3, manifest.last_zxid]


def test_a_point_outside_names_both_ends(backup: Path) -> None:
    manifest = read_backup(backup)
    for zxid in (-1, manifest.last_zxid + 1):
        with pytest.raises(UsageError, match=f"zxid 0 … {manifest.last_zxid}"):
            point_of(manifest, zxid, None)
    for stamp_ms in (manifest.first_ms - 1, manifest.taken_ms + 1):
        with pytest.raises(UsageError, match=f"zxid 0 … {manifest.last_zxid}"):
            point_of(manifest, None, stamp_ms)
    # Nothing happened between the last transaction and the backup.
    assert point_of(manifest, None, manifest.taken_ms).stamp_ms == manifest.taken_ms
    assert point_of(manifest, None, None) == Limit()


def test_times_are_iso_8601_and_utc_without_a_zone() -> None:
    assert written_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert read_time(written_time(1_700_000_000_123)) == 1_700_000_000_123
    assert read_time("2023-11-14T22:13:20") == read_time("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    with pytest.raises(UsageError, match=r"--as-of-time .yesterday. is no time"):
        read_time("yesterday")


def test_the_cluster_id_follows_from_all_that_founders_share(backup: Path) -> None:
    """A drill with another name, or a second attempt, is another cluster; so is a state of another level."""
    manifest = read_backup(backup)
    same, *others = [("a", 5, 1, 1), ("b", 5, 1, 1), ("a", 6, 1, 1), ("a", 5, 2, 1), ("a", 5, 1, 2)]
    ids = [restored_cluster_id(manifest, *each) for each in (same, same, *others)]
    ids.append(restored_cluster_id(manifest._replace(backup_id="d" * 32), *same))
    assert ids[0] == ids[1]
    assert len(set(ids)) == len(ids) - 1
    assert all(len(each) == 32 and int(each, 16) for each in ids)


def test_a_backup_of_a_newer_version_is_no_damage(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_backup(backup)
    monkeypatch.setattr("quorum.backup.manifest.FORMAT", 2)
    newer = encode_manifest(manifest)
    monkeypatch.undo()
    with pytest.raises(BackupVersionError, match="another format than 1"):
        decode_manifest("backup.json", newer)


@pytest.mark.parametrize(
    "fields", [{"backup_id": 7}, {"first_zxid": 9_999}, {"files": ()}, {"state_digest": None, "znodes": "1"}]
)
def test_a_manifest_of_other_values_is_no_manifest(backup: Path, fields: dict[str, Any]) -> None:
    content = encode_manifest(read_backup(backup)._replace(**fields))
    with pytest.raises(BackupDamagedError, match=r"x\.json: its fields are not those of a backup"):
        decode_manifest("x.json", content)


def test_no_session_key_is_handed_out(tmp_path: Path) -> None:
    other = bytes(32)
    packed = pack_entries(with_another_key(Log().entries, SESSION_KEY, other))
    assert SESSION_KEY.hex().encode() not in packed
    assert other.hex().encode() in packed
    (tmp_path / "journal").write_bytes(packed)
    assert rebuild(tmp_path, has_snapshot=False).machine.session_key == other


def test_entries_that_are_cut_or_out_of_order_are_refused(tmp_path: Path) -> None:
    log = Log()
    log.add(EntryKind.NOOP, b"")
    packed = pack_entries(log.entries)
    path = tmp_path / "journal"
    for content, first in ((packed[:-1], 1), (packed, 2), (packed + b"\xc1", 1), (packed + b"\x01", 1)):
        path.write_bytes(content)
        with path.open("rb") as file, pytest.raises(HandedEntryError):
            list(unpack_entries(file, first))
    path.write_bytes(packed)
    with path.open("rb") as file:
        assert list(unpack_entries(file, 1)) == log.entries


def test_a_log_that_cannot_be_applied_is_named_as_the_operator_names_it(tmp_path: Path) -> None:
    """Its checksum may fit: what is at a URL is read from a copy, which is gone when the error is seen."""
    (tmp_path / "journal").touch()
    (tmp_path / "snapshot").write_bytes(b"x")
    for has_snapshot, name in ((False, "journal"), (True, "snapshot")):
        with pytest.raises(BackupDamagedError, match=f"^s3://bucket/one/{name}: "):
            rebuild(tmp_path, has_snapshot=has_snapshot, shown="s3://bucket/one/")
