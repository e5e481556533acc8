"""Changes of the ISR against a scripted quorum: conflicts, lost replies, bounced followers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.core.fetched import FetchPosition
from broker.core.partition import LeaderState
from broker.core.replica import ReplicaMachine
from broker.core.replica_effects import WriteIsr
from broker.core.replica_inputs import (
    FollowerFetch,
    LagTick,
    LeaderAndIsr,
    Opened,
    ReplicaInput,
    SessionLost,
)
from broker.replication import isr_writer as writing
from broker.replication.isr_writer import IsrWriter
from broker.replication.outcomes import Counters
from broker.replication.replica import Replica
from quorum.client import BadVersionError, Client, ConnectionLossError, MultiFailedError, NoAuthError, Stat
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord
from tests.unit.broker_replication.cluster import until

KEY = PartitionKey("orders", 0)
PATH = paths.partition_state_path(KEY)
GENERATION = BrokerGeneration(100)


def record(isr: tuple[int, ...], leader: int = 1, leader_epoch: int = 4) -> PartitionStateRecord:
    return PartitionStateRecord(ControllerEpoch(1), leader, LeaderEpoch(leader_epoch), isr)


def stat(version: int, zxid: int = 0) -> Stat:
    return Stat(
        czxid=zxid,
        mzxid=zxid,
        ctime_ms=0,
        mtime_ms=0,
        version=version,
        cversion=0,
        aversion=0,
        ephemeral_owner=0,
        data_length=0,
        children_count=0,
        pzxid=0,
    )


@dataclass
class Quorum:
    """One state znode and one generation; loses as many requests and replies as asked."""

    state: PartitionStateRecord
    version: int = 7
    generation: int = GENERATION
    generation_version: int = 3
    alive: bool = True
    requests_lost: int = 0
    replies_lost: int = 0
    refusals: int = 0
    bounce_before_write: bool = False
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def exists(self, path: str) -> Stat | None:
        if path == paths.broker_generation_path(2):
            return stat(self.generation_version, self.generation)
        return stat(0, self.generation) if self.alive else None

    async def get(self, path: str) -> tuple[bytes, Stat]:
        assert path == PATH
        return self.state.encode(), stat(self.version)

    async def sync(self, path: str) -> str:
        return path

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        await self.held.wait()
        if self.refusals:
            self.refusals -= 1
            raise NoAuthError(-102, path)
        if self.requests_lost:
            self.requests_lost -= 1
            raise ConnectionLossError("set", "lost", sent=True)
        if version != self.version:
            raise BadVersionError(-103, path)
        self.state, self.version = PartitionStateRecord.decode(KEY, data), self.version + 1
        if self.replies_lost:
            self.replies_lost -= 1
            raise ConnectionLossError("set", "lost", sent=True)
        return stat(self.version)

    async def multi(self, _transaction: Any) -> list[Any]:
        if self.bounce_before_write:
            cause = BadVersionError(-103, paths.broker_generation_path(2))
            raise MultiFailedError(0, cause)
        state = record((1, 2))
        try:
            written = await self.set(PATH, state.encode(), 7)
        except BadVersionError as error:
            raise MultiFailedError(1, error) from error
        return [None, SimpleNamespace(written_stat=written)]


@dataclass
class Setting:
    quorum: Quorum
    writer: IsrWriter
    replica: Replica
    leader: LeaderState
    counters: Counters
    failures: list[QuorateError]

    def shrink(self) -> None:
        self.carry_out(LagTick(-1))

    def expand(self, generation: int = GENERATION) -> None:
        self.carry_out(FollowerFetch(2, BrokerGeneration(generation), FetchPosition(10, 1, 4)))

    def carry_out(self, happened: ReplicaInput) -> None:
        effects = self.replica.step(happened)
        assert any(isinstance(each, WriteIsr) for each in effects)
        self.writer.carry_out(self.replica, effects)

    async def settle(self) -> None:
        await until(lambda: not self.writer._tasks.running)
        assert self.failures == []


def setting(isr: tuple[int, ...]) -> Setting:
    log = SimpleNamespace(log_start_offset=0, log_end_offset=10, topic_id=None, latest_epoch=3)
    replica = Replica(KEY, cast("Any", log), ReplicaMachine(1, 1))
    replica.step(Opened(4))
    replica.step(LeaderAndIsr(GENERATION, None, record(isr), PartitionVersion(7), (1, 2)))
    leader = replica.leader
    assert leader is not None
    counters = Counters()
    failures: list[QuorateError] = []
    writer = IsrWriter(counters, failures.append)
    quorum = Quorum(record(isr))
    quorum.held.set()
    writer.attach(cast("Client", quorum))
    return Setting(quorum, writer, replica, leader, counters, failures)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RETRY_PAUSE_S", 0.001)


async def test_shrink_is_written_and_lets_the_high_watermark_rise() -> None:
    tested = setting((1, 2))
    tested.quorum.held.clear()
    tested.shrink()
    tested.replica.log_grew()
    assert tested.leader.high_watermark == 4
    tested.quorum.held.set()
    await tested.settle()
    assert (tested.leader.isr, tested.leader.partition_version) == ((1,), 8)
    assert tested.leader.high_watermark == 10
    assert tested.counters.isr_shrinks == 1


async def test_a_change_that_the_quorum_refuses_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tested = setting((1, 2))
    tested.quorum.refusals = 3
    tested.shrink()
    await tested.settle()
    assert (tested.leader.isr, tested.leader.high_watermark) == ((1,), 10)
    assert len([each for each in caplog.records if "cannot be changed yet" in each.message]) == 1


@pytest.mark.parametrize(("requests", "replies"), [(1, 0), (0, 1), (3, 1)])
async def test_lost_connection_is_looked_up_and_repeated(requests: int, replies: int) -> None:
    tested = setting((1, 2))
    tested.quorum.requests_lost, tested.quorum.replies_lost = requests, replies
    tested.shrink()
    await tested.settle()
    assert tested.quorum.state == record((1,))
    assert tested.quorum.version == 8
    assert (tested.leader.isr, tested.leader.partition_version) == ((1,), 8)
    assert tested.counters.isr_shrinks == 1


async def test_lost_reply_of_a_join_is_adopted() -> None:
    tested = setting((1,))
    tested.quorum.replies_lost = 1
    tested.expand()
    await tested.settle()
    assert tested.leader.isr == (1, 2)
    assert tested.counters.isr_expansions == 1


async def test_conflict_with_another_leader_steps_down() -> None:
    tested = setting((1, 2))
    tested.quorum.state, tested.quorum.version = record((2,), leader=2, leader_epoch=5), 8
    tested.shrink()
    await tested.settle()
    assert tested.replica.leader is None
    assert tested.quorum.state == record((2,), leader=2, leader_epoch=5)
    assert tested.counters.isr_conflicts == 1


async def test_newer_decision_for_the_same_leader_is_waited_for() -> None:
    tested = setting((1, 2))
    tested.quorum.state, tested.quorum.version = record((1, 2), leader_epoch=5), 8
    tested.shrink()
    await tested.settle()
    assert tested.replica.leader is tested.leader
    assert tested.leader.pending is not None
    assert tested.leader.partition_version == 7


async def test_follower_that_has_bounced_does_not_join() -> None:
    tested = setting((1,))
    tested.expand(generation=GENERATION - 1)
    await tested.settle()
    assert tested.leader.isr == (1,)
    assert tested.leader.pending is None
    assert tested.quorum.version == 7


async def test_follower_that_bounces_before_the_write_does_not_join() -> None:
    tested = setting((1,))
    tested.quorum.bounce_before_write = True
    tested.expand()
    await tested.settle()
    assert (tested.leader.isr, tested.leader.pending) == ((1,), None)


async def test_follower_without_a_registration_does_not_join() -> None:
    tested = setting((1,))
    tested.quorum.alive = False
    tested.expand()
    await tested.settle()
    assert (tested.leader.isr, tested.leader.pending) == ((1,), None)


async def test_outcome_for_a_former_leadership_is_dropped() -> None:
    tested = setting((1, 2))
    tested.quorum.held.clear()
    tested.shrink()
    await until(lambda: tested.writer._tasks)
    tested.replica.step(SessionLost())
    tested.quorum.held.set()
    await tested.settle()
    assert tested.leader.isr == (1, 2)
    assert tested.replica.leader is None


async def test_nothing_changes_without_a_session() -> None:
    tested = setting((1, 2))
    tested.writer.attach(None)
    tested.shrink()
    await tested.settle()
    assert (tested.leader.isr, tested.leader.pending) == ((1, 2), None)
    assert tested.quorum.version == 7


async def test_quorum_that_is_away_leaves_the_change_pending() -> None:
    tested = setting((1, 2))
    tested.quorum.requests_lost = 10**9
    tested.shrink()
    await until(lambda: tested.quorum.requests_lost < 10**9 - 3)
    assert tested.leader.pending is not None
    assert not tested.leader.advance_high_watermark(10)
    tested.quorum.requests_lost = 0
    await tested.settle()
    assert tested.leader.isr == (1,)
