"""Typed records: Kafka's JSON formats, and refusals that name path, field and value."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRecord,
    ControllerRecord,
    GenerationRecord,
    IncarnationRecord,
    LogEnd,
    PartitionStateRecord,
    TopicRecord,
    decode_cluster_id,
    decode_controller_epoch,
    encode_cluster_id,
    encode_controller_epoch,
    encode_topic_id,
)
from tests.support.metadata_records import partition_state

KEY = PartitionKey("orders", 3)
#: As Kafka 3.9 writes them.
KAFKA_CONTROLLER = b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
KAFKA_BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://localhost:9092"],"jmx_port":-1,"port":9092,"host":"localhost","version":5,'
    b'"timestamp":"1700000000000"}'
)
KAFKA_TOPIC = (
    b'{"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"XbLO1mTzSMGJ0kFvBcxAGw","adding_replicas":{},'
    b'"removing_replicas":{},"version":3}'
)
KAFKA_STATE = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'

BROKER = BrokerRecord(
    host="localhost",
    port=9092,
    endpoints=("PLAINTEXT://localhost:9092",),
    listener_security_protocol_map={"PLAINTEXT": "PLAINTEXT"},
    timestamp_ms=1_700_000_000_000,
    rack="r1",
    incarnation="0123456789abcdef0123456789abcdef",
    features={"metadata.version": (1, 7)},
)


def test_shortened_logs_are_written_and_read() -> None:
    topic_id = encode_topic_id(uuid.UUID(int=5))
    named = {topic_id: {0: LogEnd(3, 10), 12: LogEnd(-1, 0)}, "old": {4_000: LogEnd(0, 2**40)}}
    record = replace(BROKER, shortened=named)
    assert BrokerRecord.decode(1, record.encode()) == record
    assert json.loads(record.encode())["shortened"][topic_id] == {"0": [3, 10], "12": [-1, 0]}
    assert b"shortened" not in BROKER.encode()
    state = replace(partition_state(1, NO_LEADER, 5, (2,)), shortened={1: LogEnd(4, 9)})
    assert PartitionStateRecord.decode(KEY, state.encode()) == state
    assert state.encode().endswith(b',"isr":[2],"shortened":{"1":[4,9]}}')
    judged = IncarnationRecord("a" * 32, 7, {"apart": "b" * 32, "other": ""})
    assert IncarnationRecord.decode(1, judged.encode()) == judged
    assert IncarnationRecord.decode(1, IncarnationRecord("a").encode()).generation == -1


@pytest.mark.parametrize(
    ("shortened", "field"),
    [
        ([], "shortened"),
        ({"t": []}, "shortened.t"),
        ({"t": {"x": [1, 2]}}, "shortened.t.x"),
        ({"t": {"01": [1, 2]}}, "shortened.t.01"),
        ({"t": {"1": [1]}}, "shortened.t.1"),
        ({"t": {"1": [1, "2"]}}, "shortened.t.1"),
        ({"t": {"1": [1, -2]}}, "shortened.t.1"),
    ],
)
def test_a_malformed_list_of_shortened_logs_is_refused(shortened: object, field: str) -> None:
    value = {**json.loads(BROKER.encode()), "shortened": shortened}
    with pytest.raises(MetadataDecodeError) as raised:
        BrokerRecord.decode(1, json.dumps(value).encode())
    assert field in str(raised.value)


def test_what_kafka_writes_is_read() -> None:
    assert ControllerRecord.decode(KAFKA_CONTROLLER) == ControllerRecord(1, 1_700_000_000_000)
    broker = BrokerRecord.decode(1, KAFKA_BROKER)
    assert (broker.host, broker.port, broker.rack, broker.incarnation) == ("localhost", 9092, None, None)
    topic = TopicRecord.decode("orders", KAFKA_TOPIC)
    assert topic.partitions == {0: (1, 2), 1: (2, 1)}
    assert topic.topic_id is not None
    assert encode_topic_id(topic.topic_id) == "XbLO1mTzSMGJ0kFvBcxAGw"
    assert PartitionStateRecord.decode(KEY, KAFKA_STATE) == partition_state(1, 2, 5, (2, 1))


def test_the_seed_form_of_the_controller_is_read_too() -> None:
    assert ControllerRecord.decode(b'{"version":1,"brokerid":0,"timestamp":"1593330804078"}').broker_id == 0
    assert ControllerRecord.decode(b'{"version":1,"brokerid":-1,"timestamp":"1"}').broker_id == -1


def test_older_topics_have_no_id_and_no_reassignment() -> None:
    old = TopicRecord.decode("t", b'{"version":1,"partitions":{"0":[1]}}')
    assert old == TopicRecord(None, {0: (1,)})
    assert json.loads(old.encode())["version"] == 2


def test_records_write_what_kafka_reads() -> None:
    assert json.loads(ControllerRecord(1, 1_700_000_000_000).encode()) == json.loads(KAFKA_CONTROLLER)
    assert json.loads(partition_state(1, 2, 5, (2, 1)).encode()) == json.loads(KAFKA_STATE)
    assert json.loads(TopicRecord.decode("t", KAFKA_TOPIC).encode()) == json.loads(KAFKA_TOPIC)
    assert json.loads(BrokerRecord.decode(1, KAFKA_BROKER).encode()) == json.loads(KAFKA_BROKER)
    assert encode_controller_epoch(ControllerEpoch(12)) == b"12"
    assert json.loads(encode_cluster_id("x-Y_z")) == {"version": "1", "id": "x-Y_z"}
    unclean = json.loads(partition_state(1, 2, 5, (2,), RECOVERING).encode())
    assert unclean["leader_recovery_state"] == 1
    assert "leader_recovery_state" not in json.loads(partition_state(1, 2, 5, (2,)).encode())


def test_records_come_back_as_they_were() -> None:
    assert BrokerRecord.decode(1, BROKER.encode()) == BROKER
    assert GenerationRecord.decode(1, GenerationRecord("ab").encode()) == GenerationRecord("ab")
    assert decode_cluster_id(encode_cluster_id("é")) == "é"
    assert decode_controller_epoch(b"0") == 0
    topic = TopicRecord(uuid.UUID(int=5), {10: (1,), 9: (2, 3)}, {9: (3,)}, {9: (2,)})
    assert TopicRecord.decode("t", topic.encode()) == topic


broker_ids = st.integers(0, 2**31 - 1)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(broker_ids, min_size=1, max_size=5, unique=True),
    st.booleans(),
    st.sampled_from([0, 1]),
)
def test_any_state_comes_back(
    epoch: int, leader_epoch: int, isr: list[int], offline: bool, recovery: int
) -> None:
    state = partition_state(epoch, NO_LEADER if offline else isr[0], leader_epoch, tuple(isr), recovery)
    assert PartitionStateRecord.decode(KEY, state.encode()) == state


def state(**changes: object) -> bytes:
    return json.dumps({**json.loads(KAFKA_STATE), **changes}).encode()


def without(data: bytes, name: str) -> bytes:
    return json.dumps({key: value for key, value in json.loads(data).items() if key != name}).encode()


Decoder = Callable[[bytes | None], object]


def as_state(data: bytes | None) -> object:
    return PartitionStateRecord.decode(KEY, data)


def as_broker(data: bytes | None) -> object:
    return BrokerRecord.decode(7, data)


def as_topic(data: bytes | None) -> object:
    return TopicRecord.decode("orders", data)


@pytest.mark.parametrize(
    ("decode", "data", "path", "field", "shown"),
    [
        (as_state, None, paths.partition_state_path(KEY), "", "null"),
        (as_state, b"", paths.partition_state_path(KEY), "", ""),
        (as_state, b"\xff\xfe", paths.partition_state_path(KEY), "", "xff"),
        (as_state, b"[1]", paths.partition_state_path(KEY), "", "[1]"),
        (as_state, b"[" * 100_000, paths.partition_state_path(KEY), "", "…"),
        (as_state, b"9" * 5_000, paths.partition_state_path(KEY), "", "…"),
        (as_state, state(version=2), paths.partition_state_path(KEY), "version", "2"),
        (as_state, state(leader="2"), paths.partition_state_path(KEY), "leader", '"2"'),
        (as_state, state(leader=True, isr=[1]), paths.partition_state_path(KEY), "leader", "true"),
        (as_state, state(leader=-2), paths.partition_state_path(KEY), "leader", "-2"),
        (as_state, state(leader=9), paths.partition_state_path(KEY), "leader", "9"),
        (as_state, state(leader_epoch=2**31), paths.partition_state_path(KEY), "leader_epoch", "2147483648"),
        (as_state, state(isr=[1, 1]), paths.partition_state_path(KEY), "isr", "[1, 1]"),
        (as_state, state(isr=[1.0]), paths.partition_state_path(KEY), "isr", "1.0"),
        (as_state, state(isr={}), paths.partition_state_path(KEY), "isr", "{}"),
        (as_state, without(KAFKA_STATE, "isr"), paths.partition_state_path(KEY), "isr", "missing"),
        (
            as_state,
            state(leader_recovery_state=2),
            paths.partition_state_path(KEY),
            "leader_recovery_state",
            "2",
        ),
        (as_broker, without(KAFKA_BROKER, "endpoints"), "/brokers/ids/7", "endpoints", "missing"),
        (as_broker, KAFKA_BROKER.replace(b"9092,", b"70000,"), "/brokers/ids/7", "port", "70000"),
        (
            as_broker,
            KAFKA_BROKER.replace(b'"1700000000000"', b"1700000000000"),
            "/brokers/ids/7",
            "timestamp",
            "17",
        ),
        (
            as_broker,
            KAFKA_BROKER.replace(b"1700000000000", b"yesterday"),
            "/brokers/ids/7",
            "timestamp",
            "yester",
        ),
        (
            as_broker,
            KAFKA_BROKER.replace(b'{"PLAINTEXT":"PLAINTEXT"}', b'{"PLAINTEXT":1}'),
            "/brokers/ids/7",
            "listener_security_protocol_map.PLAINTEXT",
            "1",
        ),
        (
            as_broker,
            KAFKA_BROKER.replace(b'"features":{}', b'"features":{"f":{"min_version":3,"max_version":2}}'),
            "/brokers/ids/7",
            "features.f.max_version",
            "2",
        ),
        (
            as_topic,
            KAFKA_TOPIC.replace(b"XbLO1mTzSMGJ0kFvBcxAGw", b"tooshort"),
            "/brokers/topics/orders",
            "topic_id",
            "too",
        ),
        (
            as_topic,
            KAFKA_TOPIC.replace(b'"0":', b'"zero":'),
            "/brokers/topics/orders",
            "partitions.zero",
            "[1, 2]",
        ),
        (
            as_topic,
            KAFKA_TOPIC.replace(b'"0":', b'"00":'),
            "/brokers/topics/orders",
            "partitions.00",
            "[1, 2]",
        ),
        (as_topic, KAFKA_TOPIC.replace(b"[1,2]", b"[1,-2]"), "/brokers/topics/orders", "partitions.0", "-2"),
        (
            ControllerRecord.decode,
            b'{"version":3,"brokerid":1,"timestamp":"1"}',
            "/controller",
            "version",
            "3",
        ),
        (
            ControllerRecord.decode,
            b'{"version":2,"brokerid":null,"timestamp":"1"}',
            "/controller",
            "brokerid",
            "null",
        ),
        (decode_controller_epoch, b"-1", "/controller_epoch", "", "-1"),
        (decode_controller_epoch, "١".encode(), "/controller_epoch", "", "١"),
        (decode_controller_epoch, b"", "/controller_epoch", "", ""),
        (decode_controller_epoch, b"9" * 30, "/controller_epoch", "", "999"),
        (decode_controller_epoch, b"2147483648", "/controller_epoch", "", "2147483648"),
        (decode_cluster_id, b'{"version":"1","id":""}', "/cluster/id", "id", '""'),
    ],
)
def test_a_malformed_value_is_refused_by_path_field_and_value(
    decode: Decoder, data: bytes | None, path: str, field: str, shown: str
) -> None:
    with pytest.raises(MetadataDecodeError) as caught:
        decode(data)
    error = caught.value
    assert (error.path, error.field) == (path, field)
    assert shown in error.value
    assert path in str(error)
    assert len(str(error)) < 600
    assert error.definite


def test_a_record_of_a_newer_build_is_nothing_to_delete() -> None:
    with pytest.raises(MetadataDecodeError, match="field 'version' holds 4, expected") as caught:
        TopicRecord.decode("t", b'{"version":4,"partitions":{"0":[1]}}')
    assert caught.value.remedy.startswith("update this process to the build that wrote /brokers/topics/t")


@given(st.binary(max_size=60))
def test_no_value_at_all_raises_anything_else(data: bytes) -> None:
    for decode in (
        ControllerRecord.decode,
        decode_controller_epoch,
        decode_cluster_id,
        as_state,
        as_broker,
        as_topic,
    ):
        try:
            decode(data)
        except MetadataDecodeError:
            continue


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([KAFKA_BROKER, KAFKA_TOPIC, KAFKA_STATE, KAFKA_CONTROLLER]), st.data())
def test_no_field_of_any_type_raises_anything_else(data: bytes, draw: st.DataObject) -> None:
    value = json.loads(data)
    value[draw.draw(st.sampled_from(sorted(value)))] = draw.draw(json_values)
    changed = json.dumps(value).encode()
    for decode in (ControllerRecord.decode, as_state, as_broker, as_topic):
        try:
            decode(changed)
        except MetadataDecodeError:
            continue


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "a\x00"])
def test_names_that_are_no_topics_are_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="Topic name is invalid"):
        paths.check_topic(topic)


def test_names_that_are_topics_are_taken() -> None:
    for topic in ("a", "A-b_c.9", "x" * 249, "..."):
        assert paths.check_topic(topic) == topic
