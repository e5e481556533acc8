"""Runs of clients on their way into batches: what no entry could hold is refused before it does harm."""

from __future__ import annotations

from typing import Any, cast

from quorum.core.machine import StateMachine
from quorum.node.replica import HOLD_HEARTBEATS, NodeReplica
from quorum.raft.engine.contracts import ShellMessage
from quorum.raft.requests.origins import LogIsLong
from tests.support.manual_runtime import ManualRuntime

ENTRY_BYTES_MAX = 10_000
HEARTBEAT_MS = 50.0
NUMBER_MAX = 2**62


class Anything:
    """Takes every call and does nothing."""

    node_id = 2**31 - 1

    def guarded(self, _what: str, call: Any) -> Any:
        return call

    collected = guarded

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


class Pumps(Anything):
    """Counts how often it is asked to carry out what a turn asked for."""

    def __init__(self) -> None:
        self.count = 0

    def collected(self, _what: str, call: Any) -> Any:
        def run() -> None:
            call()
            self.count += 1

        return run


class Leading(Anything):
    """Leads node 2, and keeps what is sent."""

    node_id = leader_id = 1
    leads = True
    term = 7

    def __init__(self) -> None:
        self.sent: list[ShellMessage] = []

    def peer_ids(self) -> list[int]:
        return [2]

    def send(self, message: ShellMessage) -> None:
        self.sent.append(message)


class Following(Anything):
    """Knows no leader yet."""

    node_id, leader_id = 2, None
    leads = False

    def known_index(self) -> None:
        return None


def replica_of(engine: Any, runtime: ManualRuntime) -> NodeReplica:
    return NodeReplica(
        StateMachine(),
        cast("Any", engine),
        cast("Any", runtime),
        cast("Any", Anything()),
        incarnation=NUMBER_MAX,
        forward_deadline_ms=5000.0,
        heartbeat_interval_ms=HEARTBEAT_MS,
        batch_bytes_max=1000,
        entry_bytes_max=ENTRY_BYTES_MAX,
        container_check_interval_ms=60_000.0,
    )


def test_a_full_batch_is_handed_over_while_a_connection_is_read_and_carried_out_afterwards() -> None:
    """What was applied in between would have that connection read on, before what it has read is taken."""
    runtime, engine = ManualRuntime(), Pumps()
    replica = replica_of(engine, runtime)
    for _ in range(10):
        assert replica.submit(cast("Any", None), 1, 1, None, [[5, "/a", bytes(600), -1]])
    assert replica.batches.backlog_bytes > 6000
    assert engine.count == 0
    runtime.turn()
    assert engine.count == 1


def test_the_largest_run_fits_an_entry_and_a_larger_one_is_refused() -> None:
    """A leader that refuses an entry for its size makes the node give up all that is under way."""
    runtime = ManualRuntime()
    replica = replica_of(Anything(), runtime)

    def submit(data_bytes: int) -> bool:
        command = [5, "/a", bytes(data_bytes), -1]
        return replica.submit(cast("Any", None), NUMBER_MAX, NUMBER_MAX, None, [command])

    assert not submit(ENTRY_BYTES_MAX)
    assert replica.batches.backlog_bytes == 0
    largest = next(size for size in range(ENTRY_BYTES_MAX, 0, -1) if submit(size))
    assert largest > 0.9 * ENTRY_BYTES_MAX
    runtime.turn()
    assert 0.9 * ENTRY_BYTES_MAX < replica.batches.backlog_bytes <= ENTRY_BYTES_MAX


def test_clients_of_all_nodes_wait_while_the_leaders_log_is_long() -> None:
    engine, runtime = Leading(), ManualRuntime()
    leader, follower = replica_of(engine, ManualRuntime()), replica_of(Following(), runtime)
    leader.log_is_long = True
    leader.tick(HEARTBEAT_MS, 0.0)
    assert leader.saturated()
    (said,) = [each for each in engine.sent if isinstance(each, LogIsLong)]
    assert said == LogIsLong(7, 1, 2)
    follower.receive(said)
    hold_ms = HOLD_HEARTBEATS * HEARTBEAT_MS
    for later_ms, waits in ((hold_ms - 1, True), (hold_ms, False)):
        follower.tick(runtime.now_ms + later_ms, 0.0)
        assert follower.saturated() == waits
    engine.sent.clear()
    leader.log_is_long = False
    leader.tick(2 * HEARTBEAT_MS, 0.0)
    assert not any(isinstance(each, LogIsLong) for each in engine.sent)
