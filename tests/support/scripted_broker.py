"""A broker as far as a controller sees one: a registration, and a listener that answers control requests.

It runs inside the test's event loop and holds no partition. It fences as a real one does (77 for a request
for an earlier life, 11 for an earlier controller), keeps every request in order, and the newest state of
each partition. A test can hold its answers back, or have it answer an error. `candidate` gives it a
controller of its own, which shares its session. Its queue is read as a real broker reads it.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-380.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from unittest import mock

from broker.lifecycle.state_queue import StateQueue
from controller.core.options import ControllerOptions
from controller.election import store
from controller.messages.entities import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    decode_request,
    encode_response,
)
from controller.runtime.controller import Controller
from controller.wire import sasl
from controller.wire.codes import ErrorCode
from controller.wire.frames import parse_request_header
from controller.wire.scram import ScramServer
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node
from quorum.metadata.records import BrokerRecord, LogEnd, PartitionStateRecord
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust
from tests.support.frames import pack_response

SECRET = "s" * 32
CLUSTER_ID = "scripted-cluster"
#: Short pauses, so that a test does not wait for them.
TRUST = Trust([SECRET], CLUSTER_ID)
OPTIONS = ControllerOptions(control_request_timeout_ms=2_000, isr_coalesce_ms=20)


class ScriptedBroker:
    """One broker id; it may live several lives."""

    def __init__(
        self, hosts: str, broker_id: int, *, rack: str | None = None, options: ControllerOptions = OPTIONS
    ) -> None:
        self.hosts = hosts
        self.broker_id = broker_id
        self.rack = rack
        self.options = options
        self.reads_queue = True
        self.incarnation = uuid.UUID(int=broker_id).hex
        #: What its registrations say of shortened logs: {topic: {partition: end}}.
        self.shortened: dict[str, dict[int, LogEnd]] = {}
        self.generation = BrokerGeneration(-1)
        self.controller: Controller | None = None
        #: Every control request that arrived, also refused ones, in order, of all lives.
        self.requests: list[ControlRequest] = []
        #: The codes answered to them.
        self.answered: list[int] = []
        self.states: dict[PartitionKey, LeaderAndIsrPartitionState] = {}
        self.metadata: dict[PartitionKey, UpdateMetadataPartitionState] = {}
        self.live_brokers: list[int] = []
        #: Replicas that it deleted, and those that it only stopped.
        self.stopped: list[PartitionKey] = []
        self.halted: list[PartitionKey] = []
        self.controller_epoch = -1
        #: Answers wait until it is set.
        self.answers = asyncio.Event()
        self.answers.set()
        #: What it answers in place of its own judgement.
        self.script: Callable[[ControlRequest], ErrorCode | None] = lambda _request: None
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self.running: asyncio.Task[None] | None = None
        self._queue: asyncio.Task[None] | None = None
        self.client = self._new_client()

    def _new_client(self) -> Client:
        return Client(self.hosts, session_timeout_ms=4_000)

    # -- lives ---------------------------------------------------------------------------------------------

    async def start(self, *, candidate: bool = False, register: bool = True) -> ScriptedBroker:
        """Listen, open a session, register, and compete if it is a candidate."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        await self.client.start()
        await store.ensure_base_paths(self.client)
        if register:
            await self.register()
        if candidate:
            self.compete()
        return self

    async def register(self) -> None:
        record = BrokerRecord(
            None,
            -1,
            (f"CLIENT://127.0.0.1:{10_000 + self.broker_id}", f"BROKER://127.0.0.1:{self._port}"),
            {"CLIENT": "PLAINTEXT", "BROKER": "SASL_PLAINTEXT"},
            timestamp_ms=0,
            rack=self.rack,
            incarnation=self.incarnation,
            reads_queue=self.reads_queue,
            shortened=self.shortened,
        )
        queue = StateQueue(self.broker_id, self._take_entry, TRUST)
        await queue.watch(self.client)
        self.generation = await store.register_broker(self.client, self.broker_id, record, TRUST)
        if self.reads_queue:
            self._queue = asyncio.create_task(queue.run(self.client, self.generation))

    def compete(self, options: ControllerOptions | None = None, client: Client | None = None) -> Controller:
        """Be a candidate, with this broker's session, by a client of its own if one is given."""
        self.controller = Controller(
            client or self.client,
            self.broker_id,
            options=options or self.options,
            secrets=[SECRET],
            cluster_id=CLUSTER_ID,
            default_settings=TopicSettings(),
            dial={},
        )
        self.running = asyncio.create_task(self.controller.run())
        return self.controller

    async def bounce(self) -> None:
        """Live again: a new session takes the registration over in one multi, so the id never goes."""
        former, self.client = self.client, self._new_client()
        await self._leave_queue()
        await self.client.start()
        self.forget()
        await self.register()
        await former.close()

    async def die(self) -> None:
        """End the session, the listener and all connections; `live` begins the next life."""
        await self._end_candidate()
        await self._leave_queue()
        await self.client.close()
        await self._close_listener()
        self.forget()

    async def live(self, *, candidate: bool = False, incarnation: str | None = None) -> None:
        """Begin another life, with another disk if an incarnation is given."""
        self.incarnation = incarnation or self.incarnation
        self.client = self._new_client()
        await self.start(candidate=candidate)

    def forget(self) -> None:
        """Lose what a process has in memory."""
        self.states.clear()
        self.metadata.clear()
        self.live_brokers = []
        self.controller_epoch = -1

    @contextlib.asynccontextmanager
    async def deaf(self) -> AsyncIterator[None]:
        """Let no event of the quorum reach this broker for a with block; then its connection breaks.

        Persistent watches do not tell what happened while no server was connected.
        """
        session = self.client
        with mock.patch.object(session._watches, "fire", return_value=[]):
            yield
        assert session._link is not None
        session._link.abort("the test cuts it")

    async def _end_candidate(self) -> None:
        if self.running is not None:
            running, self.running = self.running, None
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            self.controller = None

    async def _leave_queue(self) -> None:
        if self._queue is not None:
            queue, self._queue = self._queue, None
            queue.cancel()
            await asyncio.wait([queue])

    async def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        """Drop all connections."""
        for writer in self._connections:
            writer.transport.abort()

    async def stop(self) -> None:
        """End in order."""
        self.answers.set()
        if self.controller is not None:
            await self.controller.stop()
        await self.die()

    # -- what a leader writes ------------------------------------------------------------------------------

    async def set_isr(self, key: PartitionKey, isr: tuple[int, ...]) -> PartitionVersion:
        """Change the ISR as the leader of the partition does."""
        found = (await store.read_partition_states(self.client, [key]))[key]
        assert found is not None
        state, version = found
        return await store.compare_and_set_state(self.client, key, replace(state, isr=isr), version)

    # -- the listener --------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gate = sasl.SaslGate(ScramServer([SECRET], CLUSTER_ID))
        self._connections.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header = parse_request_header(frame, lambda key, _version: key != sasl.SASL_HANDSHAKE)
                body = frame[header.body_offset :]
                if header.api_key == sasl.SASL_HANDSHAKE:
                    answer = gate.handle_handshake(body).body
                elif header.api_key == sasl.SASL_AUTHENTICATE:
                    answer = gate.handle_authenticate(body).body
                else:
                    assert gate.authenticated
                    request = decode_request(header.api_key, header.api_version, body)
                    self.requests.append(request)
                    await self.answers.wait()
                    if writer.is_closing():
                        return  # what was held back on a connection that was cut is lost
                    answer = encode_response(self._answer(request))
                flexible = header.api_key != sasl.SASL_HANDSHAKE
                writer.write(pack_response(header.correlation_id, answer, flexible=flexible))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the controller has gone
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _take_entry(self, request: ControlRequest) -> ControlResponse:
        self.requests.append(request)
        await self.answers.wait()
        return self._answer(request)

    def _answer(self, request: ControlRequest) -> ControlResponse:
        code = self.script(request)
        if code is None:
            code = self._judge(request)
        self.answered.append(int(code))
        match request:
            case LeaderAndIsrRequest():
                return self._lead_and_follow(request, code)
            case UpdateMetadataRequest():
                if code == ErrorCode.NONE:
                    self._learn(request)
                return UpdateMetadataResponse(error_code=int(code))
            case StopReplicaRequest():
                return self._stop_replicas(request, code)
            case _:
                raise AssertionError(f"a controller sends no {request}")

    def _judge(self, request: ControlRequest) -> ErrorCode:
        assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
        if request.broker_epoch < self.generation:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _lead_and_follow(self, request: LeaderAndIsrRequest, code: ErrorCode) -> LeaderAndIsrResponse:
        errors = []
        for topic in request.topic_states if code == ErrorCode.NONE else ():
            for state in topic.partition_states:
                self.states[PartitionKey(topic.topic_name, state.partition_index)] = state
            none = [
                LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=0)
                for state in topic.partition_states
            ]
            errors.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=tuple(none)))
        return LeaderAndIsrResponse(error_code=int(code), topics=tuple(errors))

    def _learn(self, request: UpdateMetadataRequest) -> None:
        self.live_brokers = [each.id for each in request.live_brokers]
        for topic in request.topic_states:
            for state in topic.partition_states:
                key = PartitionKey(topic.topic_name, state.partition_index)
                if state.leader == -2:
                    self.metadata.pop(key, None)
                else:
                    self.metadata[key] = state

    def _stop_replicas(self, request: StopReplicaRequest, code: ErrorCode) -> StopReplicaResponse:
        errors = []
        for topic in request.topic_states if code == ErrorCode.NONE else ():
            for state in topic.partition_states:
                key = PartitionKey(topic.topic_name, state.partition_index)
                self.states.pop(key, None)
                (self.stopped if state.delete_partition else self.halted).append(key)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=0
                    )
                )
        return StopReplicaResponse(error_code=int(code), partition_errors=tuple(errors))

    # -- what tests ask ------------------------------------------------------------------------------------

    def leader_of(self, key: PartitionKey) -> int | None:
        """Who leads, as this replica was told."""
        state = self.states.get(key)
        return None if state is None else state.leader

    async def read_state(self, key: PartitionKey) -> PartitionStateRecord | None:
        """What stands in the quorum."""
        found = (await store.read_partition_states(self.client, [key]))[key]
        return None if found is None else found[0]

    async def incarnation_on_record(self) -> bytes | None:
        """The value of /brokers/incarnations/N."""
        node = await read_node(self.client, paths.broker_incarnation_path(self.broker_id))
        return None if node is None else node.data


def request_kinds(requests: Sequence[ControlRequest]) -> list[str]:
    """Names of requests, in order."""
    return [type(each).__name__.removesuffix("Request") for each in requests]
