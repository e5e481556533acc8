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
from quorum.raft.requests.payloads import BATCH_FORMAT, CONTROL_FORMAT, REGISTER_FORMAT, PayloadFormatError
from tests.support.manual_runtime import ManualRuntime
from tests.unit.core.driver import Driver

FORMATS = {
    EntryKind.BATCH: BATCH_FORMAT,
    EntryKind.CONTROL: CONTROL_FORMAT,
    EntryKind.REGISTER: REGISTER_FORMAT,
}
EVERY_FORMAT = [(kind, known) for kind, newest in FORMATS.items() for known in range(1, newest + 1)]


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
    bench.replica.apply(bench.entry(EntryKind.BATCH, b"\xdc\x00\x05\xcd\x00\x01" + packed[2:]))
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
