"""What a control request says: the partitions of a batch, as the model has them when the request leaves.

A partition that the model no longer has, or whose topic is being deleted, is named to clients as deleted
(leader -2) and gets no role. Every request carries controller, controller epoch and the generation it is
for.
Source: KIP-380; UpdateMetadataRequest, LeaderAndIsrRequest, StopReplicaRequest (Kafka 3.9).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from controller.core.brokers import broker_endpoint, endpoints_of
from controller.core.model import ClusterModel
from controller.core.outbox import Batch, LeadershipBatch, MetadataBatch, StopBatch
from controller.messages.entities import (
    INCREMENTAL,
    SECURITY_PROTOCOLS,
    ControlRequest,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey

#: Leader and leader epoch of a partition that is deleted: no epoch is too old for that (KIP-570).
DELETED: Final = -2


class Sender(NamedTuple):
    """Whose request it is, and which life of which broker it is for."""

    controller_id: int
    controller_epoch: ControllerEpoch
    generation: BrokerGeneration


def make_request(sender: Sender, model: ClusterModel, batch: Batch) -> ControlRequest:
    """Make the request that carries a batch."""
    match batch:
        case MetadataBatch(keys):
            return UpdateMetadataRequest(
                controller_id=sender.controller_id,
                controller_epoch=sender.controller_epoch,
                broker_epoch=sender.generation,
                topic_states=tuple(_metadata_topic(model, *each) for each in _by_topic(keys)),
                live_brokers=_live_brokers(model),
            )
        case LeadershipBatch(new):
            topics = tuple(_leadership_topic(model, new, *each) for each in _by_topic(_decided(model, new)))
            return LeaderAndIsrRequest(
                controller_id=sender.controller_id,
                controller_epoch=sender.controller_epoch,
                broker_epoch=sender.generation,
                type=INCREMENTAL,
                topic_states=topics,
                live_leaders=_live_leaders(model, new),
            )
        case StopBatch(keys):
            return StopReplicaRequest(
                controller_id=sender.controller_id,
                controller_epoch=sender.controller_epoch,
                broker_epoch=sender.generation,
                topic_states=tuple(_stop_topic(*each) for each in _by_topic(keys)),
            )


def _by_topic(keys: Iterable[PartitionKey]) -> Iterable[tuple[str, list[PartitionKey]]]:
    topics: dict[str, list[PartitionKey]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key)
    return topics.items()


def _decided(model: ClusterModel, keys: Iterable[PartitionKey]) -> list[PartitionKey]:
    return [key for key in keys if key in model.states and key.topic not in model.deleting]


def _topic_id(model: ClusterModel, topic: str) -> uuid.UUID | None:
    known = model.topics.get(topic)
    return None if known is None else known.record.topic_id


def _metadata_topic(model: ClusterModel, topic: str, keys: list[PartitionKey]) -> UpdateMetadataTopicState:
    return UpdateMetadataTopicState(
        topic_name=topic,
        topic_id=_topic_id(model, topic),
        partition_states=tuple(_metadata_partition(model, key) for key in keys),
    )


def _metadata_partition(model: ClusterModel, key: PartitionKey) -> UpdateMetadataPartitionState:
    known = model.states.get(key)
    replicas = model.replicas(key)
    if known is None or key.topic in model.deleting:
        return UpdateMetadataPartitionState(
            partition_index=key.partition,
            controller_epoch=ControllerEpoch(0),
            leader=DELETED,
            leader_epoch=LeaderEpoch(DELETED),
            isr=(),
            zk_version=PartitionVersion(0),
            replicas=replicas,
        )
    return UpdateMetadataPartitionState(
        partition_index=key.partition,
        controller_epoch=known.state.controller_epoch,
        leader=known.state.leader,
        leader_epoch=known.state.leader_epoch,
        isr=known.state.isr,
        zk_version=known.partition_version,
        replicas=replicas,
        offline_replicas=tuple(each for each in replicas if each not in model.brokers),
    )


def _live_brokers(model: ClusterModel) -> tuple[UpdateMetadataBroker, ...]:
    found = []
    for broker_id in sorted(model.brokers):
        record = model.brokers[broker_id].record
        protocols = record.listener_security_protocol_map
        endpoints = tuple(
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.listener,
                security_protocol=SECURITY_PROTOCOLS.get(protocols.get(each.listener, ""), 0),
            )
            for each in endpoints_of(record)
        )
        found.append(UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=record.rack))
    return tuple(found)


def _leadership_topic(
    model: ClusterModel, new: Mapping[PartitionKey, bool], topic: str, keys: list[PartitionKey]
) -> LeaderAndIsrTopicState:
    record = model.topics[topic].record
    states = []
    for key in keys:
        state, version, _ = model.states[key]
        states.append(
            LeaderAndIsrPartitionState(
                partition_index=key.partition,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                partition_epoch=version,
                replicas=record.partitions[key.partition],
                adding_replicas=record.adding_replicas.get(key.partition, ()),
                removing_replicas=record.removing_replicas.get(key.partition, ()),
                is_new=new[key],
                leader_recovery_state=state.leader_recovery_state,
            )
        )
    return LeaderAndIsrTopicState(topic_name=topic, topic_id=record.topic_id, partition_states=tuple(states))


def _live_leaders(model: ClusterModel, keys: Iterable[PartitionKey]) -> tuple[LeaderAndIsrLiveLeader, ...]:
    found = []
    for broker_id in sorted({model.states[key].state.leader for key in _decided(model, keys)}):
        broker = model.brokers.get(broker_id)
        endpoint = None if broker is None else broker_endpoint(broker.record)
        if endpoint is not None:
            found.append(
                LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            )
    return tuple(found)


def _stop_topic(topic: str, keys: list[PartitionKey]) -> StopReplicaTopicState:
    return StopReplicaTopicState(
        topic_name=topic,
        partition_states=tuple(
            StopReplicaPartitionState(
                partition_index=key.partition, leader_epoch=LeaderEpoch(DELETED), delete_partition=True
            )
            for key in keys
        ),
    )
