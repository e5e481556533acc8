"""The present registration, and what the controller asks: lead, follow, stop, what the cluster looks like.

Requests that come before a registration wait: only its generation tells a request for this life from one for
a former life. At the end of a quorum session this broker steps down everywhere. Each request passes the gate
first, and again whenever it has given way to others. What a decision means for a replica its machine says;
here it is carried out. What a request does not name stays as it is.
Source: ARCHITECTURE.md, "Life of a broker failure", "Life of a controller"; KIP-380, KIP-516, KIP-570.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.core import fences
from broker.core.partition import FollowerState, IdleState, LeaderState
from broker.core.replica import refusal_of
from broker.core.replica_effects import (
    Close,
    Follow,
    RefuseWith,
    ReplicaEffect,
    SetAside,
    Unfollow,
)
from broker.core.replica_inputs import LeaderAndIsr, SessionBegun, StopReplica
from broker.log.disk_threads import finished
from broker.log.errors import DamagedSegmentError, LogStorageError
from broker.log.partition_log import PartitionLog
from broker.replication.fetchers import Fetchers
from broker.replication.isr_writer import IsrWriter
from broker.replication.published_epoch import PublishedEpoch
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from controller.messages.entities import (
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
    refusal,
)
from controller.wire.codes import ErrorCode
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import LogEnd, PartitionStateRecord, topic_label
from quorum.platform.pace import Pace

_log = logging.getLogger(__name__)

#: Partitions that a log line names; the others are counted.
NAMED_MAX: Final = 10


class Control:
    """Applies control requests to the registry."""

    def __init__(
        self,
        registry: Registry,
        fetchers: Fetchers,
        isr_writer: IsrWriter,
        on_failure: Callable[[QuorateError], ErrorCode],
    ) -> None:
        """Change nothing before attach().

        Args:
            registry: the replicas.
            fetchers: get those that follow.
            isr_writer: writes while there is a session.
            on_failure: called when the disk refuses.
        """
        #: Asked about a controller epoch above the known one.
        self._published_epoch = PublishedEpoch()
        self._registry = registry
        self._fetchers = fetchers
        self._isr_writer = isr_writer
        self._on_failure = on_failure
        #: The shortened logs that the present registration names.
        self._named: frozenset[PartitionKey] = frozenset()
        self._attached = asyncio.Event()
        #: One request after the other, though each gives way to everything else.
        self._turn = asyncio.Lock()

    def shortened(self) -> dict[str, dict[int, LogEnd]]:
        """Return {topic id: {partition: where its log ends}} of the shortened logs, for a registration."""
        directory = self._registry.log_directory
        self._named = frozenset(directory.shortened)
        found: dict[str, dict[int, LogEnd]] = {}
        for key in directory.shortened:
            if (log := directory.logs.get(key)) is not None:
                ends = found.setdefault(topic_label(key.topic, log.topic_id), {})
                ends[key.partition] = LogEnd(log.latest_epoch, log.log_end_offset)
        return found

    def attach(self, client: Client, generation: BrokerGeneration) -> None:
        """Take up a new registration: ISRs change through this client, requests are for this generation."""
        registry = self._registry
        registry.begin_generation(generation)
        if not self._named.issuperset(registry.log_directory.shortened):
            # Damage was met after the registration was written: another one follows, which names it.
            registry.leave_generation()
        self._isr_writer.attach(client)
        self._published_epoch.attach(client)
        self._attached.set()
        for replica in registry.replicas.values():
            # A request for this generation came before the reply to the registration, and a change since.
            self._isr_writer.carry_out(replica, replica.step(SessionBegun()))

    def detach(self) -> None:
        """Note that the session is over: others lead now what this broker led."""
        self._attached.clear()
        self._isr_writer.attach(None)
        self._published_epoch.attach(None)
        self._registry.step_down()

    async def apply(self, request: ControllerRequest) -> ControlResponse:
        """Lead, follow or stop the partitions that a request names, or take over what the cluster looks like.

        One that comes before the registration waits, or is sent again.
        """
        if isinstance(request, UpdateMetadataRequest) and not self._attached.is_set():
            return refusal(request, ErrorCode.BROKER_NOT_AVAILABLE)
        await self._attached.wait()
        must_ask = self._registry.gate.must_ask(request.broker_epoch, request.controller_epoch)
        if must_ask and not await self._published_epoch.covers(request.controller_epoch):
            # It is sent again, and ends no term: the quorum may only lag.
            return refusal(request, ErrorCode.BROKER_NOT_AVAILABLE)
        if isinstance(request, UpdateMetadataRequest):
            refused = self._admit(request)
            if refused is ErrorCode.NONE:
                self._registry.view.apply(request)
            return refusal(request, refused)
        async with self._turn:
            refused = self._admit(request)
            if refused is not ErrorCode.NONE:
                return refusal(request, refused)
            try:
                if isinstance(request, LeaderAndIsrRequest):
                    return await self._lead_and_follow(request)
                return await self._stop_replicas(request)
            except LogStorageError as error:
                # It is partly applied.
                self._on_failure(error)
                return refusal(request, ErrorCode.KAFKA_STORAGE_ERROR)

    async def _lead_and_follow(self, request: LeaderAndIsrRequest) -> ControlResponse:
        directory = self._registry.log_directory
        shortened = len(directory.shortened)
        for leader in request.live_leaders:
            self._fetchers.learn(leader.broker_id, leader.host_name, leader.port)
        changed: list[Replica] = []
        try:
            answer = await self._take_roles(request, changed)
        finally:
            if changed:
                _log.info("controller epoch %d: %s", request.controller_epoch, _roles_text(changed))
        if len(directory.shortened) < shortened:
            written = directory.begin_shortened()
            await finished(written)
            written.result()
        return answer

    async def _take_roles(self, request: LeaderAndIsrRequest, changed: list[Replica]) -> ControlResponse:
        """Apply each partition of a request; adds the replicas that have another role than before."""
        topics: list[LeaderAndIsrTopicError] = []
        pace, refused = Pace(), ErrorCode.NONE
        for topic in request.topic_states:
            errors: list[LeaderAndIsrPartitionError] = []
            for state in topic.partition_states:
                key = PartitionKey(topic.topic_name, state.partition_index)
                if await self._settle_older(key, topic.topic_id) or await pace.rest():
                    refused = self._admit(request)
                if refused is not ErrorCode.NONE:
                    return refusal(request, refused)
                error_code = self._apply(key, topic.topic_id, state, changed)
                if error_code is ErrorCode.NONE:
                    # The controller gives no role before it has judged what the registration names.
                    self._registry.log_directory.shortened.pop(key, None)
                errors.append(
                    LeaderAndIsrPartitionError(partition_index=key.partition, error_code=error_code)
                )
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=tuple(errors)))
        return LeaderAndIsrResponse(error_code=refused, topics=tuple(topics))

    async def _stop_replicas(self, request: StopReplicaRequest) -> ControlResponse:
        deleted: list[str] = []
        try:
            return await self._stop_each(request, deleted)
        finally:
            if deleted:
                _log.info("deleted %s", _named(deleted[:NAMED_MAX], len(deleted)))

    async def _stop_each(self, request: StopReplicaRequest, deleted: list[str]) -> ControlResponse:
        """Stop each replica of a request; adds the names of the logs that were deleted."""
        errors: list[StopReplicaPartitionError] = []
        pace, refused = Pace(), ErrorCode.NONE
        for topic in request.topic_states:
            for state in topic.partition_states:
                if await pace.rest():
                    refused = self._admit(request)
                if refused is not ErrorCode.NONE:
                    return refusal(request, refused)
                key = PartitionKey(topic.topic_name, state.partition_index)
                error_code = await self._stop(key, state, deleted)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=key.topic, partition_index=key.partition, error_code=error_code
                    )
                )
        return StopReplicaResponse(error_code=refused, partition_errors=tuple(errors))

    def _admit(self, request: ControllerRequest) -> ErrorCode:
        return self._registry.admit(request.broker_epoch, request.controller_id, request.controller_epoch)

    async def _settle_older(self, key: PartitionKey, topic_id: uuid.UUID | None) -> bool:
        """Wait until a log of an older topic of that name can be set aside; True if there is one."""
        log = self._registry.log_directory.logs.get(key)
        if log is None or not fences.is_of_another_topic(topic_id, log.topic_id):
            return False
        await log.settled()
        return True

    def _apply(
        self,
        key: PartitionKey,
        topic_id: uuid.UUID | None,
        state: LeaderAndIsrPartitionState,
        changed: list[Replica],
    ) -> ErrorCode:
        registry = self._registry
        decision = decision_of(registry.gate.generation, topic_id, state)
        replica = registry.replicas.get(key)
        if replica is None:
            if (refused := refusal_of(registry.broker_id, decision)) is not ErrorCode.NONE:
                return refused
            replica = registry.create_replica(key, topic_id)
        before = replica.role
        effects = replica.step(decision)
        error_code = self.carry_out(replica, effects)
        if SetAside() in effects:
            replica = registry.create_replica(key, topic_id)
            error_code = self.carry_out(replica, replica.step(decision))
        if replica.role is not before:
            changed.append(replica)
        return error_code

    def carry_out(self, replica: Replica, effects: Iterable[ReplicaEffect]) -> ErrorCode:
        """Do what a decision about a replica asks for; returns its answer."""
        error_code = ErrorCode.NONE
        for effect in effects:
            match effect:
                case Follow():
                    self._fetchers.follow(replica)
                case Unfollow():
                    self._fetchers.leave(replica.key)
                case Close() | SetAside():
                    self._registry.close(replica)
                case RefuseWith(refused):
                    error_code = refused
        return error_code

    async def _stop(
        self, key: PartitionKey, state: StopReplicaPartitionState, deleted: list[str]
    ) -> ErrorCode:
        replica = self._registry.replicas.get(key)
        if replica is not None:
            refused = self.carry_out(replica, replica.step(StopReplica(state.leader_epoch)))
            if refused is not ErrorCode.NONE:
                return refused
        log = self._registry.log_directory.logs.get(key)
        if state.delete_partition and log is not None:
            await log.settled()
            self._registry.log_directory.delete(key)
            deleted.append(f"{key.topic}-{key.partition}")
        return ErrorCode.NONE

    async def reopen(self, log: PartitionLog, damage: DamagedSegmentError) -> bool:
        """Cut a damaged log as a start would; no role that was decided before counts then.

        Returns False if the log is gone.
        """
        registry, key = self._registry, log.key
        async with self._turn:
            if registry.log_directory.logs.get(key) is not log:
                return False
            if (replica := registry.replicas.get(key)) is not None:
                self.close(replica)
            await log.settled()
            await registry.log_directory.reopen(key, registry.settings_of(key.topic), damage)
            registry.open_replica(key)
            registry.leave_generation()
            await registry.write_high_watermarks()
        return True

    def close(self, replica: Replica) -> None:
        """Let a replica go; its log stays, with the high watermark that the replica had."""
        self.carry_out(replica, replica.step(StopReplica()))


def decision_of(
    generation: BrokerGeneration, topic_id: uuid.UUID | None, state: LeaderAndIsrPartitionState
) -> LeaderAndIsr:
    """Return what a request says of one partition, for this broker's present generation."""
    record = PartitionStateRecord(
        ControllerEpoch(state.controller_epoch),
        state.leader,
        LeaderEpoch(state.leader_epoch),
        state.isr,
        state.leader_recovery_state,
    )
    version = PartitionVersion(state.partition_epoch)
    return LeaderAndIsr(generation, topic_id, record, version, tuple(state.replicas))


def _roles_text(replicas: Sequence[Replica]) -> str:
    """Say in one line which roles replicas have; the first of each role are named."""
    texts: list[str] = []
    for kind, words in ((LeaderState, "leads"), (FollowerState, "follows"), (IdleState, "no leader for")):
        found = [each for each in replicas if isinstance(each.role, kind)]
        if found:
            texts.append(f"{words} {_named([_role_text(each) for each in found[:NAMED_MAX]], len(found))}")
    return "; ".join(texts)


def _role_text(replica: Replica) -> str:
    key, role = replica.key, replica.role
    place = f"{key.topic}-{key.partition} in epoch {replica.leader_epoch}"
    match role:
        case LeaderState():
            return f"{place} from offset {role.epoch_start_offset} with ISR {list(role.isr)}"
        case FollowerState():
            return f"{place} of broker {role.leader} from offset {replica.log.log_end_offset}"
    return place


def _named(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more
