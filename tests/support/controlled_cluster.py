"""A quorum of one node with scripted brokers, for the tests of the controller."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from controller.core.effects import SetData, Write
from controller.core.inputs import MultiDone
from controller.core.options import ControllerOptions
from controller.runtime.controller import Controller
from controller.runtime.shell import Shell
from quorum.local import ensemble
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord
from tests.support.nodes import eventually
from tests.support.scripted_broker import OPTIONS, ScriptedBroker
from tests.support.written_states import create_topic

DEADLINE_S = 20.0
TOPIC = "orders"
KEY = PartitionKey(TOPIC, 0)

#: Runs a test whose fixture `cluster` is made by the name of a channel with each of them.
both_channels = pytest.mark.parametrize("cluster", ["direct", "queue"], indirect=True)

T = TypeVar("T")


class ControlledCluster:
    """A quorum and the brokers of one test."""

    def __init__(self, hosts: str, options: ControllerOptions = OPTIONS) -> None:
        self.hosts = hosts
        self.options = options
        self.brokers: dict[int, ScriptedBroker] = {}

    async def add(
        self, broker_id: int, *, candidate: bool = False, rack: str | None = None
    ) -> ScriptedBroker:
        """Start one more broker."""
        broker = self.brokers[broker_id] = ScriptedBroker(
            self.hosts, broker_id, rack=rack, options=self.options
        )
        return await broker.start(candidate=candidate)

    async def start(self, count: int) -> list[ScriptedBroker]:
        """Start brokers 1 to count; the first one is the only candidate, and elected."""
        started = [await self.add(each, candidate=each == 1) for each in range(1, count + 1)]
        await until(lambda: sorted(self.active.status().brokers) == list(range(1, count + 1)))
        return started

    @property
    def active(self) -> Controller:
        """The controller that works."""
        found = [
            broker.controller
            for broker in self.brokers.values()
            if broker.controller is not None and broker.controller.active
        ]
        assert len(found) == 1, f"{len(found)} controllers are active"
        return found[0]

    async def create(self, replicas: dict[int, tuple[int, ...]], topic: str = TOPIC) -> None:
        """Create a topic by its znode, as an administrator does, and wait for its leaders."""
        client = next(iter(self.brokers.values())).client
        await create_topic(client, topic, TopicRecord(uuid.uuid4(), replicas))
        for partition, brokers in replicas.items():
            for each in brokers:
                if self.brokers[each].generation >= 0:
                    key = PartitionKey(topic, partition)
                    await until(lambda each=each, key=key: key in self.brokers[each].states)  # type: ignore[misc]


def term_of(controller: Controller) -> Shell:
    """The running term of a controller."""
    assert controller._candidate.term is not None
    return controller._candidate.term


def writes_states(effect: Write) -> bool:
    """Say whether a write changes states that there were before."""
    return any(isinstance(each, SetData) and each.path.endswith("/state") for each in effect.operations)


def before_states_are_written(
    monkeypatch: pytest.MonkeyPatch, interfere: Callable[[], Awaitable[None]]
) -> None:
    """Have every controller wait for something before it changes states."""
    write = Shell.write

    async def write_later(shell: Shell, effect: Write) -> MultiDone:
        if writes_states(effect):
            await interfere()
        return await write(shell, effect)

    monkeypatch.setattr(Shell, "write", write_later)


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition on what brokers and controllers have in memory."""
    await asyncio.to_thread(eventually, condition, DEADLINE_S, what)


async def until_read(read: Callable[[], Awaitable[T]], condition: Callable[[T], object]) -> T:
    """Read from the quorum until the value is as wanted, and return it."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition(value := await read()):
            pass
        return value


async def until_state(
    broker: ScriptedBroker, condition: Callable[[PartitionStateRecord], object], key: PartitionKey = KEY
) -> PartitionStateRecord:
    """Wait until a partition's state in the quorum is as wanted."""
    found = await until_read(
        lambda: broker.read_state(key), lambda state: state is not None and condition(state)
    )
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def controlled_cluster(channel: str = "direct") -> AsyncIterator[ControlledCluster]:
    """Run a quorum; all brokers that a test has started end with it, and use the channel."""
    async with ensemble(nodes=1, settings={"limits": {"tick_ms": 200}}) as quorum:
        running = ControlledCluster(quorum.hosts, dataclasses.replace(OPTIONS, channel=channel))
        try:
            yield running
        finally:
            for broker in running.brokers.values():
                await broker.stop()


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ControlledCluster]:
    """A quorum whose brokers the test starts; `both_channels` chooses how requests reach them."""
    async with controlled_cluster(getattr(request, "param", "direct")) as running:
        yield running
