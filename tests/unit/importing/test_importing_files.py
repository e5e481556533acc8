"""The files of a ZooKeeper server: what they hold, where they end, and what of them is damage.

Their real counterparts are read in tests/conformance/test_import.py.
"""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quorum.core.acl import CONTAINER
from quorum.core.importing import ImportedNode
from quorum.importing import running
from quorum.importing.errors import ImportFailedError, SourceFileError
from quorum.importing.files import found_in, read_lifetimes, read_tree
from quorum.importing.running import Wanted, run_import

OPEN = [(31, "world", "anyone")]
EPOCH = 3 << 32
CONTAINER_OWNER = -(1 << 63)
TTL_OWNER = -(1 << 56)


def text(value: str) -> bytes:
    return buffer(value.encode())


def buffer(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def acl(entries: Sequence[tuple[int, str, str]]) -> bytes:
    rows = [struct.pack(">i", perms) + text(scheme) + text(name) for perms, scheme, name in entries]
    return struct.pack(">i", len(entries)) + b"".join(rows)


def node(path: str, data: bytes | None = b"", *, number: int = -1, owner: int = 0, creates: int = 0) -> bytes:
    stat = struct.pack(">qqqqiiiqq", EPOCH + 1, EPOCH + 2, 11, 22, 5, creates, 7, owner, EPOCH + 3)
    return text(path) + buffer(data) + struct.pack(">q", number) + stat


def snapshot(*nodes: bytes) -> bytes:
    head = struct.pack(">iiq", 0x5A4B534E, 2, -1) + struct.pack(">iqi", 1, 77, 4000)
    acls = struct.pack(">i", 1) + struct.pack(">q", 1) + acl([(1, "ip", "10.0.0.1")])
    body = head + acls + b"".join(nodes) + text("/")
    return body + struct.pack(">q", zlib.adler32(body)) + text("/")


NODES = (
    node("", creates=3),
    node("/a", None, creates=9, number=1),
    node("/a/e", owner=77),
    node("/zookeeper"),
)


def record(zxid: int, kind: int, body: bytes = b"", session_id: int = 77) -> bytes:
    transaction = struct.pack(">qiqqi", session_id, 1, zxid, 1000 + (zxid & 0xFF), kind) + body
    return struct.pack(">qi", zlib.adler32(transaction), len(transaction)) + transaction + b"B"


def log(*records: bytes, padding: int = 64) -> bytes:
    return struct.pack(">iiq", 0x5A4B4C47, 2, 0) + b"".join(records) + bytes(padding)


def create(path: str, creates: int, *, ephemeral: bool = False, data: bytes = b"x") -> bytes:
    return text(path) + buffer(data) + acl(OPEN) + struct.pack(">?i", ephemeral, creates)


class Folder:
    """A dataDir."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "version-2").mkdir()

    def put(self, name: str, content: bytes) -> Path:
        path = self.path / "version-2" / name
        path.write_bytes(content)
        return path

    def nodes(self) -> dict[str, ImportedNode]:
        return {found.node.path: found.node for found in found_in(read_tree(self.path)) if not found.owner}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A dataDir with a snapshot at the zxid 3 of an epoch, and the log before it."""
    folder = Folder(tmp_path)
    folder.put(f"log.{EPOCH + 1:x}", log(record(EPOCH + 3, -10, bytes(4))))
    folder.put(f"snapshot.{EPOCH + 3:x}", snapshot(*NODES))
    return folder


def test_a_snapshot_holds_nodes_as_they_are(folder: Folder) -> None:
    found = folder.nodes()
    assert list(found) == ["/", "/a"]
    numbers = (EPOCH + 1, EPOCH + 2, EPOCH + 3, 11, 22, 5, 7, 9)
    assert found["/a"] == ImportedNode("/a", None, ((1, "ip", "10.0.0.1"),), found["/a"].numbers)
    assert tuple(found["/a"].numbers) == numbers
    assert read_tree(folder.path).zxid == EPOCH + 3


def test_a_compressed_snapshot_is_read(folder: Folder) -> None:
    folder.put(f"snapshot.{EPOCH + 9:x}.gz", gzip.compress(snapshot(node("", creates=1), node("/b"))))
    assert list(folder.nodes()) == ["/", "/b"]


def test_transactions_after_the_snapshot_are_applied(folder: Folder) -> None:
    multi = struct.pack(">i", 2) + struct.pack(">i", 1) + buffer(create("/a/m", 12))
    multi += struct.pack(">i", 5) + buffer(text("/a/m") + buffer(b"m2") + struct.pack(">i", 1))
    failed = struct.pack(">i", 1) + struct.pack(">i", -1) + buffer(struct.pack(">i", -101))
    ttl = text("/ttl") + buffer(b"") + acl(OPEN) + struct.pack(">iq", 5, 9_000)
    folder.put(
        f"log.{EPOCH + 1:x}",
        log(
            record(EPOCH + 3, 1, create("/old", 4)),
            record(EPOCH + 4, -10, struct.pack(">i", 4000)),
            record(EPOCH + 5, 1, create("/a/n", 10)),
            record(EPOCH + 6, 15, create("/a/f", 11, ephemeral=True), session_id=88),
            record(EPOCH + 7, 14, multi),
            record(EPOCH + 8, 14, failed),
            record(EPOCH + 9, 21, ttl),
            record(EPOCH + 10, 19, text("/c") + buffer(b"") + acl(OPEN) + struct.pack(">i", 6)),
            record(EPOCH + 11, 2, text("/a/n")),
            record(EPOCH + 12, 7, text("/c") + acl([(16, "world", "anyone")]) + struct.pack(">i", 3)),
            record(EPOCH + 13, -11),
        ),
    )
    folder.put(f"log.{(4 << 32) + 1:x}", log(record((4 << 32) + 1, -1, struct.pack(">i", -110))))
    found = folder.nodes()
    assert list(found) == ["/", "/a", "/a/m", "/c", "/ttl"]
    assert (found["/a/m"].data, found["/a/m"].numbers.version) == (b"m2", 1)
    assert found["/a"].numbers.creates == 12
    assert found["/"].numbers.creates == 6
    assert (found["/ttl"].lifetime, found["/c"].lifetime) == (9_000, CONTAINER)
    assert (found["/c"].acl, found["/c"].numbers.aversion) == (((16, "world", "anyone"),), 3)
    assert read_tree(folder.path).zxid == (4 << 32) + 1
    assert read_lifetimes(folder.path) == {"/ttl": (EPOCH + 9, 9_000), "/c": (EPOCH + 10, CONTAINER)}


def test_what_a_snapshot_has_already_changes_nothing(folder: Folder) -> None:
    folder.put(f"snapshot.{EPOCH + 3:x}", snapshot(*NODES, node("/late", b"kept")))
    body = [record(EPOCH + 4, 1, create("/late", 3)), record(EPOCH + 5, 2, text("/never"))]
    folder.put(f"log.{EPOCH + 4:x}", log(*body))
    assert folder.nodes()["/late"].data == b"kept"


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_last_record_that_a_crash_cut_short_never_was(folder: Folder, cut: int) -> None:
    whole = record(EPOCH + 5, 1, create("/torn", 5))
    for padding in (b"", bytes(100)):
        torn = log(record(EPOCH + 4, 1, create("/kept", 4)), padding=0) + whole[:-cut] + padding
        folder.put(f"log.{EPOCH + 4:x}", torn)
        assert list(folder.nodes()) == ["/", "/a", "/kept"]


def test_a_log_that_was_created_and_not_written_is_empty(folder: Folder) -> None:
    folder.put(f"log.{EPOCH + 4:x}", b"")
    folder.put(f"log.{EPOCH + 5:x}", bytes(100))
    assert list(folder.nodes()) == ["/", "/a"]


def test_a_snapshot_that_was_cut_short_gives_way_to_the_one_before(folder: Folder) -> None:
    log_path = folder.put(f"log.{EPOCH + 4:x}", log(record(EPOCH + 4, 1, create("/b", 4))))
    whole = snapshot(*NODES, node("/b"))
    # What follows the checksum is not needed.
    for length in range(len(whole) - 5):
        folder.put(f"snapshot.{EPOCH + 4:x}", whole[:length])
        assert list(folder.nodes()) == ["/", "/a", "/b"]
    log_path.unlink()
    with pytest.raises(SourceFileError, match="is cut short, and the logs end before it"):
        read_tree(folder.path)


def test_missing_transactions_are_told(folder: Folder) -> None:
    path = folder.put(f"log.{EPOCH + 5:x}", log(record(EPOCH + 5, -10, bytes(4))))
    with pytest.raises(SourceFileError, match=f"{path}: transaction .* does not follow"):
        read_tree(folder.path)


def test_logs_in_another_folder_are_not_taken_for_none(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    logs = Folder(tmp_path / "logs")
    before = folder.path / f"version-2/log.{EPOCH + 1:x}"
    before.rename(logs.path / "version-2" / before.name)
    logs.put(f"log.{EPOCH + 4:x}", log(record(EPOCH + 4, 1, create("/b", 4))))
    with pytest.raises(SourceFileError, match="holds snapshots and no transaction log") as caught:
        read_tree(folder.path)
    assert "--from-logs" in caught.value.remedy
    assert "/b" in read_tree(folder.path, logs.path).nodes
    assert "/b" not in read_tree(folder.path, tmp_path).nodes


@pytest.mark.parametrize(
    ("name", "content", "story"),
    [
        ("log.300000004", log(record(EPOCH + 4, 99)), "transaction of type 99"),
        ("log.300000004", log(record(EPOCH + 4, 1, b"\0\0")), "cannot be read"),
        ("log.300000004", b"what is this, a text file?", "no transaction log"),
        ("log.300000004", log(padding=8) + b"more", "is damaged at byte"),
        ("log.300000004", log(struct.pack(">qi", 5, -7)), "a record of -7 bytes"),
        ("log.300000004", log(struct.pack(">qi", 5, 1) + b"xB"), "the checksum"),
        ("snapshot.300000009", b"what is this, a text file?", "no snapshot"),
        ("snapshot.300000009.snappy", b"", "snappy"),
        ("snapshot.300000009", snapshot(node("", number=8)), "access list 8"),
        ("snapshot.300000009", snapshot(node("/a")), "the root is not there"),
    ],
)
def test_damage_names_the_file(folder: Folder, name: str, content: bytes, story: str) -> None:
    path = folder.put(name, content)
    with pytest.raises(SourceFileError, match=story) as caught:
        read_tree(folder.path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["snapshot", "log"])
def test_no_single_damaged_byte_goes_unnoticed(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path)
    whole = {"snapshot": snapshot(*NODES), "log": log(record(EPOCH + 4, 1, create("/b", 4)))}
    later = record(EPOCH + 5, -10, bytes(4))
    folder.put(f"log.{EPOCH + 5:x}", log(later))
    names = {"snapshot": f"snapshot.{EPOCH + 3:x}", "log": f"log.{EPOCH + 4:x}"}
    for each, content in whole.items():
        folder.put(names[each], content)
    good = folder.nodes()
    for position in range(len(whole[name])):
        damaged = bytearray(whole[name])
        damaged[position] ^= 0x41
        folder.put(names[name], bytes(damaged))
        try:
            found: Any = folder.nodes()
        except SourceFileError:
            continue
        assert found == good, position


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceFileError, match="holds no snapshot"):
        read_tree(tmp_path)
    with pytest.raises(SourceFileError, match="cannot be read"):
        read_tree(tmp_path / "missing")


async def test_the_target_knows_files_by_what_they_hold_not_by_where_they_lie(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names: list[str] = []

    def refuse(urls: Sequence[str], source: str) -> None:
        names.append(source)
        raise ImportFailedError("not now", "")

    monkeypatch.setattr(running, "ImportTarget", refuse)
    for name, last in (("here", "/b"), ("copied", "/b"), ("another", "/c")):
        place = tmp_path / name
        place.mkdir()
        copied = Folder(place)
        copied.put(f"snapshot.{EPOCH + 3:x}", snapshot(*NODES))
        copied.put(f"log.{EPOCH + 4:x}", log(record(EPOCH + 4, 1, create(last, 4))))
        wanted = Wanted("", place, (), (), cutover=True, quiet_s=0.0, timeout_s=0.0)
        with pytest.raises(ImportFailedError, match="not now"):
            await run_import(wanted, lambda _: None, asyncio.Event())
    here, copied_name, another = names
    assert here == copied_name != another
    assert all(name.startswith("files that end at zxid 0x300000004 with digest ") for name in names)
