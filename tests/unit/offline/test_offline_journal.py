"""What the offline reader makes of journals that no test of real nodes produces."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgpack
import pytest

from quorum.cli.offline.entries import describe_command, describe_record, stamp_text
from quorum.cli.offline.journal import dump, verify
from quorum.cli.offline.journal_text import dump_lines, verification_lines
from quorum.core.codes import OP_CREATE, OP_MULTI, OP_SET_DATA
from quorum.errors import DataDirError, UsageError, printable
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.datadir.forcing import MARKER_NAME
from quorum.raft.datadir.identity import Identity, write_identity
from quorum.raft.journal.journal import Install, Journal, JournalOptions, OriginIncarnation, Record
from tests.support.memory_disk import MemoryDisk

DATA_DIR = "/data"
DIRECTORY = f"{DATA_DIR}/journal"
CLUSTER_ID, NEW_CLUSTER_ID = "ab" * 16, "cd" * 16


def entry(index: int, term: int = 1, payload: bytes = b"", kind: EntryKind = EntryKind.NOOP) -> Entry:
    return Entry(index, term, kind, 1000 + index, payload)


def members(index: int, cluster_id: str = CLUSTER_ID) -> Entry:
    configuration = Configuration(cluster_id, {1: Member("h:1", "")}, {}, ())
    return entry(index, 1, configuration.to_payload(), EntryKind.MEMBERS)


def written(*groups: Sequence[Record], segment_bytes_max: int = 1 << 20) -> MemoryDisk:
    disk = MemoryDisk(random.Random(0))
    disk.make_dirs(DATA_DIR)
    write_identity(disk, DATA_DIR, Identity("c", 1, "0" * 32, founder=True, cluster_id=CLUSTER_ID))
    Journal.create(disk, DIRECTORY)
    journal, _ = Journal.open(
        disk, DIRECTORY, JournalOptions(segment_bytes_max=segment_bytes_max), lambda _line: None
    )
    for group in groups:
        journal.append(group)
    journal.close()
    return disk


def rows(disk: MemoryDisk, first: int | None = None, last: int | None = None) -> list[dict[str, object]]:
    return [row.content for row in dump(disk, DATA_DIR, first=first, last=last, values=True)]


def test_an_entry_that_supersedes_others_says_which() -> None:
    disk = written(
        [entry(1), entry(2), entry(3)], [entry(2, 2)], [entry(3, 2)], [Install(9, 3), entry(10, 3)]
    )
    found = [row for row in rows(disk) if row["type"] == "entry"]
    assert [(row["index"], row["term"], row.get("supersedes")) for row in found] == [
        *((1, 1, None), (2, 1, None), (3, 1, None)),
        *((2, 2, [2, 3]), (3, 2, None), (10, 3, None)),
    ]
    recovered = verify(disk, DATA_DIR).recovered
    assert recovered is not None
    assert (recovered.first_index, recovered.last_index) == (10, 10)


def test_a_supersession_reaches_over_segments() -> None:
    payload = bytes(700)
    groups = [[entry(index, 1, payload)] for index in range(1, 6)]
    disk = written(*groups, [entry(4, 2)], segment_bytes_max=1024)
    assert len(verify(disk, DATA_DIR).segments) > 2
    assert [row["supersedes"] for row in rows(disk) if "supersedes" in row] == [[4, 5]]


def test_the_oldest_segment_may_supersede_what_was_compacted_away() -> None:
    payload = bytes(700)
    disk = written(*([entry(index, 1, payload)] for index in range(1, 6)), segment_bytes_max=1024)
    journal, _ = Journal.open(disk, DIRECTORY, JournalOptions(segment_bytes_max=1024), lambda _line: None)
    assert journal.compact(5) > 0
    journal.append([entry(5, 2, payload)])
    assert journal.compact(5) > 0
    journal.close()
    assert [row.get("supersedes") for row in rows(disk) if row["type"] == "entry"] == [[5, 5]]


def test_a_log_that_an_install_dropped_is_not_superseded() -> None:
    disk = written([entry(1), entry(2), entry(3)], [Install(2, 9)], [entry(3, 9)])
    assert [row for row in rows(disk) if "supersedes" in row] == []


def test_records_that_are_no_entries_are_shown_without_a_range_only() -> None:
    disk = written([HardState(4, 2), OriginIncarnation(7), entry(1, 4), Install(0, 0)])
    types = [row["type"] for row in rows(disk)]
    assert types == ["header", "hard_state", "origin_incarnation", "entry", "install"]
    assert [row["type"] for row in rows(disk, first=0)] == ["entry"]
    assert rows(disk, first=2) == []
    assert rows(disk, last=0) == []


def test_several_places_of_damage_are_all_told() -> None:
    disk = written(*([entry(index)] for index in range(1, 8)))
    path = verify(disk, DATA_DIR).segments[0].name
    places = [row.offset for row in dump(disk, DATA_DIR, first=1, last=9, values=False)]
    for place in (places[1], places[4]):
        disk.flip_bit(f"{DIRECTORY}/{path}", 8 * (place + 14))
    found = verify(disk, DATA_DIR)
    assert [gap.start for gap in found.segments[0].unreadable] == [places[1], places[4]]
    assert found.segments[0].state == f"DAMAGED at byte {places[1]}"
    assert found.segments[0].entries == 5
    assert [row["index"] for row in rows(disk) if row["type"] == "entry"] == [1, 3, 4, 6, 7]


def test_the_cluster_of_the_identity_must_be_that_of_the_end_of_the_log() -> None:
    assert verify(written([members(1)]), DATA_DIR).problems == []
    assert verify(written([members(1, NEW_CLUSTER_ID)], [members(2)]), DATA_DIR).problems == []
    disk = written([members(1)], [members(2, NEW_CLUSTER_ID)])
    (problem,) = verify(disk, DATA_DIR).problems
    assert CLUSTER_ID in problem.message
    assert NEW_CLUSTER_ID in problem.message
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", f"{NEW_CLUSTER_ID}\n".encode())
    found = verify(disk, DATA_DIR)
    assert (found.verdict, found.problems) == ("good", []), "a forced start that a crash cut short"
    assert NEW_CLUSTER_ID in found.notes[0]


@pytest.mark.parametrize(
    ("marker", "said"), [("ef" * 16 + "\n", "names " + "ef" * 16), ("rubbish", "holds no cluster id")]
)
def test_a_marker_of_a_forced_start_explains_only_its_own_cluster(marker: str, said: str) -> None:
    disk = written([members(1)], [members(2, NEW_CLUSTER_ID)])
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", marker.encode())
    (problem,) = verify(disk, DATA_DIR).problems
    assert said in problem.message


def test_a_marker_that_nothing_needs_is_told() -> None:
    disk = written([members(1)])
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", f"{NEW_CLUSTER_ID}\n".encode())
    found = verify(disk, DATA_DIR)
    assert found.verdict == "good"
    assert "was not finished" in found.notes[0]
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", b"rubbish")
    found = verify(disk, DATA_DIR)
    assert (found.verdict, found.problems) == ("fallback", [])
    assert MARKER_NAME in found.fallbacks[0]
    disk.plant(f"{DATA_DIR}/{MARKER_NAME}", f"{CLUSTER_ID}\n".encode())
    found = verify(disk, DATA_DIR)
    assert (found.verdict, found.notes) == ("good", [])


def test_a_journal_of_another_version_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.raft.journal.journal.FORMAT_VERSION", 2)
    disk = MemoryDisk(random.Random(0))
    disk.make_dirs(DATA_DIR)
    Journal.create(disk, DIRECTORY)
    for look in (lambda: verify(disk, DATA_DIR), lambda: rows(disk)):
        with pytest.raises(UsageError, match="format version is 2") as caught:
            look()
        assert "version that wrote it" in caught.value.remedy


@pytest.mark.parametrize("kind", list(EntryKind))
@pytest.mark.parametrize(
    "payload",
    [b"", b"\xc1", b"[]", b"7", b"\x93\x01\x02\x03", msgpack.packb([1, 2, 3, 4, [[1]]]), b"{" * 9999],
)
def test_a_payload_that_is_none_is_described_all_the_same(kind: EntryKind, payload: bytes) -> None:
    described = describe_record(entry(1, 1, payload, kind), values=True)
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


@pytest.mark.parametrize("odd", ["\x1b[2J\nno damage", "\u202e\x7f\x9b", "\r\t\u2028"])
def test_what_clients_wrote_does_not_act_on_the_terminal(odd: str) -> None:
    """A log holds what is refused when it is applied, too: paths with any characters."""
    commands = [
        [OP_CREATE, f"/{odd}", odd.encode(), [[31, odd, odd]], 0],
        [OP_MULTI, [[OP_SET_DATA, f"/{odd}", None, 1]]],
        [4711, odd],
        odd,
    ]
    batch = msgpack.packb([1, 1, 2, 3, [[7, 1, [odd], commands]]])
    control = msgpack.packb([1, [[odd]]])
    strange = msgpack.packb([odd])
    payloads = (
        (2, batch, EntryKind.BATCH),
        (3, control, EntryKind.CONTROL),
        (4, strange, EntryKind.REGISTER),
    )
    entries = [entry(index, 1, payload, kind) for index, payload, kind in payloads]
    disk = written([members(1, odd), *entries])
    found = verify(disk, DATA_DIR)
    dumped = [*dump_lines(disk, DATA_DIR, first=None, last=None, values=True, as_json=False)]
    with pytest.raises(DataDirError):
        # The cluster is not that of the identity.
        dumped.extend(verification_lines(found, as_json=False))
    assert [line for line in dumped if not line.isprintable()] == []
    assert sum(f" path=/{printable(odd)} " in line for line in dumped) == 2


def test_stamps_are_times_where_they_can_be() -> None:
    assert stamp_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert stamp_text(2**62) == str(2**62)
