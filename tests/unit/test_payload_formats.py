"""Entries that another version wrote: a node applies what it knows, and stops at what it does not."""

from __future__ import annotations

from typing import Any, cast

import msgpack
import pytest

from quorum.cli.offline.entries import describe_record
from quorum.core.codes import OP_CREATE
from quorum.core.machine import StateMachine
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.requests.payloads import (
    BATCH_FORMAT,
    ENFORCING_BATCH_FORMAT,
    IMPORT_FORMAT,
    LEVEL_FORMAT,
    REGISTER_FORMAT,
    REQUEST_FORMAT,
    UNCOUNTED_BATCH_FORMAT,
    PayloadFormatError,
)
from quorum.raft.requests.requests import Action, LeaderRequest
from tests.support.manual_runtime import ManualRuntime
from tests.unit.core.driver import Driver, data_at

FORMATS = {
    EntryKind.BATCH: IMPORT_FORMAT,
    EntryKind.CONTROL: LEVEL_FORMAT,
    EntryKind.REGISTER: REGISTER_FORMAT,
}
#: tests/unit/raft/test_requests.py has requests, tests/unit/core/test_core_importing.py steps of an import
EVERY_FORMAT = [
    (kind, known)
    for kind, newest in FORMATS.items()
    for known in range(1, newest + 1)
    if (kind, known) not in ((EntryKind.BATCH, REQUEST_FORMAT), (EntryKind.BATCH, IMPORT_FORMAT))
]
REQUEST = LeaderRequest(Action.REMOVE, 3)


class Anything:
    """Takes every call and does nothing."""

    #: another node's: no batch of these tests is this node's own
    node_id = 99

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


def replica_of(machine: StateMachine) -> NodeReplica:
    return NodeReplica(
        machine,
        cast("Any", Anything()),
        cast("Any", ManualRuntime()),
        cast("Any", Anything()),
        incarnation=1,
        forward_deadline_ms=5000.0,
        heartbeat_interval_ms=50.0,
        batch_bytes_max=10_000,
        entry_bytes_max=10_000,
        container_check_interval_ms=60_000.0,
    )


class Bench:
    """A replica with one session, and the fields of an entry of each kind that changes its state."""

    def __init__(self) -> None:
        driver = Driver()
        self.client = driver.connect()
        self.machine = driver.machine
        self.replica = replica_of(self.machine)
        origin, (incarnation, number) = next(iter(self.machine.origins.items()))
        session_id = next(iter(self.machine.sessions))
        session = self.machine.sessions[session_id]
        run = [session_id, session.nonce, None, [[OP_CREATE, "/new", b"", None, 0]]]
        self.fields: dict[EntryKind, list[Any]] = {
            EntryKind.BATCH: [origin, incarnation, number + 1, [run]],
            EntryKind.CONTROL: [[["expire", session_id, session.nonce, self.machine.applied_index]]],
            EntryKind.REGISTER: [7, 70],
        }

    def entry(self, kind: EntryKind, payload: bytes) -> Entry:
        machine = self.machine
        return Entry(machine.applied_index + 1, machine.applied_term, kind, machine.last_stamp_ms, payload)

    def apply(self, kind: EntryKind, *values: Any) -> None:
        self.replica.apply(self.entry(kind, msgpack.packb(list(values))))


@pytest.mark.parametrize(("kind", "known"), EVERY_FORMAT)
def test_every_format_up_to_this_versions_is_applied(kind: EntryKind, known: int) -> None:
    bench = Bench()
    index = bench.machine.applied_index
    bench.apply(kind, known, *bench.fields[kind])
    assert bench.machine.applied_index == index + 1
    took_effect = {
        EntryKind.BATCH: bench.machine.tree.get("/new") is not None,
        EntryKind.CONTROL: not bench.machine.sessions,
        EntryKind.REGISTER: bench.machine.origins.get(7) == (70, 0),
    }
    assert [each for each, effect in took_effect.items() if effect] == [kind]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("further", [[], ["a field that is new"]])
def test_a_newer_format_stops_the_node_and_nothing_of_it_is_applied(
    kind: EntryKind, further: list[str]
) -> None:
    bench = Bench()
    machine = bench.machine
    before = (machine.applied_index, machine.state_digest, machine.apply_digest, machine.entry_is_open)
    newer = FORMATS[kind] + 1
    with pytest.raises(PayloadFormatError) as caught:
        bench.apply(kind, newer, *bench.fields[kind], *further)
    after = (machine.applied_index, machine.state_digest, machine.apply_digest, machine.entry_is_open)
    assert after == before
    assert f"format {newer} of a {kind.name.lower()} entry is newer than this version" in caught.value.message
    assert f"(up to {FORMATS[kind]})" in caught.value.message
    assert "update this node" in caught.value.remedy
    assert "data directory stays as it is" in caught.value.remedy


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("none", [0, -1, True, 1.0, "1", None, b"\x01", [1]])
def test_what_is_no_format_is_not_taken_for_one(kind: EntryKind, none: object) -> None:
    bench = Bench()
    with pytest.raises(PayloadFormatError, match="not a whole number from 1") as caught:
        bench.apply(kind, none, *bench.fields[kind])
    assert f"format of a {kind.name.lower()} entry is {none!r}" in caught.value.message


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("payload", [b"\x90", b"\x07", b"\x85\x01\x01\x02\x02\x03\x03\x04\x04\x05\x05"])
def test_what_has_no_format_is_refused(kind: EntryKind, payload: bytes) -> None:
    bench = Bench()
    with pytest.raises(PayloadFormatError, match="not a list that begins with its format"):
        bench.replica.apply(bench.entry(kind, payload))


def test_a_format_may_be_written_with_more_bytes_than_it_needs() -> None:
    bench = Bench()
    packed = msgpack.packb([BATCH_FORMAT, *bench.fields[EntryKind.BATCH]])
    head = b"\xdc\x00\x05\xcd\x00" + bytes((BATCH_FORMAT,))
    bench.replica.apply(bench.entry(EntryKind.BATCH, head + packed[2:]))
    assert bench.machine.tree.get("/new") is not None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_newer_entry_is_told_and_not_misprinted(kind: EntryKind) -> None:
    bench = Bench()
    payload = msgpack.packb([FORMATS[kind], *bench.fields[kind]])
    assert "problem" not in describe_record(bench.entry(kind, payload))
    newer = msgpack.packb([FORMATS[kind] + 1, *bench.fields[kind]])
    told = describe_record(bench.entry(kind, newer))
    assert str(told.pop("problem")).startswith(f"format {FORMATS[kind] + 1} of a {kind.name.lower()} entry")
    assert set(told) == {"type", "index", "term", "kind", "stamp_ms", "bytes"}


def test_a_request_is_described_by_what_it_asks() -> None:
    bench = Bench()
    payload = msgpack.packb([REQUEST_FORMAT, *bench.fields[EntryKind.BATCH][:3], REQUEST])
    known = describe_record(bench.entry(EntryKind.BATCH, payload))
    assert known["request"] == {**REQUEST._asdict(), "action": "remove"}


@pytest.mark.parametrize(
    ("known", "refused", "stats"),
    [
        (UNCOUNTED_BATCH_FORMAT, False, b"count=0,bytes=0"),
        (BATCH_FORMAT, False, b"count=2,bytes=2"),
        (ENFORCING_BATCH_FORMAT, True, b"count=1,bytes=1"),
    ],
)
def test_the_format_of_a_batch_says_what_quotas_do(known: int, *, refused: bool, stats: bytes) -> None:
    bench = Bench()
    origin, incarnation, number, [run] = bench.fields[EntryKind.BATCH]
    quota = "/zookeeper/quota/new"
    run[3] = [
        [OP_CREATE, quota, b"", None, 0],
        [OP_CREATE, f"{quota}/zookeeper_limits", b"count=-1,bytes=-1=;countHardLimit=1", None, 0],
        [OP_CREATE, f"{quota}/zookeeper_stats", b"count=0,bytes=0", None, 0],
        [OP_CREATE, "/new", b"1", None, 0],
        [OP_CREATE, "/new/b", b"2", None, 0],
    ]
    bench.apply(EntryKind.BATCH, known, origin, incarnation, number, [run])
    assert (bench.machine.tree.get("/new/b") is None) == refused
    assert data_at(bench.machine, f"{quota}/zookeeper_stats") == stats
    described = describe_record(
        bench.entry(EntryKind.BATCH, msgpack.packb([known, origin, incarnation, number, [run]]))
    )
    assert ("enforces_quota" in described) == (known == ENFORCING_BATCH_FORMAT)


@pytest.mark.parametrize(("known", "stats"), [(3, b"count=2,bytes=0"), (LEVEL_FORMAT, b"count=1,bytes=0")])
def test_the_format_of_a_proposal_says_whether_stats_are_written(known: int, stats: bytes) -> None:
    bench = Bench()
    client = bench.client
    for path in ("/zookeeper/quota/a", "/a"):
        client.make(path)
    client.make("/a/mine", flags=1)
    client.make("/zookeeper/quota/a/zookeeper_limits", b"count=9")
    client.make("/zookeeper/quota/a/zookeeper_stats")
    session = bench.machine.sessions[client.session_id]
    expiry = ["expire", client.session_id, session.nonce, bench.machine.applied_index]
    bench.apply(EntryKind.CONTROL, known, [expiry])
    assert bench.machine.tree.get("/a/mine") is None
    assert data_at(bench.machine, "/zookeeper/quota/a/zookeeper_stats") == stats
