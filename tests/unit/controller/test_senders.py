"""What the senders make of what brokers do: answers, silence, and what breaks the term."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from controller.core.effects import CloseChannel, OpenChannel, Send
from controller.core.inputs import Answered, Ended, Input, NoAnswer
from controller.core.model import ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.options import ControllerOptions, Counters
from controller.core.outbox import Batch, LeadershipBatch, MetadataBatch, StopBatch
from controller.messages.entities import (
    CONTROL_VERSIONS,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlRequest,
    ControlResponse,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaResponse,
    UpdateMetadataResponse,
    decode_request,
    encode_response,
)
from controller.runtime.bodies import Bodies
from controller.runtime.senders import Connection, Senders, TermShare
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnectionLostError, BrokerUnreachableError
from quorum.client import (
    Client,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    OperationResult,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from tests.support.controlled_cluster import until
from tests.support.trust import TRUST

KEY, OTHER = PartitionKey("t", 0), PartitionKey("t", 1)
TOPIC_ID = uuid.UUID(int=7, version=4)
GENERATION = BrokerGeneration(10)
STATE = PartitionStateRecord(ControllerEpoch(1), 1, LeaderEpoch(3), (1, 2))
KNOWN = KnownState(STATE, PartitionVersion(5), None)
REGISTRATION = BrokerRecord(None, -1, (), {}, reads_queue=True, timestamp_ms=0)
APPLIED = {
    LEADER_AND_ISR: LeaderAndIsrResponse(error_code=0, topics=()),
    STOP_REPLICA: StopReplicaResponse(error_code=0, partition_errors=()),
    UPDATE_METADATA: UpdateMetadataResponse(error_code=0),
}
QUEUE = paths.queue_path(1)


class FakeBroker:
    """A broker that answers what the test says; None: never."""

    def __init__(self) -> None:
        self.requests: list[ControlRequest] = []
        self.answers: list[ControlResponse | Exception | None] = []
        self.dialled = self.closed = 0
        self.connected = asyncio.Event()
        self.connected.set()

    async def connect(self, _broker_id: int, _broker: LiveBroker) -> Connection:
        self.dialled += 1
        await self.connected.wait()
        return self

    async def request(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> bytes:
        assert flexible
        assert timeout_ms == ControllerOptions().control_request_timeout_ms
        assert api_version == CONTROL_VERSIONS[api_key]
        self.requests.append(decode_request(api_key, api_version, body))
        answer = self.answers.pop(0) if self.answers else APPLIED[api_key]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return encode_response(cast("ControlResponse", answer))

    def close(self) -> None:
        self.closed += 1


class FakeQuorum:
    """Nodes of one queue: what stands in it, and what a test lets fail."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.written: list[str] = []
        self.exists_already = False
        self.failure: Exception | None = None
        self.watch: Callable[[object], None] | None = None

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        (command,) = transaction.commands
        path, value = str(command[1]), command[2]
        if self.failure is not None:
            raise self.failure
        if path == QUEUE and self.exists_already:
            raise MultiFailedError(0, NodeExistsError(-110, path))
        if path.endswith("/"):
            path = f"{path}{len(self.written):010}"
            self.written.append(path)
            self.entries[path] = cast("bytes", value)
        else:
            self.entries.pop(path, None)
        return [OperationResult(path, None)]

    async def get_children(self, _path: str) -> list[str]:
        return [path.rsplit("/", 1)[1] for path in self.entries]

    async def exists(self, path: str, watch: Callable[[object], None]) -> object | None:
        self.watch = watch
        return object() if path in self.entries else None

    def apply(self) -> None:
        """The broker deletes what it has applied."""
        self.entries.clear()
        assert self.watch is not None
        self.watch(None)


class World:
    """The senders of one term to one broker."""

    def __init__(self, channel: str = "direct") -> None:
        self.model = ClusterModel()
        self.model.topics["t"] = KnownTopic(TopicRecord(TOPIC_ID, {0: (1, 2), 1: (1, 2)}), 0)
        self.model.states = {KEY: KNOWN, OTHER: KNOWN}
        self.broker, self.quorum = FakeBroker(), FakeQuorum()
        self.counters = Counters()
        self.inputs: asyncio.Queue[Input] = asyncio.Queue()
        self.failures: list[BaseException] = []
        self.senders = Senders(
            TermShare(
                cast("Client", self.quorum),
                cast("Callable[[Transaction], Awaitable[list[OperationResult]]]", self.quorum.multi),
                9,
                ControllerEpoch(2),
                Bodies(self.model),
                self.broker.connect,
                ControllerOptions(channel=channel),
                self.counters,
                TRUST,
                self.inputs.put_nowait,
                self.failures.append,
            )
        )
        self.senders.open(OpenChannel(1, LiveBroker(GENERATION, REGISTRATION)))

    async def put(self, batch: Batch) -> Input:
        """Send a request; returns what became of it."""
        self.senders.send(Send(1, GENERATION, batch))
        async with asyncio.timeout(5):
            return await self.inputs.get()


def roles(*refused: LeaderAndIsrPartitionError) -> LeaderAndIsrResponse:
    topics = (LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=refused),)
    return LeaderAndIsrResponse(error_code=0, topics=topics)


async def test_an_answer_names_the_partitions_that_were_refused() -> None:
    world = World()
    fine = LeaderAndIsrPartitionError(partition_index=0, error_code=0)
    bad = LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    world.broker.answers = [
        roles(fine, bad),
        StopReplicaResponse(
            error_code=0,
            partition_errors=(
                StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=3),
                StopReplicaPartitionError(topic_name="t", partition_index=1, error_code=0),
            ),
        ),
    ]
    answer = await world.put(LeadershipBatch({KEY: False, OTHER: False}))
    assert answer == Answered(1, GENERATION, 0, {OTHER: ErrorCode.KAFKA_STORAGE_ERROR})
    answer = await world.put(StopBatch({KEY: True, OTHER: True}))
    assert answer == Answered(1, GENERATION, 0, {KEY: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert await world.put(MetadataBatch((KEY,))) == Answered(1, GENERATION, 0, {})
    # One connection for all of them.
    assert (world.broker.dialled, world.broker.closed, world.counters.requests_sent) == (1, 0, 3)


async def test_a_request_is_built_once_the_connection_stands() -> None:
    world = World()
    world.broker.connected.clear()
    world.senders.send(Send(1, GENERATION, LeadershipBatch({KEY: False})))
    await until(lambda: world.broker.dialled)
    state = replace(STATE, leader=2, leader_epoch=LeaderEpoch(4))
    world.model.states[KEY] = KnownState(state, PartitionVersion(6), None)
    world.broker.connected.set()
    async with asyncio.timeout(5):
        await world.inputs.get()
    (request,) = world.broker.requests
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (9, 2, 10)
    assert request.topic_states[0].partition_states[0].leader == 2


@pytest.mark.parametrize(
    "error",
    [BrokerConnectionLostError("it broke", "x"), BrokerUnreachableError("nobody listens", "x")],
)
async def test_without_an_answer_the_next_request_goes_over_another_connection(error: Exception) -> None:
    world = World()
    world.broker.answers = [error]
    answer = await world.put(MetadataBatch(()))
    assert isinstance(answer, NoAnswer)
    assert (answer.broker_id, answer.generation) == (1, GENERATION)
    assert answer.problem
    assert await world.put(MetadataBatch(())) == Answered(1, GENERATION, 0, {})
    assert (world.broker.dialled, world.broker.closed) == (2, 1)


async def test_an_answer_with_an_error_ends_the_connection() -> None:
    world = World()
    world.broker.answers = [UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]
    assert await world.put(MetadataBatch(())) == Answered(1, GENERATION, ErrorCode.STALE_BROKER_EPOCH, {})
    assert world.broker.closed == 1


async def test_a_closed_channel_drops_the_answer_that_is_still_to_come() -> None:
    world = World()
    world.broker.answers = [None]
    world.senders.send(Send(1, GENERATION, MetadataBatch(())))
    await until(lambda: world.broker.requests)
    # Another life has nothing to do with this one.
    world.senders.close(CloseChannel(1, BrokerGeneration(9)))
    assert world.broker.closed == 0
    world.senders.close(CloseChannel(1, GENERATION))
    await world.senders.close_all()
    assert world.broker.closed == 1
    assert world.inputs.empty()
    assert not world.failures


async def test_an_unforeseen_error_breaks_the_term() -> None:
    world = World()
    broken = ValueError("a bug")
    world.broker.answers = [broken]
    world.senders.send(Send(1, GENERATION, MetadataBatch(())))
    await until(lambda: world.failures)
    assert world.failures == [broken]
    assert world.inputs.empty()


async def test_the_end_of_a_term_waits_for_what_is_under_way() -> None:
    world = World()
    world.broker.answers = [None]
    world.senders.send(Send(1, GENERATION, MetadataBatch(())))
    await until(lambda: world.broker.requests)
    async with asyncio.timeout(5):
        await world.senders.close_all()
    assert world.broker.closed == 1
    assert world.inputs.empty()


# -- queues --------------------------------------------------------------------------------------------------


def entry_of(value: bytes) -> QueueEntryRecord:
    TRUST.check_signed(QUEUE, value)
    return QueueEntryRecord.decode(QUEUE, value)


async def test_an_entry_is_answered_when_its_broker_has_deleted_it() -> None:
    world = World("queue")
    world.quorum.exists_already = True
    world.quorum.entries = {f"{QUEUE}/of-a-former-life": b""}
    world.senders.send(Send(1, GENERATION, LeadershipBatch({KEY: False})))
    await until(lambda: world.quorum.written)
    # What a former life left is gone; it would be applied before the new entry.
    assert list(world.quorum.entries) == world.quorum.written
    entry = entry_of(world.quorum.entries[world.quorum.written[0]])
    assert (entry.kind, entry.controller_epoch, entry.generation) == (ChangeKind.LEADER_AND_ISR, 2, 10)
    await until(lambda: world.quorum.watch)
    assert world.inputs.empty()
    world.quorum.apply()
    async with asyncio.timeout(5):
        assert await world.inputs.get() == Answered(1, GENERATION, 0, {})
    assert world.broker.dialled == 0


async def test_a_queue_that_somebody_removed_ends_the_term() -> None:
    world = World("queue")
    world.senders.send(Send(1, GENERATION, MetadataBatch(())))
    await until(lambda: world.quorum.watch)
    world.quorum.apply()
    await world.inputs.get()
    world.quorum.failure = MultiFailedError(0, NoNodeError(-101, QUEUE))
    assert await world.put(MetadataBatch(())) == Ended("the queue of broker 1 was removed", is_fenced=False)
