"""The control requests and their answers, to bytes and back."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from controller.messages.entities import (
    CONTROL_VERSIONS,
    INCREMENTAL,
    LEADER_AND_ISR,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlRequest,
    ControlResponse,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
    RemainingPartition,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from controller.wire.decoding import MalformedMessageError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion

TOPIC_ID = uuid.UUID("8d2c9a1e-6e7f-4f0a-9d3b-000000000001")

LEADER_AND_ISR_REQUEST = LeaderAndIsrRequest(
    controller_id=1,
    controller_epoch=ControllerEpoch(7),
    broker_epoch=BrokerGeneration(4_294_967_311),
    type=INCREMENTAL,
    topic_states=(
        LeaderAndIsrTopicState(
            topic_name="orders",
            topic_id=TOPIC_ID,
            partition_states=(
                LeaderAndIsrPartitionState(
                    partition_index=0,
                    controller_epoch=ControllerEpoch(6),
                    leader=2,
                    leader_epoch=LeaderEpoch(3),
                    isr=(2, 1),
                    partition_epoch=PartitionVersion(9),
                    replicas=(2, 1, 3),
                    adding_replicas=(3,),
                    removing_replicas=(1,),
                    is_new=True,
                    leader_recovery_state=1,
                ),
            ),
        ),
    ),
    live_leaders=(LeaderAndIsrLiveLeader(broker_id=2, host_name="b2", port=9192),),
)
UPDATE_METADATA_REQUEST = UpdateMetadataRequest(
    controller_id=1,
    controller_epoch=ControllerEpoch(7),
    broker_epoch=BrokerGeneration(15),
    topic_states=(
        UpdateMetadataTopicState(
            topic_name="orders",
            topic_id=TOPIC_ID,
            partition_states=(
                UpdateMetadataPartitionState(
                    partition_index=1,
                    controller_epoch=ControllerEpoch(7),
                    leader=-1,
                    leader_epoch=LeaderEpoch(4),
                    isr=(2,),
                    zk_version=PartitionVersion(3),
                    replicas=(2, 3),
                    offline_replicas=(2,),
                ),
            ),
        ),
    ),
    live_brokers=(
        UpdateMetadataBroker(
            id=3,
            endpoints=(UpdateMetadataEndpoint(port=9092, host="b3", listener="CLIENT", security_protocol=0),),
            rack=None,
        ),
    ),
)
STOP_REPLICA_REQUEST = StopReplicaRequest(
    controller_id=1,
    controller_epoch=ControllerEpoch(7),
    broker_epoch=BrokerGeneration(15),
    topic_states=(
        StopReplicaTopicState(
            topic_name="orders",
            partition_states=(
                StopReplicaPartitionState(
                    partition_index=0, leader_epoch=LeaderEpoch(-2), delete_partition=True
                ),
            ),
        ),
    ),
)
REQUESTS: list[ControlRequest] = [
    LEADER_AND_ISR_REQUEST,
    UPDATE_METADATA_REQUEST,
    STOP_REPLICA_REQUEST,
    ControlledShutdownRequest(broker_id=1, broker_epoch=BrokerGeneration(15)),
]
RESPONSES: list[ControlResponse] = [
    LeaderAndIsrResponse(
        error_code=0,
        topics=(
            LeaderAndIsrTopicError(
                topic_id=TOPIC_ID,
                partition_errors=(LeaderAndIsrPartitionError(partition_index=0, error_code=56),),
            ),
        ),
    ),
    UpdateMetadataResponse(error_code=77),
    StopReplicaResponse(
        error_code=0,
        partition_errors=(StopReplicaPartitionError(topic_name="orders", partition_index=0, error_code=74),),
    ),
    ControlledShutdownResponse(
        error_code=0, remaining_partitions=(RemainingPartition(topic_name="orders", partition_index=0),)
    ),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_request_is_read_as_it_was_written(request_: ControlRequest) -> None:
    body = encode_request(request_)
    assert decode_request(request_.__api_key__, request_.__version__, body) == request_
    assert decode_request(request_.__api_key__, request_.__version__, memoryview(body)) == request_


@pytest.mark.parametrize("response", RESPONSES, ids=lambda each: type(each).__name__)
def test_an_answer_is_read_as_it_was_written(response: ControlResponse) -> None:
    body = encode_response(response)
    assert decode_response(response.__api_key__, response.__version__, body) == response


def test_all_messages_share_versions_of_kafka_3_9() -> None:
    assert CONTROL_VERSIONS == {4: 6, 5: 3, 6: 7, 7: 3}
    for message in (*REQUESTS, *RESPONSES):
        assert message.__version__ == CONTROL_VERSIONS[message.__api_key__]
        assert message.__flexible__


def test_other_keys_and_versions_are_refused() -> None:
    for api_key, api_version in ((3, 12), (LEADER_AND_ISR, 7), (LEADER_AND_ISR, 5)):
        with pytest.raises(MalformedMessageError, match=f"key {api_key} in version {api_version}"):
            decode_request(api_key, api_version, b"")
        with pytest.raises(MalformedMessageError):
            decode_response(api_key, api_version, b"")


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: type(each).__name__)
def test_a_cut_request_is_refused(request_: ControlRequest) -> None:
    body = encode_request(request_)
    for length in range(len(body)):
        with pytest.raises(MalformedMessageError):
            decode_request(request_.__api_key__, request_.__version__, body[:length])


@pytest.mark.parametrize(
    ("topic", "partition"),
    [
        ("../escaped", 0),
        ("..", 0),
        ("", 0),
        ("a/b", 0),
        ("nul\0", 0),
        ("a" * 250, 0),
        ("a", -1),
        ("a" * 249, 100_000),
    ],
)
def test_a_name_that_no_partition_can_have_is_refused(topic: str, partition: int) -> None:
    state = StopReplicaPartitionState(
        partition_index=partition, leader_epoch=LeaderEpoch(0), delete_partition=True
    )
    stop = replace(
        STOP_REPLICA_REQUEST,
        topic_states=(StopReplicaTopicState(topic_name=topic, partition_states=(state,)),),
    )
    lead = _renamed(LEADER_AND_ISR_REQUEST, topic, partition)
    update = _renamed(UPDATE_METADATA_REQUEST, topic, partition)
    for request in (stop, lead, update):
        with pytest.raises(MalformedMessageError, match=f"^{type(request).__name__}: .*[Tt]opic"):
            decode_request(request.__api_key__, request.__version__, encode_request(request))


def _renamed(request: Any, topic: str, partition: int) -> Any:
    state = replace(request.topic_states[0].partition_states[0], partition_index=partition)
    row = replace(request.topic_states[0], topic_name=topic, partition_states=(state,))
    return replace(request, topic_states=(row,))
