"""When a replica lets its digests be noted, reported and judged."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quorum.core.machine import StateMachine
from quorum.errors import NodeStoppedError
from quorum.node.digests.judge import ANSWER_WAIT_MS
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Role, SoftState
from quorum.raft.requests.origins import DigestReport, DigestVerdict
from tests.support.manual_runtime import ManualRuntime

HEARTBEAT_MS = 50.0
TERM = 3


class StubEngine:
    """An engine of three members that only remembers what was sent."""

    def __init__(self, node_id: int, leader_id: int) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.term = TERM
        self.leads = node_id == leader_id
        self.accepts_proposals = False
        self.applied_index = 0
        self.configuration = None
        self.soft_state = SoftState(Role.LEADER if self.leads else Role.FOLLOWER, TERM, leader_id, 0, "")
        self.sent: list[Any] = []

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None

    def peer_ids(self) -> list[int]:
        return [node_id for node_id in (1, 2, 3) if node_id != self.node_id]

    def is_connected(self, _node_id: int) -> bool:
        return True

    def send(self, message: Any) -> None:
        self.sent.append(message)


class StubFrontend:
    """A front end without clients."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


class Bench:
    def __init__(self, node_id: int, leader_id: int = 1) -> None:
        self.engine = StubEngine(node_id, leader_id)
        self.runtime = ManualRuntime()
        self.replica = NodeReplica(
            StateMachine(),
            cast("Any", self.engine),
            cast("Any", self.runtime),
            cast("Any", StubFrontend()),
            incarnation=1,
            forward_deadline_ms=5000.0,
            heartbeat_interval_ms=HEARTBEAT_MS,
            batch_bytes_max=1000,
            entry_bytes_max=1000,
            container_check_interval_ms=60_000.0,
        )
        self.replica.leadership_changed(self.engine.soft_state)

    def apply(self, term: int = TERM) -> None:
        self.replica.apply(Entry(self.replica.machine.applied_index + 1, term, EntryKind.NOOP, 1000, b""))

    def tick(self, by_ms: float = HEARTBEAT_MS) -> list[Any]:
        """Let time pass; returns the digest messages that left."""
        self.runtime.advance(by_ms)
        self.replica.tick(self.runtime.monotonic_ms(), 0.0)
        sent, self.engine.sent = self.engine.sent, []
        return [message for message in sent if isinstance(message, DigestReport | DigestVerdict)]

    def report(self) -> DigestReport:
        machine = self.replica.machine
        return DigestReport(
            TERM, self.engine.node_id, 1, machine.applied_index, machine.state_digest, machine.apply_digest
        )


def test_a_follower_reports_once_per_heartbeat_interval_and_only_what_is_new() -> None:
    bench = Bench(2)
    bench.apply()
    assert bench.tick() == [bench.report()]
    assert bench.tick() == []
    bench.apply()
    assert bench.tick(HEARTBEAT_MS / 2) == []
    assert bench.tick(HEARTBEAT_MS / 2) == [bench.report()]


def test_a_new_connection_to_the_leader_has_everything_reported_again() -> None:
    bench = Bench(2)
    bench.apply()
    bench.tick()
    bench.replica.peer_connected(3)
    assert bench.tick() == []
    bench.replica.peer_connected(1)
    assert bench.tick() == [bench.report()]


def test_a_new_term_has_everything_reported_again() -> None:
    bench = Bench(2)
    bench.apply()
    bench.tick()
    bench.replica.leadership_changed(bench.engine.soft_state)
    assert bench.tick() == [bench.report()]


def test_an_installed_state_is_what_is_reported() -> None:
    bench = Bench(2)
    bench.apply()
    bench.tick()
    installed = Bench(3)
    for _ in range(9):
        installed.apply()
    bench.replica.install(installed.replica.machine)
    assert bench.tick() == [bench.report()]
    assert bench.report().log_index == 9


def test_a_leader_judges_reports_and_time() -> None:
    leader, follower = Bench(1), Bench(2)
    leader.apply()
    follower.apply()
    leader.replica.receive(follower.report())
    assert leader.replica.digests.compared_count == 1
    assert leader.tick(ANSWER_WAIT_MS) == []
    odd = follower.report()._replace(apply_digest=b"x" * 16)
    leader.replica.receive(odd)
    assert leader.tick(ANSWER_WAIT_MS / 2) == []
    (verdict,) = leader.tick(ANSWER_WAIT_MS / 2)
    assert (verdict.receiver, verdict.log_index) == (2, 1)
    follower.replica.receive(verdict)
    follower.replica.digests.history.note(1, b"s" * 16, b"x" * 16)
    with pytest.raises(NodeStoppedError):
        follower.replica.receive(verdict)
