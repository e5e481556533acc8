"""Bodies by kio's schema: what a version has is written, what it lacks is dropped, garbage is refused."""

import io
import uuid
from typing import Any

import pytest
from kio.serial import entity_writer

from broker.server.requests import advertised
from broker.server.table import FOR_BROKERS, FOR_CLIENTS
from broker.wire.codec import (
    REQUEST_ITEMS_MAX,
    STEP_ROWS_MAX,
    LongResponse,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    is_flexible,
    milliseconds,
)
from controller.core.outbox import REQUEST_PARTITIONS_MAX
from controller.messages.entities import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from controller.messages.entities import encode_request as encode_control_request
from controller.wire.apis import ApiKey
from controller.wire.decoding import MalformedMessageError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion

METADATA: dict[str, Any] = {
    "brokers": [{"node_id": 1, "host": "h", "port": 9, "rack": "r"}],
    "cluster_id": "c",
    "controller_id": 1,
    "topics": [
        {
            "error_code": 3,
            "name": "t",
            "topic_id": uuid.UUID(int=7),
            "partitions": [
                {
                    "error_code": 5,
                    "partition_index": 0,
                    "leader_id": -1,
                    "leader_epoch": 4,
                    "replica_nodes": (1, 2),
                    "isr_nodes": [1],
                    "offline_replicas": (2,),
                }
            ],
        }
    ],
}


@pytest.mark.parametrize("version", range(13))
def test_one_set_of_values_is_written_in_every_version(version: int) -> None:
    found = decode_response(ApiKey.METADATA, version, encode_response(ApiKey.METADATA, version, METADATA))
    assert (found.brokers[0].node_id, found.topics[0].name, found.topics[0].error_code) == (1, "t", 3)
    assert found.topics[0].partitions[0].isr_nodes == (1,)
    assert hasattr(found, "cluster_id") == (version >= 2)
    assert getattr(found.topics[0], "topic_id", None) == (uuid.UUID(int=7) if version >= 10 else None)


@pytest.mark.parametrize("version", range(13))
@pytest.mark.parametrize("count", [0, 1, 2, STEP_ROWS_MAX + 1])
def test_a_response_in_steps_is_the_same_bytes(version: int, count: int) -> None:
    (topic,) = METADATA["topics"]
    topics = [{**topic, "partitions": topic["partitions"] * count} for _ in range(count)]
    whole = encode_response(ApiKey.METADATA, version, {**METADATA, "topics": topics})
    lazily = [{**each, "partitions": (row for row in each["partitions"])} for each in topics]
    for given in (topics, (row for row in lazily)):
        response = LongResponse(ApiKey.METADATA, version, {**METADATA, "topics": given})
        steps = sum(1 for _ in response.steps())
        assert b"".join(response.parts) == whole
        assert steps >= count * count if count > STEP_ROWS_MAX else steps >= 1 or count == 0


def test_an_encoded_entity_equals_what_kio_writes() -> None:
    body = encode_response(ApiKey.METADATA, 12, METADATA)
    entity = decode_response(ApiKey.METADATA, 12, body)
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    assert buffer.getvalue() == body


def test_durations_are_milliseconds() -> None:
    values: dict[str, object] = {"transactional_id": None, "acks": -1, "timeout": 1234, "topic_data": []}
    found = decode_request(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, values))
    assert milliseconds(found.timeout) == 1234


def test_a_missing_value_names_its_field() -> None:
    with pytest.raises(KeyError, match=r"ProduceRequest\.acks"):
        encode_request(ApiKey.PRODUCE, 9, {"transactional_id": None})


@pytest.mark.parametrize("body", [b"", b"\xff", b"\xff\xff\xff\xff\x7f", b"\x05\x01"])
def test_garbage_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_request(ApiKey.METADATA, 12, body)


@pytest.mark.parametrize("version", [1, 12])
def test_a_request_has_at_most_twenty_thousand_items(version: int) -> None:
    row = {"name": "t", "topic_id": None}
    flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    most = encode_request(ApiKey.METADATA, version, {"topics": [row] * REQUEST_ITEMS_MAX, **flags})
    assert len(decode_request(ApiKey.METADATA, version, most).topics) == REQUEST_ITEMS_MAX
    more = encode_request(ApiKey.METADATA, version, {"topics": [row] * (REQUEST_ITEMS_MAX + 1), **flags})
    with pytest.raises(MalformedMessageError, match="more are allowed"):
        decode_request(ApiKey.METADATA, version, more)


def test_items_of_inner_arrays_count_as_well() -> None:
    partitions = [{"partition_index": number, "timestamp": -1} for number in range(300)]
    topics = [{"name": "t", "partitions": partitions}] * 70
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    with pytest.raises(MalformedMessageError, match="partitions has 300 items"):
        decode_request(ApiKey.LIST_OFFSETS, 4, encode_request(ApiKey.LIST_OFFSETS, 4, values))


def test_eight_numbers_count_as_one_item() -> None:
    most = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": range(8 * REQUEST_ITEMS_MAX - 8)}]}
    assert decode_request(ApiKey.OFFSET_FETCH, 1, encode_request(ApiKey.OFFSET_FETCH, 1, most)).topics
    more = {**most, "topics": [{"name": "t", "partition_indexes": range(8 * REQUEST_ITEMS_MAX)}]}
    with pytest.raises(MalformedMessageError, match="more are allowed"):
        decode_request(ApiKey.OFFSET_FETCH, 1, encode_request(ApiKey.OFFSET_FETCH, 1, more))


def test_a_control_request_of_ten_thousand_partitions_fits_its_frame() -> None:
    # The worst case: a topic for each partition, the longest names, many replicas, a large cluster.
    replicas = tuple(range(1000, 1010))
    epochs: dict[str, Any] = {"controller_epoch": ControllerEpoch(1), "leader_epoch": LeaderEpoch(1)}
    common: dict[str, Any] = {"partition_index": 0, "leader": 1, "isr": replicas, "replicas": replicas}
    moved: dict[str, Any] = {"adding_replicas": replicas, "removing_replicas": replicas}
    state = LeaderAndIsrPartitionState(**common, **epochs, partition_epoch=PartitionVersion(1), **moved)
    view = UpdateMetadataPartitionState(
        **common, **epochs, zk_version=PartitionVersion(1), offline_replicas=replicas
    )
    named: dict[str, Any] = {"topic_name": "t" * 249, "topic_id": uuid.UUID(int=1)}
    count = REQUEST_PARTITIONS_MAX
    endpoint = UpdateMetadataEndpoint(port=9092, host="h" * 255, listener="CLIENT", security_protocol=0)
    brokers = [UpdateMetadataBroker(id=each, endpoints=(endpoint,) * 2, rack=None) for each in range(1000)]
    sender: dict[str, Any] = {
        "controller_id": 1,
        "controller_epoch": ControllerEpoch(1),
        "broker_epoch": BrokerGeneration(1),
    }
    leaderships = (LeaderAndIsrTopicState(**named, partition_states=(state,)),) * count
    views = (UpdateMetadataTopicState(**named, partition_states=(view,)),) * count
    sizes = {
        ApiKey.LEADER_AND_ISR: encode_control_request(
            LeaderAndIsrRequest(**sender, type=0, topic_states=leaderships, live_leaders=())
        ),
        ApiKey.UPDATE_METADATA: encode_control_request(
            UpdateMetadataRequest(**sender, topic_states=views, live_brokers=tuple(brokers))
        ),
    }
    for api_key, body in sizes.items():
        assert len(body) < (FOR_BROKERS[api_key].row.frame_bytes_max or 0)


def test_flexible_versions_are_those_of_kafka() -> None:
    assert [is_flexible(ApiKey.METADATA, version) for version in (8, 9)] == [False, True]
    assert is_flexible(ApiKey.LEADER_AND_ISR, 6)
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)
    assert not is_flexible(999, 0)


def test_produce_is_advertised_from_zero() -> None:
    rows = {row["api_key"]: (row["min_version"], row["max_version"]) for row in advertised(FOR_CLIENTS)}
    assert rows[ApiKey.PRODUCE] == (0, 10)
    assert rows[ApiKey.FETCH] == (4, 17)


def test_control_requests_are_on_the_broker_listener_alone() -> None:
    assert {4, 5, 6} <= set(FOR_BROKERS)
    assert not {4, 5, 6, 7} & set(FOR_CLIENTS)
