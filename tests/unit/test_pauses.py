"""What a node believes after it stood still: nothing is given up unread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorum.core.machine import StateMachine
from quorum.errors import NotLeaderError
from quorum.node.replica import NodeReplica
from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import NotLeaderError as RaftNotLeaderError
from quorum.raft.core.messages import Ready, Role, SoftState
from quorum.raft.engine.engine import Engine
from tests.support.manual_runtime import ManualRuntime

TERM = 3
DEADLINE_MS = 5000.0


class Anything:
    """Takes every call and does nothing."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


class StubCore(Anything):
    """A core that says once which role it has."""

    deadline_ms = float("inf")
    has_committed = False
    configuration = None

    def __init__(self, leader_id: int) -> None:
        role = Role.LEADER if leader_id == 1 else Role.FOLLOWER
        soft_state = SoftState(role, TERM, leader_id, 0, "")
        self._ready = [Ready(None, (), (), soft_state, None, (), (), (), ())]

    def linked_members(self) -> dict[int, str]:
        return {2: "", 3: ""}

    def status(self) -> Any:
        return SimpleNamespace(
            term=TERM, role=Role.FOLLOWER, last_index=0, commit_index=0, configuration_index=0
        )

    def ready(self) -> Ready | None:
        return self._ready.pop() if self._ready else None


class Bench:
    """Node 1 of three, which leads or follows node 2."""

    def __init__(self, leader_id: int) -> None:
        self.runtime = ManualRuntime()
        self.engine = Engine(
            cast("Any", StubCore(leader_id)),
            cast("Any", Anything()),
            cast("Any", Anything()),
            cast("Any", self.runtime),
            node_id=1,
            peer_ids=[2, 3],
            applied_index=0,
            election_timeout_max_ms=600,
            heartbeat_interval_ms=50,
            on_failure=lambda _error: None,
        )
        self.engine.attach(cast("Any", Anything()), cast("Any", Anything()))
        self.engine.chunk_received()
        self.engine.start(self.engine.tick)
        self.runtime.turn()


def test_a_leader_that_steps_down_over_a_proposal_tells_so_in_the_same_turn() -> None:
    bench = Bench(leader_id=1)
    core = cast("Any", bench.engine)._core

    def refuse(*_arguments: Any) -> int:
        core._ready = [Ready(None, (), (), SoftState(Role.FOLLOWER, TERM, 0, 0, ""), None, (), (), (), ())]
        raise RaftNotLeaderError("its own disk lags", 0)

    core.propose = refuse
    with pytest.raises(NotLeaderError):
        bench.engine.propose(EntryKind.BATCH, b"")
    assert bench.engine.leads
    bench.runtime.turn()
    assert not bench.engine.leads


class StubEngine(Anything):
    """An engine without a leader."""

    node_id = 1
    leader_id = None
    term = TERM
    leads = False
    accepts_proposals = False
    configuration = None

    def guarded(self, _what: str, call: Any) -> Any:
        return call

    collected = guarded


@pytest.mark.parametrize("late_again", [False, True])
def test_what_is_overdue_after_a_pause_is_given_up_only_by_the_next_tick(late_again: bool) -> None:
    runtime = ManualRuntime()
    replica = NodeReplica(
        StateMachine(),
        cast("Any", StubEngine()),
        cast("Any", runtime),
        cast("Any", Anything()),
        incarnation=1,
        forward_deadline_ms=DEADLINE_MS,
        heartbeat_interval_ms=50.0,
        batch_bytes_max=1000,
        entry_bytes_max=1000,
        container_check_interval_ms=60_000.0,
    )
    replica.submit(cast("Any", object()), 1, 1, None, [[1, "/a", b"", None, 0]])
    runtime.turn()
    runtime.now_ms += DEADLINE_MS + 1.0
    replica.tick(runtime.now_ms, DEADLINE_MS)
    assert replica.batches.forwarder.batches_abandoned == 0
    runtime.now_ms += 100.0
    replica.tick(runtime.now_ms, 80.0 if late_again else 0.0)
    assert replica.batches.forwarder.batches_abandoned == 1
