"""What is packed by hand equals what kio writes, byte for byte, in every version."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.server.table import FOR_CLIENTS
from broker.wire.codec import decode_request, encode_request, encode_response
from broker.wire.packing import (
    FetchedPartition,
    FetchedTopic,
    NodeEndpoint,
    ProducedPartition,
    pack_fetch_response,
    pack_produce_request,
    pack_produce_response,
)
from controller.wire.apis import ApiKey
from controller.wire.decoding import MalformedMessageError
from quorum.metadata.paths import PartitionKey

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ERROR = st.sampled_from([0, 1, 3, 6, 74, 75, 100])
NAME = st.text(st.characters(codec="utf-8"), min_size=1, max_size=80)
RECORDS = st.one_of(st.binary(max_size=200), st.integers(4090, 20_000).map(bytes))
PAIR = st.one_of(st.none(), st.tuples(INT32, INT32))

PARTITIONS = st.builds(
    FetchedPartition,
    INT32,
    ERROR,
    INT64,
    INT64,
    INT64,
    RECORDS,
    PAIR,
    PAIR,
    preferred_read_replica=INT32,
    aborted=st.one_of(st.none(), st.lists(st.tuples(INT64, INT64), max_size=3)),
)
TOPICS = st.builds(
    FetchedTopic, NAME, st.one_of(st.none(), st.uuids(allow_nil=False)), st.lists(PARTITIONS, max_size=3)
)
APPEND_TIME = st.sampled_from([-1, 0, 1_700_000_000_000])
PRODUCED = st.builds(
    ProducedPartition, INT32, ERROR, INT64, APPEND_TIME, INT64, st.one_of(st.none(), NAME), PAIR
)
ENDPOINTS = st.builds(NodeEndpoint, INT32, NAME, INT32, st.one_of(st.none(), NAME))


def fetch_values(
    topics: Sequence[FetchedTopic], error_code: int, endpoints: Sequence[NodeEndpoint]
) -> dict[str, object]:
    return {
        "error_code": error_code,
        "responses": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "error_code": each.error_code,
                        "high_watermark": each.high_watermark,
                        "last_stable_offset": each.last_stable_offset,
                        "log_start_offset": each.log_start_offset,
                        "aborted_transactions": None
                        if each.aborted is None
                        else [{"producer_id": one, "first_offset": two} for one, two in each.aborted],
                        "preferred_read_replica": each.preferred_read_replica,
                        "records": each.records,
                        "diverging_epoch": pair(each.diverging_epoch, "epoch", "end_offset"),
                        "current_leader": pair(each.current_leader, "leader_id", "leader_epoch"),
                        "snapshot_id": {},
                    }
                    for each in topic.partitions
                ],
            }
            for topic in topics
        ],
        "node_endpoints": [each._asdict() for each in endpoints],
    }


def pair(value: tuple[int, int] | None, first: str, second: str) -> dict[str, int]:
    return {} if value is None else {first: value[0], second: value[1]}


FETCH = FOR_CLIENTS[ApiKey.FETCH].versions
PRODUCE = FOR_CLIENTS[ApiKey.PRODUCE].versions


@pytest.mark.parametrize("version", range(FETCH.low, FETCH.high + 1))
@given(topics=st.lists(TOPICS, max_size=3), error_code=ERROR, endpoints=st.lists(ENDPOINTS, max_size=2))
@settings(max_examples=40, deadline=None)
def test_fetch_responses_equal_those_of_kio(
    version: int, topics: list[FetchedTopic], error_code: int, endpoints: list[NodeEndpoint]
) -> None:
    packed = pack_fetch_response(version, topics, error_code=error_code, node_endpoints=endpoints)
    expected = encode_response(ApiKey.FETCH, version, fetch_values(topics, error_code, endpoints))
    assert b"".join(packed) == expected


@pytest.mark.parametrize("version", range(PRODUCE.low, PRODUCE.high + 1))
@given(
    batches=st.dictionaries(st.tuples(NAME, INT32), RECORDS, max_size=4),
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=INT32,
)
@settings(max_examples=40, deadline=None)
def test_produce_requests_equal_those_of_kio(
    version: int, batches: dict[tuple[str, int], bytes], acks: int, timeout_ms: int
) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, index), records in batches.items():
        topics.setdefault(topic, []).append({"index": index, "records": records})
    values = {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [{"name": name, "partition_data": data} for name, data in topics.items()],
    }
    keyed = {PartitionKey(topic, index): records for (topic, index), records in batches.items()}
    packed = b"".join(pack_produce_request(version, keyed, acks=acks, timeout_ms=timeout_ms))
    assert packed == encode_request(ApiKey.PRODUCE, version, values)
    views: list[memoryview | None] = []
    read = decode_request(ApiKey.PRODUCE, version, packed, records=views)
    rows = [(topic.name, row) for topic in read.topic_data for row in topic.partition_data]
    assert [row.records for _, row in rows] == [None] * len(views)
    found = [(name, row.index, view) for (name, row), view in zip(rows, views, strict=True)]
    assert {(name, index): bytes(view or b"") for name, index, view in found} == batches
    assert all(view is not None and view.obj is packed for view in views)


@pytest.mark.parametrize(("version", "length"), [(3, b"\xff\xff\xff\xfe"), (3, b"\0\0\0\7"), (9, b"\x08")])
def test_records_whose_length_is_wrong_are_refused(version: int, length: bytes) -> None:
    whole = b"".join(pack_produce_request(version, {PartitionKey("t", 0): b""}, acks=1, timeout_ms=9))
    tail = b"\1\0\0\0" if version >= 9 else bytes(4)
    assert whole.endswith(tail)
    body = whole.removesuffix(tail) + length + (tail[1:] if version >= 9 else b"")
    with pytest.raises(MalformedMessageError, match="bytes of records and"):
        decode_request(ApiKey.PRODUCE, version, body, records=[])


@pytest.mark.parametrize("version", range(PRODUCE.low, PRODUCE.high + 1))
@given(
    topics=st.lists(st.tuples(NAME, st.lists(PRODUCED, max_size=3)), max_size=3),
    endpoints=st.lists(ENDPOINTS, max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_produce_responses_equal_those_of_kio(
    version: int, topics: list[tuple[str, list[ProducedPartition]]], endpoints: list[NodeEndpoint]
) -> None:
    values = {
        "responses": [
            {
                "name": name,
                "partition_responses": [
                    {
                        "index": each.partition,
                        "error_code": each.error_code,
                        "base_offset": each.base_offset,
                        "log_append_time": each.log_append_time_ms,
                        "log_start_offset": each.log_start_offset,
                        "record_errors": (),
                        "error_message": each.error_message,
                        "current_leader": pair(each.current_leader, "leader_id", "leader_epoch"),
                    }
                    for each in partitions
                ],
            }
            for name, partitions in topics
        ],
        "node_endpoints": [each._asdict() for each in endpoints],
    }
    packed = pack_produce_response(version, topics, node_endpoints=endpoints)
    assert b"".join(packed) == encode_response(ApiKey.PRODUCE, version, values)


def test_large_records_are_not_copied() -> None:
    records = bytes(100_000)
    partition = FetchedPartition(0, 0, 9, 9, 0, records)
    parts = pack_fetch_response(12, [FetchedTopic("t", uuid.uuid4(), [partition])])
    assert any(part is records for part in parts)
