"""The simulated quorum and its clients, as the shipped elections and registrations use them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from controller.election.plans import CONTROLLER_OFFICE, HeldBy, Won
from controller.election.store import elect, register_broker
from quorum.client import (
    ClientState,
    ConnectionLossError,
    MultiFailedError,
    SessionExpiredError,
    Transaction,
    WatchEvent,
)
from quorum.metadata.records import BrokerRecord
from quorum.metadata.trust import Trust
from tests.simulation.control_plane.client import SimClient
from tests.simulation.control_plane.process import Process
from tests.simulation.control_plane.quorum import Quorum
from tests.simulation.scheduler import Scheduler

TRUST = Trust(["secret"], "simulated")
RECORD = BrokerRecord("h", 1, ("CLIENT://h:1",), {"CLIENT": "PLAINTEXT"}, 0, incarnation="0" * 32)


class Bench:
    """A quorum and some clients."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.quorum = Quorum(self.scheduler)
        self.problems: list[BaseException] = []

    def client(self, actor: int, timeout_ms: int = 1000) -> SimClient:
        process = Process(self.scheduler, actor, self.problems.append)
        client = SimClient(self.quorum, process, timeout_ms)
        process.spawn(client.start())
        self.run(50)
        assert client.state is ClientState.CONNECTED
        return client

    def run(self, for_ms: float) -> None:
        self.scheduler.run(self.scheduler.now_ms + for_ms)
        assert not self.problems

    def do(self, client: SimClient, work: Coroutine[Any, Any, Any], for_ms: float = 100) -> Any:
        async def guarded() -> None:
            try:
                outcome.append(await work)
            except Exception as error:  # noqa: BLE001 - it is the outcome
                outcome.append(error)

        outcome: list[Any] = []
        client.process.spawn(guarded())
        self.run(for_ms)
        assert outcome, "no outcome yet"
        return outcome[0]


def test_one_candidate_wins_and_the_other_learns_of_it() -> None:
    bench = Bench()
    first, second = bench.client(1), bench.client(2)
    bench.do(first, register_broker(first.shipped, 1, RECORD, TRUST))
    won = bench.do(first, elect(first.shipped, CONTROLLER_OFFICE, 1, 0, TRUST))
    held = bench.do(second, elect(second.shipped, CONTROLLER_OFFICE, 2, 0, TRUST))
    assert isinstance(won, Won) and won.mandate.epoch == 1
    assert held == HeldBy(1)


def test_a_generation_is_the_czxid_of_the_registration_and_rises() -> None:
    bench = Bench()
    first = bench.client(1)
    generation = bench.do(first, register_broker(first.shipped, 1, RECORD, TRUST))
    _, stat = bench.do(first, first.get("/brokers/ids/1"))
    assert stat.czxid == generation
    assert bench.do(first, register_broker(first.shipped, 1, RECORD, TRUST)) == generation
    again = bench.client(1)
    assert bench.do(again, register_broker(again.shipped, 1, RECORD, TRUST)) > generation


def test_a_silent_session_ends_with_its_ephemerals_and_its_client_learns_of_it() -> None:
    bench = Bench()
    first, second = bench.client(1), bench.client(2)
    bench.do(first, register_broker(first.shipped, 1, RECORD, TRUST))
    first.process.pause()
    bench.quorum.silent(first.session_id)
    bench.run(900)
    assert bench.do(second, second.exists("/brokers/ids/1")) is not None
    bench.run(200)
    assert bench.do(second, second.exists("/brokers/ids/1")) is None
    first.process.go_on()
    bench.run(2000)
    assert first.state is ClientState.LOST
    assert isinstance(bench.do(first, first.exists("/a")), SessionExpiredError)


def test_the_outcome_of_a_write_is_unknown_when_the_connection_breaks() -> None:
    outcomes: dict[bool, int] = {True: 0, False: 0}
    for seed in range(30):
        bench = Bench(seed)
        first, second = bench.client(1), bench.client(2)
        work = first.create("/a", b"1")
        assert first.link is not None
        bench.scheduler.at(0.7, first.link.end)
        outcome = bench.do(first, work, 1500)
        exists = bench.do(second, second.exists("/a")) is not None
        if isinstance(outcome, ConnectionLossError):
            assert not outcome.definite
            outcomes[exists] += 1
        assert first.state is ClientState.CONNECTED
    assert outcomes[True] and outcomes[False]


def test_a_session_reads_its_own_writes_at_a_node_that_lags() -> None:
    bench = Bench()
    bench.quorum.lag_ms = (5.0, 20.0)
    first = bench.client(1)

    async def work() -> list[int]:
        await first.create("/a", b"0")
        found = []
        for number in range(10):
            _, (data, _) = await asyncio.gather(first.set("/a", b"%d" % number), first.get("/a"))
            found.append(int(data or b""))
        return found

    assert bench.do(first, work(), 3000) == list(range(10))


def test_a_recursive_watch_tells_in_order_and_misses_what_happens_without_a_connection() -> None:
    bench = Bench()
    first, second = bench.client(1, timeout_ms=5000), bench.client(2)
    told: list[WatchEvent] = []
    bench.do(first, first.add_watch("/brokers/topics", told.append, recursive=True))
    bench.do(second, second.create("/brokers/topics/t"))
    bench.do(second, second.create("/brokers/topics/t/partitions"))
    assert [each.path for each in told] == ["/brokers/topics/t", "/brokers/topics/t/partitions"]
    link = first.link
    assert link is not None
    link.end()
    bench.do(second, second.set("/brokers/topics/t", b"x"), 20)
    bench.run(4000)
    assert first.state is ClientState.CONNECTED
    assert len(told) == 2
    bench.do(second, second.set("/brokers/topics/t", b"y"))
    assert len(told) == 3


def test_a_failed_multi_names_its_operation() -> None:
    bench = Bench()
    first = bench.client(1)
    transaction = Transaction().check("/brokers").set("/brokers/topics", b"", 7)
    outcome = bench.do(first, first.multi(transaction))
    assert isinstance(outcome, MultiFailedError)
    assert (outcome.index, outcome.cause.path) == (1, "/brokers/topics")


@pytest.mark.parametrize("seed", [3, 4])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    traces = []
    for _ in range(2):
        bench = Bench(seed)
        first, second = bench.client(1), bench.client(2)
        bench.do(first, register_broker(first.shipped, 1, RECORD, TRUST))
        bench.do(second, elect(second.shipped, CONTROLLER_OFFICE, 2, 0, TRUST))
        traces.append((bench.scheduler.trace, bench.quorum.machine.state_digest))
    assert traces[0] == traces[1]
