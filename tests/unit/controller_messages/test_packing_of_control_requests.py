"""Packing by hand gives, byte for byte, what the entity encoder gives."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from controller.messages.entities import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
    encode_request,
    encode_response,
)
from controller.messages.packing import (
    pack_leader_and_isr,
    pack_leadership,
    pack_live_brokers,
    pack_live_leaders,
    pack_metadata,
    pack_stop,
    pack_stop_replica,
    pack_stop_topic,
    pack_topic,
    pack_update_metadata,
)
from controller.wire.decoding import decode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from tests.support.kio_samples import encoded

T = TypeVar("T")

INT8 = st.integers(-128, 127)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.one_of(st.text(max_size=10), st.sampled_from(["a" * 126, "a" * 127, "b" * 249, "ü" * 9000]))
BROKERS = st.one_of(
    st.lists(INT32, max_size=5).map(tuple),
    st.integers(125, 129).map(lambda count: tuple(range(count))),
)
#: uuid.UUID(int=0) stands for None on the wire.
IDS = st.one_of(st.none(), st.uuids().filter(lambda each: each.int != 0))
CONTROLLER_EPOCHS = INT32.map(ControllerEpoch)
GENERATIONS = INT64.map(BrokerGeneration)
LEADER_EPOCHS = INT32.map(LeaderEpoch)
VERSIONS = INT32.map(PartitionVersion)


def tuples(items: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(items, max_size=3).map(tuple)


LEADERSHIP = st.builds(
    LeaderAndIsrPartitionState,
    partition_index=INT32,
    controller_epoch=CONTROLLER_EPOCHS,
    leader=INT32,
    leader_epoch=LEADER_EPOCHS,
    isr=BROKERS,
    partition_epoch=VERSIONS,
    replicas=BROKERS,
    adding_replicas=BROKERS,
    removing_replicas=BROKERS,
    is_new=st.booleans(),
    leader_recovery_state=INT8,
)
LEADER_AND_ISR = st.builds(
    LeaderAndIsrRequest,
    controller_id=INT32,
    controller_epoch=CONTROLLER_EPOCHS,
    broker_epoch=GENERATIONS,
    type=INT8,
    topic_states=tuples(
        st.builds(LeaderAndIsrTopicState, topic_name=TEXT, topic_id=IDS, partition_states=tuples(LEADERSHIP))
    ),
    live_leaders=tuples(st.builds(LeaderAndIsrLiveLeader, broker_id=INT32, host_name=TEXT, port=INT32)),
)
METADATA = st.builds(
    UpdateMetadataPartitionState,
    partition_index=INT32,
    controller_epoch=CONTROLLER_EPOCHS,
    leader=INT32,
    leader_epoch=LEADER_EPOCHS,
    isr=BROKERS,
    zk_version=VERSIONS,
    replicas=BROKERS,
    offline_replicas=BROKERS,
)
UPDATE_METADATA = st.builds(
    UpdateMetadataRequest,
    controller_id=INT32,
    controller_epoch=CONTROLLER_EPOCHS,
    broker_epoch=GENERATIONS,
    topic_states=tuples(
        st.builds(UpdateMetadataTopicState, topic_name=TEXT, topic_id=IDS, partition_states=tuples(METADATA))
    ),
    live_brokers=tuples(
        st.builds(
            UpdateMetadataBroker,
            id=INT32,
            endpoints=tuples(
                st.builds(
                    UpdateMetadataEndpoint, port=INT32, host=TEXT, listener=TEXT, security_protocol=INT16
                )
            ),
            rack=st.one_of(st.none(), TEXT),
        )
    ),
)
STOP_REPLICA = st.builds(
    StopReplicaRequest,
    controller_id=INT32,
    controller_epoch=CONTROLLER_EPOCHS,
    broker_epoch=GENERATIONS,
    topic_states=tuples(
        st.builds(
            StopReplicaTopicState,
            topic_name=TEXT,
            partition_states=tuples(
                st.builds(
                    StopReplicaPartitionState,
                    partition_index=INT32,
                    leader_epoch=LEADER_EPOCHS,
                    delete_partition=st.booleans(),
                )
            ),
        )
    ),
)


@given(LEADER_AND_ISR)
def test_leader_and_isr_is_packed_as_its_entity(request: LeaderAndIsrRequest) -> None:
    topics = [
        pack_topic(
            topic.topic_name,
            topic.topic_id,
            [
                pack_leadership(
                    each.partition_index,
                    each.controller_epoch,
                    each.leader,
                    each.leader_epoch,
                    each.isr,
                    each.partition_epoch,
                    each.replicas,
                    adding_replicas=each.adding_replicas,
                    removing_replicas=each.removing_replicas,
                    is_new=each.is_new,
                    leader_recovery_state=each.leader_recovery_state,
                )
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    body = pack_leader_and_isr(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        request.type,
        topics,
        pack_live_leaders(request.live_leaders),
    )
    assert body == encode_request(request)
    assert decode(LeaderAndIsrRequest, body) == request


@given(UPDATE_METADATA)
def test_update_metadata_is_packed_as_its_entity(request: UpdateMetadataRequest) -> None:
    topics = [
        pack_topic(
            topic.topic_name,
            topic.topic_id,
            [
                pack_metadata(
                    each.partition_index,
                    each.controller_epoch,
                    each.leader,
                    each.leader_epoch,
                    each.isr,
                    each.zk_version,
                    each.replicas,
                    offline_replicas=each.offline_replicas,
                )
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    body = pack_update_metadata(
        request.controller_id,
        request.controller_epoch,
        request.broker_epoch,
        topics,
        pack_live_brokers(request.live_brokers),
    )
    assert body == encode_request(request)
    assert decode(UpdateMetadataRequest, body) == request


@given(STOP_REPLICA)
def test_stop_replica_is_packed_as_its_entity(request: StopReplicaRequest) -> None:
    topics = [
        pack_stop_topic(
            topic.topic_name,
            [
                pack_stop(each.partition_index, each.leader_epoch, delete_partition=each.delete_partition)
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    body = pack_stop_replica(request.controller_id, request.controller_epoch, request.broker_epoch, topics)
    assert body == encode_request(request)
    assert decode(StopReplicaRequest, body) == request


@given(
    st.builds(
        LeaderAndIsrResponse,
        error_code=INT16,
        topics=tuples(
            st.builds(
                LeaderAndIsrTopicError,
                topic_id=IDS,
                partition_errors=st.one_of(
                    tuples(st.builds(LeaderAndIsrPartitionError, partition_index=INT32, error_code=INT16)),
                    st.just((LeaderAndIsrPartitionError(partition_index=7, error_code=74),) * 127),
                ),
            )
        ),
    )
)
def test_an_answer_about_roles_is_packed_as_its_entity(response: LeaderAndIsrResponse) -> None:
    body = encode_response(response)
    assert body == encoded(response)
    assert decode(LeaderAndIsrResponse, body) == response
