"""The controller over a real quorum: creation, failures, bounces, failover, fencing, deletion.

Each test runs an embedded quorum of one node; brokers and candidates share the test's event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from controller.core.requests import NewTopic
from controller.messages.codes import ErrorCode
from quorum.local import ensemble
from quorum.metadata import store
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord
from tests.support.nodes import eventually
from tests.support.scripted_broker import ScriptedBroker

DEADLINE_S = 20.0
KEY = PartitionKey("orders", 0)


class Cluster:
    """A quorum and the brokers of one test."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.brokers: dict[int, ScriptedBroker] = {}

    async def add(
        self, broker_id: int, *, candidate: bool = False, rack: str | None = None
    ) -> ScriptedBroker:
        broker = self.brokers[broker_id] = ScriptedBroker(self.hosts, broker_id, rack=rack)
        return await broker.start(candidate=candidate)

    async def start(self, count: int) -> list[ScriptedBroker]:
        """Start brokers 1 to count; the first one is the only candidate, and elected."""
        started = [await self.add(each, candidate=each == 1) for each in range(1, count + 1)]
        controller = started[0].controller
        assert controller is not None
        await until(lambda: sorted(controller.status().brokers) == list(range(1, count + 1)))
        return started

    async def create(self, replicas: dict[int, tuple[int, ...]], topic: str = KEY.topic) -> None:
        """Create a topic by its znode, as an administrator does."""
        client = next(iter(self.brokers.values())).client
        await store.create_topic(client, topic, TopicRecord(uuid.uuid4(), replicas))


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition on what brokers and controllers have in memory."""
    await asyncio.to_thread(eventually, condition, DEADLINE_S, what)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with ensemble(nodes=1, settings={"limits": {"tick_ms": 200}}) as quorum:
        running = Cluster(quorum.hosts)
        try:
            yield running
        finally:
            for broker in running.brokers.values():
                await broker.stop()


async def test_a_new_topic_gets_leaders_and_every_broker_learns_of_them(cluster: Cluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (3, 2)})
    other = PartitionKey(KEY.topic, 1)
    await until(lambda: all(len(broker.metadata) == 2 for broker in (one, two, three)))
    await until(lambda: two.leader_of(KEY) == three.leader_of(KEY) == 2)
    await until(lambda: two.leader_of(other) == three.leader_of(other) == 3)
    assert one.states == {}
    assert two.states[KEY].is_new
    state = await one.read_state(KEY)
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (2, (2, 3), 0, 1)


async def test_a_dead_brokers_partitions_get_a_new_leader_and_it_leaves_every_isr(cluster: Cluster) -> None:
    _, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (3, 2)})
    await until(lambda: len(three.states) == len(two.states) == 2)
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    assert three.states[KEY].leader_epoch == 1
    assert three.states[KEY].isr == (3,)
    # As a follower it is taken out at once, too.
    await until(lambda: three.states[PartitionKey(KEY.topic, 1)].isr == (3,))
    await until(lambda: three.live_brokers == [1, 3])


async def test_a_topic_by_request_is_led_when_the_answer_comes(cluster: Cluster) -> None:
    one, two = await cluster.start(2)
    assert one.controller is not None
    wanted = NewTopic("orders", 4, 2, settings={"min.insync.replicas": "2"})
    outcome = (await one.controller.create_topics([wanted], timeout_ms=10_000, validate_only=False))["orders"]
    assert (outcome.error_code, outcome.num_partitions, outcome.replication_factor) == (ErrorCode.NONE, 4, 2)
    assert len(one.metadata) == len(two.metadata) == len(one.states) == len(two.states) == 4
    assert {state.leader for state in one.states.values()} == {1, 2}
