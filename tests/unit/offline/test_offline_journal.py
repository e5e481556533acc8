"""What the offline reader makes of journals that no test of real nodes produces."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import msgpack
import pytest

from quorum.cli.offline.directory import ForgetfulDisk
from quorum.cli.offline.entries import describe_command, describe_record
from quorum.cli.offline.journal import dump, verify
from quorum.core.codes import OP_CREATE, OP_MULTI, OP_SET_DATA
from quorum.errors import DataDamagedError, DataDirError
from quorum.node.storage import Storage
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.datadir.forcing import MARKER_NAME
from quorum.raft.datadir.identity import Identity, WrongIdentityError, write_identity
from quorum.raft.journal.journal import Install, Journal, JournalOptions, OriginIncarnation, Record
from tests.support.memory_disk import MemoryDisk

DATA_DIR = "/data"
DIRECTORY = f"{DATA_DIR}/journal"
CLUSTER_ID, NEW_CLUSTER_ID = "ab" * 16, "cd" * 16


def entry(index: int, term: int = 1, payload: bytes = b"", kind: EntryKind = EntryKind.NOOP) -> Entry:
    return Entry(index, term, kind, 1000 + index, payload)


def members(index: int, cluster_id: str = CLUSTER_ID) -> Entry:
    configuration = Configuration(cluster_id, {1: Member("h:1", "0" * 32)}, {}, ())
    return entry(index, 1, configuration.to_payload(), EntryKind.MEMBERS)


def written_empty() -> MemoryDisk:
    disk = MemoryDisk(random.Random(0))
    disk.make_dirs(DATA_DIR)
    write_identity(disk, DATA_DIR, Identity("c", 1, "0" * 32, founder=True, cluster_id=CLUSTER_ID))
    Journal.create(disk, DIRECTORY)
    return disk


def written(*groups: Sequence[Record], segment_bytes_max: int = 1 << 20) -> MemoryDisk:
    disk = written_empty()
    journal, _ = Journal.open(
        disk, DIRECTORY, JournalOptions(segment_bytes_max=segment_bytes_max), lambda _line: None
    )
    for group in groups:
        journal.append(group)
    journal.close()
    return disk


def rows(disk: MemoryDisk) -> list[dict[str, object]]:
    lines: list[str] = []
    dump(disk, DATA_DIR, lines.append)
    return [json.loads(line) for line in lines]


def picture(disk: MemoryDisk) -> list[tuple[str, bytes]]:
    folders = [folder for folder in (DATA_DIR, DIRECTORY) if disk.exists(folder)]
    paths = [f"{folder}/{name}" for folder in folders for name in disk.listdir(folder)]
    return [(path, disk.content(path)) for path in paths if path not in folders]


def verified(disk: MemoryDisk) -> Storage:
    before = picture(disk)
    try:
        return verify(ForgetfulDisk(disk), DATA_DIR, lambda _line: None)
    finally:
        assert picture(disk) == before


def test_every_record_is_shown_in_the_order_of_writing() -> None:
    disk = written([HardState(4, 2), OriginIncarnation(7), entry(1, 4)], [Install(9, 4), entry(10, 4)])
    found = rows(disk)
    types = [row["type"] for row in found]
    assert types == ["header", "hard_state", "origin_incarnation", "entry", "install", "entry"]
    assert [row["index"] for row in found if row["type"] == "entry"] == [1, 10]


def test_the_dump_ends_at_the_first_bad_byte() -> None:
    disk = written(*([entry(index)] for index in range(1, 8)))
    third = [row for row in rows(disk) if row["type"] == "entry"][2]
    disk.flip_bit(f"{DIRECTORY}/{third['segment']}", 8 * (int(str(third["offset"])) + 14))
    lines: list[str] = []
    with pytest.raises(DataDamagedError) as caught:
        dump(disk, DATA_DIR, lines.append)
    assert caught.value.offset == third["offset"]
    assert [json.loads(line).get("index") for line in lines] == [None, 1, 2]


def test_the_cluster_of_the_identity_must_be_that_of_the_log() -> None:
    assert verified(written([members(1)])).recovered.last_index == 1
    disk = written([members(1)], [members(2, NEW_CLUSTER_ID)])
    with pytest.raises(WrongIdentityError, match=NEW_CLUSTER_ID):
        verified(disk)
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", f"{NEW_CLUSTER_ID}\n".encode())
    assert verified(disk).identity.cluster_id == NEW_CLUSTER_ID, "a forced start that a crash cut short"


def test_what_a_start_cuts_off_stays() -> None:
    disk = written([entry(1)])
    (segment,) = [name for name in disk.listdir(DIRECTORY) if name.endswith(".segment")]
    content = disk.content(f"{DIRECTORY}/{segment}").rstrip(b"\0")
    disk.plant(f"{DIRECTORY}/{segment}", content + b"torn")
    assert "4 bytes" in verified(disk).recovered.torn
    assert disk.content(f"{DIRECTORY}/{segment}") == content + b"torn"


def test_a_journal_of_another_version_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.raft.journal.journal.FORMAT_VERSION", 2)
    disk = written_empty()
    for look in (lambda: verified(disk), lambda: rows(disk)):
        with pytest.raises(DataDirError, match="format version is 2") as caught:
            look()
        assert "version that wrote it" in caught.value.remedy


@pytest.mark.parametrize("kind", list(EntryKind))
@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"[]", b"7", b"\x93\x01\x02\x03", msgpack.packb([1, 2, 3, 4, [[1]]]), b"{" * 9999],
)
def test_a_payload_that_is_none_is_described_all_the_same(kind: EntryKind, payload: bytes) -> None:
    described = describe_record(entry(1, 1, payload, kind))
    assert described["bytes"] == len(payload)
    assert described["kind"] == kind.name.lower()


def test_commands_are_named_and_unknown_ones_kept() -> None:
    assert describe_command([OP_SET_DATA, "/a", b"\xff", 3]) == {
        "op": "setData",
        "path": "/a",
        "data_base64": "/w==",
        "version": 3,
    }
    assert describe_command([OP_MULTI, [[OP_CREATE, "/b", None, None, 0]]]) == {
        "op": "multi",
        "operations": [{"op": "create", "path": "/b", "data": None, "acl": None, "flags": 0}],
    }
    assert describe_command([OP_SET_DATA, "/a"]) == {"op": "setData", "fields": ["/a"]}
    assert describe_command([4711, b"x"]) == {"op": "opcode 4711", "fields": [{"base64": "eA=="}]}
    assert describe_command("what") == {"op": "unknown", "fields": "what"}
