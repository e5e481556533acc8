"""What a control request says: the partitions of a batch, as the model has them when the request leaves.

The bytes of a partition are packed once for each change and shared by all receivers. A partition that the
model no longer has, or whose topic is being deleted, is named to clients as deleted (leader -2) and gets no
role. Every request carries controller, controller epoch and the generation it is for.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-380; Kafka's control requests (3.9).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from controller.core.brokers import broker_endpoint, endpoints_of
from controller.core.model import ClusterModel, KnownState
from controller.core.outbox import Batch, LeadershipBatch, MetadataBatch, StopBatch
from controller.messages import packing
from controller.messages.entities import (
    INCREMENTAL,
    LEADER_AND_ISR,
    SECURITY_PROTOCOLS,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrLiveLeader,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
)
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey, by_topic
from quorum.metadata.records import TopicRecord

#: Leader and leader epoch of a partition that is deleted: no epoch is too old for that (KIP-570).
DELETED: Final = -2
#: Packed partitions that are kept beyond those that the model has.
SPARE_MAX: Final = 10_000


class Sender(NamedTuple):
    """Whose request it is, and which life of which broker it is for."""

    controller_id: int
    controller_epoch: ControllerEpoch
    generation: BrokerGeneration


class Body(NamedTuple):
    """A request without its header."""

    api_key: int
    body: bytes


class _Packed(NamedTuple):
    """Packed bytes and what they were made from, compared by identity."""

    known: KnownState
    record: TopicRecord
    is_new: bool
    packed: bytes


class Bodies:
    """Makes the requests of one term."""

    def __init__(self, model: ClusterModel) -> None:
        """Take what is said from a model."""
        self._model = model
        self._leadership: dict[PartitionKey, _Packed] = {}
        self._metadata: dict[PartitionKey, _Packed] = {}
        #: The live brokers for which _metadata holds: they decide which replicas are offline.
        self._live: tuple[int, ...] = ()

    def make(self, sender: Sender, batch: Batch) -> Body:
        """Make the request that carries a batch."""
        self._forget_outdated()
        match batch:
            case MetadataBatch(keys):
                topics = [
                    packing.pack_topic(topic, self.topic_id(topic), [self._metadata_of(key) for key in named])
                    for topic, named in by_topic(keys).items()
                ]
                live_brokers = packing.pack_live_brokers(self._live_brokers())
                return Body(UPDATE_METADATA, packing.pack_update_metadata(*sender, topics, live_brokers))
            case LeadershipBatch(new):
                known, deleting = self._model.states, self._model.deleting
                states = {key: known[key] for key in new if key in known and key.topic not in deleting}
                return self._roles(sender, states, new)
            case StopBatch(stops):
                topics = [
                    packing.pack_stop_topic(
                        topic,
                        [
                            packing.pack_stop(
                                key.partition, self._stop_epoch(key), delete_partition=stops[key]
                            )
                            for key in named
                        ],
                    )
                    for topic, named in by_topic(stops).items()
                ]
                return Body(STOP_REPLICA, packing.pack_stop_replica(*sender, topics))

    def _forget_outdated(self) -> None:
        live = tuple(self._model.brokers)
        if live != self._live:
            self._live = live
            self._metadata.clear()
        for cache in (self._leadership, self._metadata):
            if len(cache) > len(self._model.states) + SPARE_MAX:
                cache.clear()

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """Return the id of a topic; None if the topic is unknown, or has none."""
        known = self._model.topics.get(topic)
        return None if known is None else known.record.topic_id

    def _stop_epoch(self, key: PartitionKey) -> LeaderEpoch:
        known = self._model.states.get(key)
        if known is None or key.topic in self._model.deleting:
            return LeaderEpoch(DELETED)
        return known.state.leader_epoch

    def _roles(
        self, sender: Sender, states: Mapping[PartitionKey, KnownState], new: Mapping[PartitionKey, bool]
    ) -> Body:
        topics = [
            packing.pack_topic(
                topic,
                self.topic_id(topic),
                [self._leadership_of(key, states[key], new[key]) for key in named],
            )
            for topic, named in by_topic(states).items()
        ]
        leaders = packing.pack_live_leaders(self._live_leaders(each.state.leader for each in states.values()))
        return Body(LEADER_AND_ISR, packing.pack_leader_and_isr(*sender, INCREMENTAL, topics, leaders))

    def _leadership_of(self, key: PartitionKey, known: KnownState, is_new: bool) -> bytes:
        record = self._model.topics[key.topic].record
        kept = self._leadership.get(key)
        if kept is not None and kept.known is known and kept.record is record and kept.is_new == is_new:
            return kept.packed
        state, move = known.state, self._model.move(key)
        holders = self._model.holders(key)
        packed = packing.pack_leadership(
            key.partition,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            known.partition_version,
            holders,
            adding_replicas=() if move is None or holders == move.target else move.adding,
            removing_replicas=() if move is None or holders == move.target else move.removing,
            is_new=is_new,
            leader_recovery_state=state.leader_recovery_state,
        )
        self._leadership[key] = _Packed(known, record, is_new, packed)
        return packed

    def _metadata_of(self, key: PartitionKey) -> bytes:
        model = self._model
        known, replicas = model.states.get(key), model.holders(key)
        if known is None or key.topic in model.deleting:
            return packing.pack_metadata(
                key.partition,
                ControllerEpoch(0),
                DELETED,
                LeaderEpoch(DELETED),
                (),
                PartitionVersion(0),
                replicas,
            )
        record = model.topics[key.topic].record
        kept = self._metadata.get(key)
        if kept is not None and kept.known is known and kept.record is record:
            return kept.packed
        state = known.state
        packed = packing.pack_metadata(
            key.partition,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            state.isr,
            known.partition_version,
            replicas,
            offline_replicas=[each for each in replicas if each not in model.brokers],
        )
        self._metadata[key] = _Packed(known, record, False, packed)
        return packed

    def _live_brokers(self) -> list[UpdateMetadataBroker]:
        found: list[UpdateMetadataBroker] = []
        for broker_id, (_, record) in sorted(self._model.brokers.items()):
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
        return found

    def _live_leaders(self, leaders: Iterable[int]) -> list[LeaderAndIsrLiveLeader]:
        found: list[LeaderAndIsrLiveLeader] = []
        for broker_id in sorted(set(leaders)):
            broker = self._model.brokers.get(broker_id)
            endpoint = None if broker is None else broker_endpoint(broker.record)
            if endpoint is not None:
                found.append(
                    LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
                )
        return found
