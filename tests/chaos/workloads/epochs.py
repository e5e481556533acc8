"""Controller epochs and leaderAndISR through quorum.metadata, by candidates that are no brokers.

Every client stands for controller. The one that is elected changes leaders in the name of its epoch; the
others change ISRs as leaders do, at the version that they read. Judged for I16 and I18, and every state as a
register. Runs only without brokers, whose controller would be a stranger to the history.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any, ClassVar, Final

from controller.election.fenced import fenced_multi
from controller.election.plans import CONTROLLER_OFFICE, HeldBy, Mandate
from controller.election.store import (
    compare_and_set_state,
    elect,
    ensure_base_paths,
    register_broker,
    resign,
)
from pipeline.checks.suites import EPOCHS_REPLICAS as REPLICAS
from quorum.client import Client, ConnectionLossError, Transaction
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, record
from tests.support.trust import TRUST
from tests.support.written_states import create_topic

TOPIC: Final = "chaos-states"
PARTITIONS: Final = tuple(PartitionKey(TOPIC, number) for number in range(3))
NAMES: Final = {f"state-{key.partition}": key for key in PARTITIONS}
FIRST: Final = PartitionStateRecord(ControllerEpoch(0), REPLICAS[0], LeaderEpoch(0), REPLICAS)


class NotElectedError(QuorateError):
    """Another candidate is the controller."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(f"broker {broker_id} is the controller")


class Epochs(QuorumWorkload):
    """Six candidates and three partitions."""

    name: ClassVar[str] = "epochs"
    description: ClassVar[str] = "elections of a controller, fenced writes of leaders, and of ISRs by leaders"
    excludes_brokers: ClassVar[bool] = True

    async def set_up(self) -> None:
        """Create the base paths and the partitions."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await ensure_base_paths(client)
            topic = TopicRecord(uuid.uuid4(), {key.partition: REPLICAS for key in PARTITIONS})
            await create_topic(client, TOPIC, topic)
            await client.create(paths.topic_partitions_path(TOPIC))
            for key in PARTITIONS:
                await client.create(paths.partition_path(key))
                await client.create(paths.partition_state_path(key), FIRST.encode())

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Register, then do one step after the other."""
        broker_id = int(process.name.rpartition("-")[2])
        incarnation = uuid.UUID(int=rng.getrandbits(128)).hex
        registration = BrokerRecord("127.0.0.1", 1, (), {}, 0, incarnation=incarnation)
        try:
            async with asyncio.timeout(10):
                await register_broker(client, broker_id, registration, TRUST)
        except (TimeoutError, ConnectionLossError, ContendedError):
            return
        await super().session(process, client, node, rng, stop)

    async def step(self, process: Process, client: Client, node: str, rng: random.Random) -> None:
        """Stand for controller; write as one, or as a leader."""
        broker_id = int(process.name.rpartition("-")[2])
        name = rng.choice(list(NAMES))
        seen = await record(process.invoke("state", name, None), lambda: self._read(client, name), node)
        if seen is None:
            return
        version, (controller_epoch, leader, leader_epoch, _) = seen
        if rng.random() < 0.5:
            isr = sorted({leader, *rng.sample(REPLICAS, 3)})
            argument = [version, [controller_epoch, leader, leader_epoch, isr]]
            call = process.invoke("isr", name, argument)
            await record(call, lambda: self._write_isr(client, name, argument), node)
            return
        mandates: list[Mandate[ControllerEpoch]] = []
        call = process.invoke("elect", "controller", broker_id)
        await record(call, lambda: self._elect(client, broker_id, mandates), node)
        if not mandates:
            return
        leader = rng.choice(REPLICAS)
        isr = sorted({leader, *rng.sample(REPLICAS, 2)})
        argument = [version, [mandates[0].epoch, leader, leader_epoch + 1, isr]]
        call = process.invoke("lead", name, argument)
        await record(call, lambda: self._write_leader(client, mandates[0], name, argument), node)
        if rng.random() < 0.1:
            await record(
                process.invoke("resign", "controller", broker_id),
                lambda: self._resign(client, mandates[0]),
                node,
            )

    @staticmethod
    async def _read(client: Client, name: str) -> Answer:
        path = paths.partition_state_path(NAMES[name])
        _, (data, stat) = await asyncio.gather(client.sync(path), client.get(path))
        state = PartitionStateRecord.decode(NAMES[name], data)
        found = [state.controller_epoch, state.leader, state.leader_epoch, list(state.isr)]
        return [stat.version, found], stat.mzxid

    @staticmethod
    async def _elect(client: Client, broker_id: int, mandates: list[Mandate[ControllerEpoch]]) -> Answer:
        outcome = await elect(client, CONTROLLER_OFFICE, broker_id, 0, TRUST)
        if isinstance(outcome, HeldBy):
            raise NotElectedError(outcome.broker_id)
        mandates.append(outcome.mandate)
        return outcome.mandate.epoch, 0

    @staticmethod
    async def _resign(client: Client, mandate: Mandate[ControllerEpoch]) -> Answer:
        return await resign(client, CONTROLLER_OFFICE, mandate), 0

    @staticmethod
    async def _write_isr(client: Client, name: str, argument: list[Any]) -> Answer:
        version, state = argument
        return await compare_and_set_state(client, NAMES[name], _state(state), PartitionVersion(version)), 0

    @staticmethod
    async def _write_leader(
        client: Client, mandate: Mandate[ControllerEpoch], name: str, argument: list[Any]
    ) -> Answer:
        version, state = argument
        transaction = Transaction()
        transaction.set(paths.partition_state_path(NAMES[name]), _state(state).encode(), version)
        results = await fenced_multi(client, mandate, transaction)
        stat = results[0].written_stat
        return stat.version, stat.mzxid


def _state(listed: list[Any]) -> PartitionStateRecord:
    controller_epoch, leader, leader_epoch, isr = listed
    return PartitionStateRecord(
        ControllerEpoch(controller_epoch), leader, LeaderEpoch(leader_epoch), tuple(isr)
    )
