"""When a replica lets its digests be said and compared."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quorum.core.machine import StateMachine
from quorum.errors import NodeStoppedError
from quorum.node.digests import DIFFERENCE_MS
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Role, SoftState
from quorum.raft.requests.origins import DigestDifference, DigestNotice
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
        return [message for message in sent if isinstance(message, DigestNotice | DigestDifference)]

    def notice(self, receiver: int) -> DigestNotice:
        machine = self.replica.machine
        index = machine.applied_index
        return DigestNotice(TERM, 1, receiver, index, machine.state_digest, machine.apply_digest)


def test_a_leader_speaks_once_an_interval_if_there_is_news() -> None:
    bench = Bench(1)
    bench.apply()
    notices = [bench.notice(2), bench.notice(3)]
    assert bench.tick() == notices
    assert bench.tick() == []
    bench.apply()
    assert bench.tick(HEARTBEAT_MS / 2) == []
    assert bench.tick(HEARTBEAT_MS / 2) == [bench.notice(2), bench.notice(3)]


def test_a_new_link_hears_it_again() -> None:
    bench = Bench(1)
    bench.apply()
    bench.tick()
    bench.replica.peer_connected(3)
    assert bench.tick() == [bench.notice(2), bench.notice(3)]


def test_a_follower_compares_where_it_applies_the_entry() -> None:
    leader, follower = Bench(1), Bench(2)
    leader.apply()
    follower.replica.receive(leader.notice(2))
    assert follower.replica.digests.compared_count == 0
    follower.apply()
    assert follower.replica.digests.compared_count == 1
    assert follower.tick() == []


def test_an_installed_state_is_compared() -> None:
    leader, follower = Bench(1), Bench(2)
    leader.apply()
    follower.replica.install(leader.replica.machine)
    follower.replica.receive(leader.notice(2))
    assert follower.replica.digests.compared_count == 1


def test_a_follower_with_another_state_reports_and_stops() -> None:
    leader, follower = Bench(1), Bench(2)
    leader.apply()
    follower.apply()
    follower.replica.machine.apply_digest = b"x" * 16
    follower.replica.receive(leader.notice(2))
    (difference,) = follower.tick()
    assert (difference.receiver, difference.log_index) == (1, 1)
    leader.tick()
    leader.replica.receive(difference)
    assert len(leader.tick()) == 2, "as long as somebody differs it speaks at every interval"
    follower.runtime.advance(DIFFERENCE_MS)
    follower.replica.receive(leader.notice(2))
    with pytest.raises(NodeStoppedError):
        follower.tick()
