"""Snapshots whose checksums are right and whose content is not."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from quorum.cli.offline.snapshot import inspect
from quorum.core.snapshot import SnapshotWalk
from quorum.errors import UsageError
from quorum.raft.snapshots.format import SnapshotDamagedError, SnapshotEncoder, SnapshotHeader, pack_chunk
from tests.support.memory_disk import MemoryDisk
from tests.unit.core.driver import Driver

PATH = "/data/some.snapshot"
CONFIGURATION = (
    b'{"cluster_id":"%b","learners":{},"retired":[],"voters":'
    b'{"1":{"address":"h:1","incarnation":"11111111111111111111111111111111"}}}'
)
CLUSTER_ID = "ab" * 16
ZXID, NODE_COUNT = 5, 7

Chunks = list[list[Any]]


def chunks_of(driver: Driver) -> Chunks:
    walk = SnapshotWalk(driver.machine)
    chunks: Chunks = []
    while (chunk := walk.next_chunk(1000)) is not None:
        chunks.append(chunk)
    return chunks


def state() -> Driver:
    driver = Driver()
    driver.apply("configuration", CONFIGURATION % CLUSTER_ID.encode())
    driver.machine.cluster_id = CLUSTER_ID
    return driver


def inspected(chunks: Chunks, **fields: Any) -> dict[str, Any]:
    """Write a file with right checksums and look at it."""
    lines: list[str] = []
    with contextlib.suppress(SnapshotDamagedError):
        inspect(planted(chunks, **fields), PATH, lines.append, tree=False)
    (facts,) = map(json.loads, lines)
    assert isinstance(facts, dict)
    return facts


def planted(chunks: Chunks, **fields: Any) -> MemoryDisk:
    """Write a file with right checksums."""
    _, _, log_index, term, stamp_ms, *_ = chunks[0]
    header = SnapshotHeader(log_index, term, stamp_ms, CLUSTER_ID, CONFIGURATION % CLUSTER_ID.encode())
    encoder = SnapshotEncoder()
    parts = encoder.begin(header._replace(**fields))
    for chunk in chunks:
        parts += encoder.chunk(pack_chunk(chunk))
    disk = MemoryDisk(random.Random(0))
    disk.plant(PATH, b"".join([*parts, *encoder.end()]))
    return disk


def test_what_the_walk_wrote_is_good() -> None:
    found = inspected(chunks_of(state()))
    assert (found["verdict"], found["znodes"]) == ("good", 4)


@pytest.mark.parametrize(
    ("change", "told_of"),
    [
        (lambda chunks: chunks[0].__setitem__(ZXID, 0), "is refused"),
        (lambda chunks: chunks[0].__setitem__(NODE_COUNT, 5), "is refused"),
        (lambda chunks: chunks.pop(), "the end of the snapshot is missing"),
        (lambda chunks: chunks.append(["end", 4]), "out of order"),
    ],
)
def test_content_that_contradicts_itself_is_damage(change: Callable[[Chunks], object], told_of: str) -> None:
    driver = state()
    chunks = chunks_of(driver)
    change(chunks)
    found = inspected(chunks)
    assert "znodes" not in found
    assert found["cluster_id"] == CLUSTER_ID
    assert told_of in found["problem"]
    assert PATH in found["problem"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stamp_ms": 1},
        {"cluster_id": "cd" * 16},
        {"configuration_payload": CONFIGURATION % (b"cd" * 16)},
    ],
)
def test_a_header_that_is_not_that_of_the_state_is_damage(fields: dict[str, Any]) -> None:
    found = inspected(chunks_of(state()), **fields)
    assert "not those of its header" in found["problem"]


@pytest.mark.parametrize("odd", ["\u202e\u2028x", "\u200b\u00a0"])
def test_what_clients_wrote_does_not_act_on_the_terminal(odd: str) -> None:
    """A path may hold marks of direction and other blanks, and the data of a znode anything."""
    driver = state()
    data, acl = f"\x1b[2J\n{odd}".encode(), [[31, "digest", f"{odd}:x"]]
    driver.connect().make(f"/{odd}", data, acl=acl)
    lines: list[str] = []
    inspect(planted(chunks_of(driver)), PATH, lines.append, tree=True)
    assert [line for line in lines if not line.isprintable()] == []
    assert f"/{odd}" in [json.loads(line)["path"] for line in lines]


@pytest.mark.parametrize(
    "where", ["quorum.raft.snapshots.format.FORMAT_VERSION", "quorum.core.snapshot_walk.FORMAT"]
)
def test_a_snapshot_of_another_version_is_not_called_damaged(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, 9)
    chunks = chunks_of(state())
    encoder = SnapshotEncoder()
    _, _, log_index, term, stamp_ms, *_ = chunks[0]
    header = SnapshotHeader(log_index, term, stamp_ms, CLUSTER_ID, CONFIGURATION % CLUSTER_ID.encode())
    parts = encoder.begin(header)
    for chunk in chunks:
        parts += encoder.chunk(pack_chunk(chunk))
    monkeypatch.undo()
    disk = MemoryDisk(random.Random(0))
    disk.plant(PATH, b"".join([*parts, *encoder.end()]))
    with pytest.raises(UsageError, match=r"format.* is 9, this version reads") as caught:
        inspect(disk, PATH, print, tree=False)
    assert caught.value.remedy == "use the version that wrote it"
