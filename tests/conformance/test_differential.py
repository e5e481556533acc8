"""Quorate answers as a real ZooKeeper 3.9.5 does: seeded streams on both, and that a defect would be seen.

The long runs are `make differential STREAMS=10000` and that with ARGS="--planted all".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
import uvloop

from tests.conformance.differential import odd
from tests.conformance.differential.__main__ import parse
from tests.conformance.differential.campaign import Arena, Report, Verdict, run_seeds
from tests.conformance.differential.clusters import quorate, zookeeper
from tests.conformance.differential.compare import differences
from tests.conformance.differential.coverage import CELLS, Coverage
from tests.conformance.differential.generator import generate
from tests.conformance.differential.known import KNOWN
from tests.conformance.differential.link import Side, open_link
from tests.conformance.differential.planted import serving
from tests.conformance.differential.player import Note, Transcript
from tests.conformance.differential.shrink import shrink, tell
from tests.conformance.differential.steps import Stream
from tests.conformance.differential.wire import (
    Connected,
    Event,
    Op,
    Owner,
    Reply,
    Request,
    Stamp,
    Stat,
    Zxid,
    connect_frame,
    frame,
    text,
)

#: what fits into `make test`
STREAMS = 150
PLANTED_STREAMS_MAX = 500
DIVERGENCES = Path(__file__).resolve().parents[2] / "DIVERGENCES.md"


@pytest.fixture(scope="module")
def theirs() -> Iterator[Side]:
    with zookeeper() as side:
        yield side


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    with quorate() as side:
        yield side


async def first_difference(arena: Arena, streams: int) -> tuple[Report, Verdict | None]:
    """Run streams until one differs; that one comes back made small."""
    async with arena.opened():
        report = await run_seeds(arena, range(1, streams + 1), lambda verdict: verdict.difference is None)
        return report, await shrink(arena, report.failures[0]) if report.failures else None


async def one(arena: Arena, stream: Stream) -> Verdict:
    async with arena.opened():
        return await arena.run(stream, dense=False)


def test_seeded_streams_are_answered_as_zookeeper_answers_them(theirs: Side, ours: Side) -> None:
    report, small = uvloop.run(first_difference(Arena(theirs, ours), STREAMS))
    if small is not None:
        seed = small.stream.seed
        command = f"python -m tests.conformance.differential --streams 1 --seed {seed}"
        pytest.fail(f"stream {seed} differs; to repeat it: {command}\n{tell(small)}")
    assert report.streams == STREAMS
    assert report.coverage.other["events"] > STREAMS
    assert report.coverage.other["reconnects with pending writes"] > STREAMS / 10


def test_a_planted_defect_is_found_and_made_small(theirs: Side) -> None:
    with quorate(serving("version-off-by-one")) as defective:
        report, small = uvloop.run(first_difference(Arena(theirs, defective), PLANTED_STREAMS_MAX))
    assert small is not None, f"{report.streams} streams did not find it"
    assert len(small.stream.steps) <= 3, tell(small)
    assert "-103" in tell(small)


def test_what_differs_on_purpose_is_explained_and_nothing_else(theirs: Side, ours: Side) -> None:
    cut = odd.broken_request(0, "cut body", Request(Op.GET_DATA, raw=b"\0\0"))
    container = odd.broken_request(0, "unknown operation", Request(Op.DELETE_CONTAINER, ("~",)))
    verdict = uvloop.run(one(Arena(theirs, ours), Stream(1, (0, 1, 2), (cut, container))))
    assert verdict.difference is None
    assert set(verdict.known) == {"deleteContainer of a client"}


async def takes(side: Side, request_bytes: int) -> bool:
    """Tell whether a server answers a write of so many bytes, and does not close the connection."""
    link = await open_link(side.ports[0])
    link.send(connect_frame(0, 30_000, 0, bytes(16)))
    assert await link.next() is not None
    head = pack(">ii", 1, Op.SET_DATA) + text("/zookeeper/none")
    data = bytes(request_bytes - len(head) - 8)
    link.send(frame(head + pack(">i", len(data)) + data + pack(">i", -1)))
    answered = await link.next() is not None
    link.drop()
    return answered


def test_a_request_may_be_as_large_as_zookeepers(theirs: Side, ours: Side) -> None:
    for size, expected in ((0xFFFFF, True), (0x100000, False)):
        assert [uvloop.run(takes(side, size)) for side in (theirs, ours)] == [expected, expected], size


def test_a_null_path_is_answered_as_zookeeper_does(theirs: Side, ours: Side) -> None:
    null, one_byte = pack(">i", -1), pack(">i", 1) + b"x"
    bodies = {
        Op.SET_DATA: null + one_byte + pack(">i", -1),
        Op.SET_ACL: null + pack(">ii", 1, 31) + text("world") + text("anyone") + pack(">i", -1),
        Op.SYNC: null,
        Op.ADD_WATCH: null + pack(">i", 1),
        Op.CHECK_WATCHES: null + pack(">i", 1),
        Op.REMOVE_WATCHES: null + pack(">i", 1),
        Op.GET_EPHEMERALS: null,
        Op.EXISTS: null + b"\1",
        Op.GET_DATA: null + b"\0",
        Op.GET_ACL: null,
    }
    steps = tuple(odd.broken_request(0, "null path", Request(op, raw=raw)) for op, raw in bodies.items())
    for step in steps:
        verdict = uvloop.run(one(Arena(theirs, ours), Stream(1, (0, 1, 2), (step,))))
        assert verdict.difference is None, f"{step.op}: {verdict.difference}"
        assert not verdict.known


def test_a_null_scheme_in_an_access_list_is_answered_as_zookeeper_does(theirs: Side, ours: Side) -> None:
    null = pack(">i", -1)
    acl = pack(">ii", 1, 31) + null + text("anyone")
    bodies = {
        Op.CREATE: text("/null-scheme") + null + acl + pack(">i", 0),
        Op.SET_ACL: text("/zookeeper") + acl + pack(">i", -1),
    }
    steps = tuple(odd.broken_request(0, "null scheme", Request(op, raw=raw)) for op, raw in bodies.items())
    for step in steps:
        verdict = uvloop.run(one(Arena(theirs, ours), Stream(1, (0, 1, 2), (step,))))
        assert verdict.difference is None, f"{step.op}: {verdict.difference}"
        assert not verdict.known


@pytest.mark.parametrize("path", ["/a" * 257, "/" + "a" * 8192])
def test_a_path_that_is_too_long_differs_and_is_explained(theirs: Side, ours: Side, path: str) -> None:
    step = odd.broken_request(0, "long path", Request(Op.EXISTS, (path, 0)))
    verdict = uvloop.run(one(Arena(theirs, ours), Stream(1, (0, 1, 2), (step,))))
    assert verdict.difference is None
    assert set(verdict.known) == {"long path"}


def test_every_known_difference_has_its_row_in_the_divergences() -> None:
    text = DIVERGENCES.read_text(encoding="utf-8")
    assert [name for name, known in KNOWN.items() if known.divergence not in text] == []


def test_a_demand_on_the_coverage_that_is_not_met_is_named() -> None:
    coverage = Coverage()
    for op, errors in CELLS.items():
        coverage.cells.update({(op, err): 3 for err in errors})
    coverage.other["reconnects with pending writes"] = 30
    assert coverage.unmet(3) == []
    assert coverage.demands(3).endswith(": met")
    coverage.cells[Op.DELETE, -102] = 1
    coverage.other["reconnects with pending writes"] = 29
    assert coverage.unmet(3) == ["delete × NoAuth 1 of 3", "reconnects with pending writes 29 of 30"]
    assert "2 not met" in coverage.demands(3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--streams", "0"], "--streams: '0': use a whole number from 1 up"),
        (["--seed", "-1"], "--seed: '-1': use a whole number from 0 up"),
        (["--lanes", "many"], "--lanes: 'many': use a whole number from 1 up"),
        (["--require-coverage", "0"], "--require-coverage: '0': use a whole number from 1 up"),
        (["--planted", "all", "--require-coverage"], "--require-coverage: a run with --planted ends"),
    ],
)
def test_a_bad_value_of_the_command_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(words)
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_a_demand_is_a_hundred_of_each_unless_a_number_is_given() -> None:
    assert parse(["--require-coverage"]).require_coverage == 100
    assert parse(["--require-coverage", "7"]).require_coverage == 7
    assert parse([]).require_coverage is None


def test_a_seed_always_gives_the_same_stream() -> None:
    assert generate(7, dense=False) == generate(7, dense=False)
    assert generate(7, dense=False) != generate(8, dense=False)


def stat(zxid: int, owner: int = 0, mtime: int = 1_000) -> Stat:
    stamps = (Stamp(1_000), Stamp(mtime))
    return Stat(Zxid(zxid), Zxid(zxid), *stamps, 0, 0, 0, Owner(owner), 0, 0, Zxid(zxid))


def transcript(base: int, session_id: int) -> Transcript:
    """A session that creates a node and is told so, in a system whose zxids begin at `base`."""
    password = session_id.to_bytes(16, "big")
    notes = [
        Note(0, 0, Connected(0, 30_000, session_id, password, b"\0")),
        Note(0, 0, Event(Zxid(base + 2), 0, 1, 3, "/r/a")),
        Note(0, Op.CREATE2, Reply(1, Zxid(base + 2), 0, ("/r/a", stat(base + 2, session_id)))),
        Note(0, Op.GET_CHILDREN, Reply(2, Zxid(base + 2), 0, ("a", "b"))),
    ]
    return Transcript("/r", base, [notes], {session_id: "session 0"}, {session_id: password})


@pytest.mark.parametrize("dense", [True, False])
def test_numbers_of_two_systems_are_compared_by_what_they_mean(dense: bool) -> None:
    one_side, other = transcript(100, 7), transcript(2**32, 99)
    assert list(differences(one_side, other, dense=dense)) == []
    other.notes[0][3] = Note(0, Op.GET_CHILDREN, Reply(2, Zxid(2**32 + 2), 0, ("b", "a")))
    assert list(differences(one_side, other, dense=dense)) == []


def changed(position: int, note: Note) -> Transcript:
    script = transcript(2**32, 99)
    script.notes[0][position] = note
    return script


@pytest.mark.parametrize(
    ("position", "note"),
    [
        (0, Note(0, 0, Connected(0, 30_000, 99, bytes(16), b"\0"))),
        (0, Note(0, 0, Connected(0, 30_000, 99, (99).to_bytes(16, "big"), b""))),
        (1, Note(0, 0, Event(Zxid(2**32 + 1), 0, 1, 3, "/r/a"))),
        (1, Note(0, 0, Event(Zxid(2**32 + 2), 0, 3, 3, "/r/a"))),
        (2, Note(0, Op.CREATE2, Reply(1, Zxid(2**32 + 3), 0, ("/r/a", stat(2**32 + 2, 99))))),
        (2, Note(0, Op.CREATE2, Reply(1, Zxid(2**32 + 2), 0, ("/r/a", stat(2**32 + 2, 98))))),
        (2, Note(0, Op.CREATE2, Reply(1, Zxid(2**32 + 2), 0, ("/r/a", stat(2**32 + 2, 99, 2_000))))),
        (3, Note(0, Op.GET_CHILDREN, Reply(2, Zxid(2**32 + 2), 0, ("a",)))),
    ],
    ids=["password", "readOnly", "event zxid", "event type", "reply zxid", "owner", "times", "children"],
)
@pytest.mark.parametrize("dense", [True, False])
def test_every_kind_of_difference_is_seen(dense: bool, position: int, note: Note) -> None:
    found = list(differences(transcript(100, 7), changed(position, note), dense=dense))
    assert [difference.step for difference in found] == [0]


def test_only_a_dense_comparison_sees_a_zxid_left_out() -> None:
    skipping = transcript(2**32, 99)
    skipping = replace(skipping, first_zxid=2**32 - 1)
    assert list(differences(transcript(100, 7), skipping, dense=True)) != []
    assert list(differences(transcript(100, 7), skipping, dense=False)) == []


def test_the_order_of_events_and_replies_counts() -> None:
    other = transcript(2**32, 99)
    notes = other.notes[0]
    notes[1], notes[2] = notes[2], notes[1]
    assert [difference.step for difference in differences(transcript(100, 7), other, dense=True)] == [0]
