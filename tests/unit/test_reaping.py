"""What the leader proposes to delete fits into the log, whatever paths its clients made."""

from __future__ import annotations

from typing import Any, cast

import msgpack
import pytest

from quorum.errors import ProposalRefusedError
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import EntryKind
from tests.support.manual_runtime import ManualRuntime
from tests.unit.core.driver import Driver

BATCH_BYTES_MAX = 10_000
PATH_BYTES = 3000


class Anything:
    """Takes every call and does nothing."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


class LeadingEngine(Anything):
    """An engine that leads and keeps what is proposed, up to a size."""

    node_id = leader_id = 1
    term = 1
    leads = accepts_proposals = True
    configuration = None

    def __init__(self, entry_bytes_max: int) -> None:
        self.entry_bytes_max = entry_bytes_max
        self.proposed: list[list[list[Any]]] = []

    def peer_ids(self) -> list[int]:
        return []

    def guarded(self, _what: str, call: Any) -> Any:
        return call

    collected = guarded

    def draw_incarnation_above(self, known: int) -> int:
        return known + 1

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        assert kind is EntryKind.CONTROL
        if len(payload) > self.entry_bytes_max:
            raise ProposalRefusedError(f"the payload has {len(payload)} bytes", "larger limits")
        self.proposed.append(msgpack.unpackb(payload)[1])
        return 1


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    client = driver.connect()
    for number in range(10):
        client.one(21, f"/{number}{'x' * (PATH_BYTES - 2)}", b"", None, 5, 1)
    return driver


def lead(driver: Driver, engine: LeadingEngine) -> tuple[NodeReplica, ManualRuntime]:
    runtime = ManualRuntime()
    runtime.now_ms += driver.stamp_ms
    replica = NodeReplica(
        driver.machine,
        cast("Any", engine),
        cast("Any", runtime),
        cast("Any", Anything()),
        incarnation=1,
        forward_deadline_ms=5000.0,
        heartbeat_interval_ms=50.0,
        batch_bytes_max=BATCH_BYTES_MAX,
        entry_bytes_max=BATCH_BYTES_MAX,
        container_check_interval_ms=60_000.0,
    )
    replica.sessions.become_leader([], runtime.now_ms)
    return replica, runtime


def test_long_paths_are_proposed_in_several_entries(driver: Driver) -> None:
    engine = LeadingEngine(BATCH_BYTES_MAX + PATH_BYTES)
    replica, runtime = lead(driver, engine)
    for _ in range(4):
        replica.tick(runtime.now_ms, 0.0)
    paths = [path for proposals in engine.proposed for _, path, _ in proposals]
    assert len(set(paths)) == len(paths) == 10
    assert len(engine.proposed) == 3


def test_a_path_too_long_for_this_leader_stops_nobody(driver: Driver) -> None:
    engine = LeadingEngine(PATH_BYTES - 1)
    replica, runtime = lead(driver, engine)
    for _ in range(4):
        replica.tick(runtime.now_ms, 0.0)
    assert engine.proposed == []
