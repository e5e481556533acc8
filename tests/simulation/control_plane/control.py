"""Control requests at a simulated broker: decoded by the real codec, fenced, and given to the machines.

Follows the shipped order: what comes before the registration waits, a larger controller epoch is looked up in
the quorum first, and the fences are passed again after every wait.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.core.control_gate import ControlGate, ControlOrder
from broker.core.replica_effects import RefuseWith, SetAside
from broker.core.replica_inputs import LeaderAndIsr, StopReplica
from broker.replication.published_epoch import PublishedEpoch
from controller.messages.entities import (
    CONTROL_VERSIONS,
    ControlledShutdownRequest,
    ControllerRequest,
    ControlResponse,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    decode_request,
    encode_response,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker

Reply = Callable[[bytes], object]


class Control:
    """Takes requests."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self.gate = ControlGate()
        self._order = ControlOrder()
        self.published = PublishedEpoch()
        #: requests that came before the registration
        self._early: list[tuple[ControllerRequest, Reply]] = []

    def take(self, number: int, api_key: int, body: bytes, reply: Reply) -> None:
        """Take a request from the network, by the connection of this number."""
        if not self._order.admits(number):
            # The connection is closed, which its peer has given up.
            return
        request = decode_request(api_key, CONTROL_VERSIONS[api_key], body)
        assert not isinstance(request, ControlledShutdownRequest)
        if self._broker.is_registered:
            self._broker.process.spawn(self._serve(request, reply))
        elif isinstance(request, UpdateMetadataRequest):
            reply(encode_response(_refusal(request, ErrorCode.BROKER_NOT_AVAILABLE)))
        else:
            self._early.append((request, reply))

    def registered(self) -> None:
        """Take what has waited for the registration."""
        early, self._early = self._early, []
        for request, reply in early:
            self._broker.process.spawn(self._serve(request, reply))

    async def _serve(self, request: ControllerRequest, reply: Reply) -> None:
        reply(encode_response(await self.apply(request)))

    async def apply(self, request: ControllerRequest) -> ControlResponse:
        """Obey a request that came by a connection or by the queue, and return the answer."""
        broker = self._broker
        must_ask = self.gate.must_ask(request.broker_epoch, request.controller_epoch)
        if must_ask and not await self.published.covers(request.controller_epoch):
            return _refusal(request, ErrorCode.BROKER_NOT_AVAILABLE)
        refused = self.gate.judge(request.broker_epoch, request.controller_epoch)
        if refused is not ErrorCode.NONE:
            return _refusal(request, refused)
        if self.gate.take(request.broker_epoch, request.controller_id, request.controller_epoch):
            broker.generation_began()
        broker.world.invariants.request_applied(broker, request)
        if isinstance(request, LeaderAndIsrRequest):
            return self._leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return self._stop_replica(request)
        broker.view.apply(request)
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics: list[LeaderAndIsrTopicError] = []
        for topic in request.topic_states:
            errors: list[LeaderAndIsrPartitionError] = []
            for state in topic.partition_states:
                key = PartitionKey(topic.topic_name, state.partition_index)
                code = self._decide(key, topic.topic_id, state)
                if code is ErrorCode.NONE:
                    self._broker.disk.shortened.pop(key, None)
                errors.append(LeaderAndIsrPartitionError(partition_index=key.partition, error_code=code))
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=tuple(errors)))
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=tuple(topics))

    def _decide(
        self, key: PartitionKey, topic_id: uuid.UUID | None, state: LeaderAndIsrPartitionState
    ) -> ErrorCode:
        broker = self._broker
        if broker.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        decision = LeaderAndIsr(
            broker.generation,
            topic_id,
            PartitionStateRecord(
                ControllerEpoch(state.controller_epoch),
                state.leader,
                LeaderEpoch(state.leader_epoch),
                state.isr,
                state.leader_recovery_state,
            ),
            PartitionVersion(state.partition_epoch),
            state.replicas,
        )
        replica = broker.replicas.get(key) or broker.create_replica(key, topic_id)
        wanted = replica.step(decision)
        if any(isinstance(each, SetAside) for each in wanted):
            # The topic was deleted and created again while this broker was away.
            broker.close(replica)
            replica = broker.create_replica(key, topic_id)
            wanted = replica.step(decision)
        code = next((each.error_code for each in wanted if isinstance(each, RefuseWith)), ErrorCode.NONE)
        if code is ErrorCode.NONE:
            broker.world.invariants.decided(replica, topic_id)
        return code

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        errors = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=self._stop(PartitionKey(topic.topic_name, state.partition_index), state),
            )
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=tuple(errors))

    def _stop(self, key: PartitionKey, state: StopReplicaPartitionState) -> ErrorCode:
        broker = self._broker
        replica = broker.replicas.get(key)
        if replica is not None:
            for effect in replica.step(StopReplica(state.leader_epoch)):
                if isinstance(effect, RefuseWith):
                    return effect.error_code
        if state.delete_partition and key in broker.disk.logs:
            broker.world.note(broker.broker_id, f"deletes {key.topic}-{key.partition}")
            broker.disk.delete(key)
        return ErrorCode.NONE


def _refusal(request: ControllerRequest, code: ErrorCode) -> ControlResponse:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(error_code=code, topics=())
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=code, partition_errors=())
    return UpdateMetadataResponse(error_code=code)
