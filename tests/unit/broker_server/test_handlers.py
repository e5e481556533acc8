"""Each request through its handler, in every version that is served, against parts in memory."""

import struct
import uuid
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from broker.server.handlers import ApiHandlers
from broker.server.requests import CloseConnectionError, Request
from broker.server.table import FOR_CLIENTS
from broker.wire.codec import Values, decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.support.broker_wire import whole
from tests.support.group_requests import GROUP_REQUESTS
from tests.support.memory_broker import MemoryParts, config, partition_state, topic_id, update_metadata

KEY = PartitionKey("t", 0)
BATCH = struct.pack(">qiibIhi", 0, 49, 0, 2, 0, 0, 0) + bytes(34)


@pytest.fixture
async def parts(tmp_path: Path) -> MemoryParts:
    found = MemoryParts.build(config(tmp_path))
    found.view.apply(update_metadata({"t": [partition_state(0), partition_state(1, leader=-1)]}))
    return found


async def ask(
    parts: MemoryParts, api_key: ApiKey, version: int, values: Values, *, for_brokers: bool = False
) -> Any:
    """Return the decoded response, or None if there is none."""
    body = memoryview(encode_request(api_key, version, values))
    request = Request(api_key, version, 1, "test", body, len(body), 0.0)
    answer = ApiHandlers(parts.services, for_brokers=for_brokers).handle(request)
    if isinstance(answer, Awaitable):
        answer = await answer
    return None if answer is None else decode_response(api_key, version, whole(answer))


def produce_values(topic: str = "t", partition: int = 0, **changed: Any) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": BATCH}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 1000, "topic_data": data, **changed}


def fetch_values(topic: str = "t", partition: int = 0, **changed: Any) -> dict[str, Any]:
    row = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic": topic, "topic_id": topic_id(topic), "partitions": [row]}]
    return {"max_wait": 0, "min_bytes": 0, "topics": topics, "forgotten_topics_data": (), **changed}


def metadata_values(*names: str) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": None} for name in names],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


LIST = {
    "replica_id": -1,
    "isolation_level": 0,
    "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
}
EPOCH = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 5}]}]}
COORDINATOR = {"key": "g", "coordinator_keys": ["g"]}
NEW = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
CREATE = {"topics": [NEW], "timeout": 1000}
DELETE = {"topics": [{"name": "t", "topic_id": None}], "topic_names": ["t"], "timeout": 1000}
PARTITIONS = {
    "topics": [{"name": "t", "count": 5, "assignments": None}],
    "timeout": 1000,
    "validate_only": False,
}
RESOURCE = {"resource_type": 2, "resource_name": "t"}
DESCRIBE = {"resources": [{**RESOURCE, "configuration_keys": None}]}
SETTING = {"name": "retention.ms", "config_operation": 0, "value": "5"}
ALTER = {"resources": [{**RESOURCE, "configs": [SETTING]}], "validate_only": False}
PRODUCER = {"transactional_id": None, "transaction_timeout": 1}
ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
NEW_ACL = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:u",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ELECT = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 1000}
MOVE = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": (2,)}]}], "timeout": 1000}
MOVES = {"topics": [{"name": "t", "partition_indexes": [0]}], "timeout": 1000}
DELETE_RECORDS = {
    "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}],
    "timeout": 1000,
}
LOG_DIRS = {"topics": [{"topic": "t", "partitions": (0,)}]}
MOVE_LOG = {"dirs": [{"path": "/elsewhere", "topics": [{"name": "t", "partitions": (0,)}]}]}
PRODUCERS = {"topics": [{"name": "t", "partition_indexes": (0,)}]}
PAGE = {"topics": [{"name": "t"}], "response_partition_limit": 2000, "cursor": None}
QUOTAS = {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False}
ALTERED_QUOTAS = {
    "entries": [
        {
            "entity": [{"entity_type": "user", "entity_name": "u"}],
            "ops": [{"key": "producer_byte_rate", "value": 1024.0, "remove": False}],
        }
    ],
    "validate_only": True,
}

#: {request: (values, where the error code stands)}
EVERY: dict[ApiKey, tuple[dict[str, Any], str]] = {
    ApiKey.PRODUCE: (produce_values(), "responses.0.partition_responses.0"),
    ApiKey.FETCH: (fetch_values(), "responses.0.partitions.0"),
    ApiKey.LIST_OFFSETS: (LIST, "topics.0.partitions.0"),
    ApiKey.METADATA: (metadata_values("t"), "topics.0"),
    ApiKey.FIND_COORDINATOR: (COORDINATOR, "coordinators.0"),
    ApiKey.CREATE_TOPICS: (CREATE, "topics.0"),
    ApiKey.DELETE_TOPICS: (DELETE, "responses.0"),
    ApiKey.INIT_PRODUCER_ID: (PRODUCER, ""),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (EPOCH, "topics.0.partitions.0"),
    ApiKey.DESCRIBE_ACLS: (ACL, ""),
    ApiKey.CREATE_ACLS: ({"creations": [NEW_ACL]}, "results.0"),
    ApiKey.DELETE_ACLS: ({"filters": [ACL]}, "filter_results.0"),
    ApiKey.DESCRIBE_CONFIGS: (DESCRIBE, "results.0"),
    ApiKey.CREATE_PARTITIONS: (PARTITIONS, "results.0"),
    ApiKey.ELECT_LEADERS: (ELECT, "replica_election_results.0.partition_result.0"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (MOVE, "responses.0.partitions.0"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (MOVES, ""),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ALTER, "responses.0"),
    ApiKey.ALTER_CONFIGS: (ALTER, "responses.0"),
    ApiKey.DELETE_RECORDS: (DELETE_RECORDS, "topics.0.partitions.0"),
    ApiKey.DESCRIBE_LOG_DIRS: (LOG_DIRS, "results.0"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (MOVE_LOG, "results.0.partitions.0"),
    ApiKey.DESCRIBE_PRODUCERS: (PRODUCERS, "topics.0.partitions.0"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (PAGE, "topics.0"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (QUOTAS, ""),
    ApiKey.ALTER_CLIENT_QUOTAS: (ALTERED_QUOTAS, "entries.0"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ({"users": [{"name": "u"}]}, "results.0"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": ()},
        "results.0",
    ),
    ApiKey.DESCRIBE_CLUSTER: ({"include_cluster_authorized_operations": False}, ""),
}
EXPECTED = {
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ErrorCode.RESOURCE_NOT_FOUND,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ErrorCode.RESOURCE_NOT_FOUND,
    ApiKey.FIND_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ErrorCode.LOG_DIR_NOT_FOUND,
    **dict.fromkeys(
        (ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), ErrorCode.SECURITY_DISABLED
    ),
}


def test_every_served_request_is_tried() -> None:
    # Those about groups: tests/unit/broker_groups.
    assert set(EVERY) | set(GROUP_REQUESTS) == set(FOR_CLIENTS) - {
        *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    }


@pytest.mark.parametrize("api_key", sorted(EVERY), ids=lambda key: ApiKey(key).name)
async def test_every_version_is_answered(parts: MemoryParts, api_key: ApiKey) -> None:
    values, place = EVERY[api_key]
    for version in range(FOR_CLIENTS[api_key].versions.low, FOR_CLIENTS[api_key].versions.high + 1):
        if api_key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS):
            parts.view.topics.clear()
            parts.view.apply(update_metadata({"t": [partition_state(0)]}))
        found = await ask(parts, api_key, version, values)
        if not (api_key == ApiKey.FIND_COORDINATOR and version < 4):
            for step in filter(None, place.split(".")):
                found = found[int(step)] if step.isdecimal() else getattr(found, step)
        assert found.error_code == EXPECTED.get(api_key, ErrorCode.NONE), version


#: The answers of these are one a row of the request, and small.
ONE_A_ROW = {ApiKey.PRODUCE, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS}


def repeated(values: Values, times: int) -> dict[str, Any]:
    """Name everything that a request names again and again, also within what is repeated."""
    return {
        field: [repeated(row, times) if isinstance(row, dict) else row for row in value] * times
        if isinstance(value, (list, tuple))
        else value
        for field, value in values.items()
    }


@pytest.mark.parametrize("api_key", sorted({*EVERY, *GROUP_REQUESTS} - ONE_A_ROW), ids=lambda key: key.name)
async def test_what_is_named_again_is_not_answered_again(tmp_path: Path, api_key: ApiKey) -> None:
    values = GROUP_REQUESTS[api_key] if api_key in GROUP_REQUESTS else EVERY[api_key][0]
    for version in range(FOR_CLIENTS[api_key].versions.low, FOR_CLIENTS[api_key].versions.high + 1):
        sizes = []
        for asked in (values, repeated(values, 20)):
            parts = MemoryParts.build(config(tmp_path))
            parts.view.apply(update_metadata({"t": [partition_state(0)]}))
            parts.replicas.batches[KEY] = [(0, 5, bytes(5000))]
            body = memoryview(encode_request(api_key, version, asked))
            answer = ApiHandlers(parts.services, for_brokers=False).handle(
                Request(api_key, version, 1, "test", body, len(body), 0.0)
            )
            if isinstance(answer, Awaitable):
                answer = await answer
            assert answer is not None
            sizes.append(len(whole(answer)))
        # An error of what is named twice has a text.
        assert sizes[1] <= sizes[0] + 100, (version, sizes)


# -- produce ---------------------------------------------------------------------------------------


async def test_acks_of_zero_has_no_response(parts: MemoryParts) -> None:
    assert await ask(parts, ApiKey.PRODUCE, 9, produce_values(acks=0)) is None
    assert parts.replicas.end(KEY) == 1


async def test_acks_of_zero_and_an_error_ends_the_connection(parts: MemoryParts) -> None:
    with pytest.raises(CloseConnectionError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await ask(parts, ApiKey.PRODUCE, 9, produce_values("other", acks=0))


async def test_other_acks_are_refused_as_a_whole(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.PRODUCE, 9, produce_values(acks=2))
    error_code = found.responses[0].partition_responses[0].error_code
    assert error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert parts.replicas.end(KEY) == 0


async def test_markers_are_written_for_brokers(parts: MemoryParts) -> None:
    def row(producer_id: int, *numbers: int) -> Values:
        topics = [{"name": "t", "partition_indexes": numbers}]
        return {
            "producer_id": producer_id,
            "producer_epoch": 2,
            "transaction_result": True,
            "topics": topics,
            "coordinator_epoch": 3,
        }

    asked = {"markers": [row(7, 0, 9, 0), row(8, 0)]}
    found = await ask(parts, ApiKey.WRITE_TXN_MARKERS, 1, asked, for_brokers=True)
    assert [
        (each.producer_id, [(one.partition_index, one.error_code) for one in each.topics[0].partitions])
        for each in found.markers
    ] == [
        (7, [(0, ErrorCode.NONE), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        (8, [(0, ErrorCode.NONE)]),
    ]
    assert parts.replicas.end(KEY) == 2
    assert ApiKey.WRITE_TXN_MARKERS not in FOR_CLIENTS, "nobody is refused there"


async def test_a_partition_named_twice_appends_nothing(parts: MemoryParts) -> None:
    twice = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}] * 2}]
    found = await ask(parts, ApiKey.PRODUCE, 9, produce_values(topic_data=twice))
    codes = [each.error_code for each in found.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_RECORD] * 2
    assert parts.replicas.end(KEY) == 0


async def test_a_wrong_leader_names_the_right_one(parts: MemoryParts) -> None:
    parts.view.apply(update_metadata({"t": [partition_state(1, leader=1, leader_epoch=9)]}))
    parts.replicas.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    produced = await ask(parts, ApiKey.PRODUCE, 10, produce_values(partition=1))
    fetched = await ask(parts, ApiKey.FETCH, 16, fetch_values(partition=1))
    for response, row in (
        (produced, produced.responses[0].partition_responses[0]),
        (fetched, fetched.responses[0].partitions[0]),
    ):
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 9)
        assert [(each.node_id, each.port) for each in response.node_endpoints] == [(1, 1)]


# -- fetch -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13, 17])
async def test_a_session_answers_what_has_changed(parts: MemoryParts, version: int) -> None:
    async def fetch(session_id: int, session_epoch: int, **changed: Any) -> Any:
        asked = fetch_values(session_id=session_id, session_epoch=session_epoch, **changed)
        return await ask(parts, ApiKey.FETCH, version, asked)

    full = await fetch(0, 0)
    assert (full.error_code, full.session_id, len(full.responses)) == (ErrorCode.NONE, 1, 1)
    quiet = await fetch(1, 1, topics=())
    assert (quiet.error_code, quiet.session_id, quiet.responses) == (ErrorCode.NONE, 1, ())
    await ask(parts, ApiKey.PRODUCE, 9, produce_values())
    grown = await fetch(1, 2)
    assert grown.responses[0].partitions[0].records == BATCH[:12] + struct.pack(">i", 5) + BATCH[16:]
    assert (await fetch(1, 2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (await fetch(7, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (await fetch(1, -1)).session_id == 0
    assert (await fetch(1, 3)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_ends_with_its_last_partition(parts: MemoryParts) -> None:
    opened = await ask(parts, ApiKey.FETCH, 13, fetch_values(session_id=0, session_epoch=0))
    forgotten = ({"topic_id": topic_id("t"), "topic": "t", "partitions": (0,)},)
    asked = fetch_values(
        session_id=opened.session_id, session_epoch=1, topics=(), forgotten_topics_data=forgotten
    )
    ended = await ask(parts, ApiKey.FETCH, 13, asked)
    assert (ended.error_code, ended.session_id, len(parts.replicas.sessions)) == (ErrorCode.NONE, 0, 0)


async def test_a_forgotten_id_that_is_known_by_now_is_not_answered(parts: MemoryParts) -> None:
    named = fetch_values("new", session_id=0, session_epoch=0)
    opened = await ask(parts, ApiKey.FETCH, 13, named)
    parts.view.apply(update_metadata({"new": [partition_state(0)]}))
    forgotten = ({"topic_id": topic_id("new"), "topic": "new", "partitions": (0,)},)
    asked = fetch_values(session_id=opened.session_id, session_epoch=1, forgotten_topics_data=forgotten)
    found = await ask(parts, ApiKey.FETCH, 13, asked)
    assert [each.topic_id for each in found.responses] == [topic_id("t")]


async def test_a_session_by_ids_is_not_used_by_names(parts: MemoryParts) -> None:
    opened = await ask(parts, ApiKey.FETCH, 13, fetch_values(session_id=0, session_epoch=0))
    asked = fetch_values(session_id=opened.session_id, session_epoch=1)
    found = await ask(parts, ApiKey.FETCH, 12, asked)
    assert found.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_an_id_that_becomes_known_is_read_in_its_session(parts: MemoryParts) -> None:
    asked = fetch_values("new", session_id=0, session_epoch=0)
    opened = await ask(parts, ApiKey.FETCH, 13, asked)
    assert opened.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    parts.view.apply(update_metadata({"new": [partition_state(0)]}))
    asked = fetch_values(session_id=opened.session_id, session_epoch=1, topics=())
    found = await ask(parts, ApiKey.FETCH, 13, asked)
    assert found.responses[0].topic_id == topic_id("new")
    assert found.responses[0].partitions[0].error_code == ErrorCode.NONE


async def test_a_client_cannot_use_a_session_of_a_follower(parts: MemoryParts) -> None:
    state = {"replica_id": 2, "replica_epoch": 77}
    asked = fetch_values(session_id=0, session_epoch=0, replica_state=state)
    opened = await ask(parts, ApiKey.FETCH, 16, asked, for_brokers=True)
    stolen = fetch_values(session_id=opened.session_id, session_epoch=1)
    found = await ask(parts, ApiKey.FETCH, 16, stolen)
    assert (opened.session_id, found.error_code) == (1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


async def test_an_unknown_topic_id_is_answered_for_its_partitions(parts: MemoryParts) -> None:
    asked = fetch_values()
    asked["topics"].append({**asked["topics"][0], "topic_id": uuid.UUID(int=9)})
    found = await ask(parts, ApiKey.FETCH, 13, asked)
    codes = [topic.partitions[0].error_code for topic in found.responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    assert found.responses[1].topic_id == uuid.UUID(int=9)


@pytest.mark.parametrize("version", [4, 17])
async def test_whoever_compares_replicas_reads_as_a_consumer(parts: MemoryParts, version: int) -> None:
    # Kafka's ReplicaVerificationTool.
    asked = fetch_values(replica_id=-2, replica_state={"replica_id": -2, "replica_epoch": -1})
    found = await ask(parts, ApiKey.FETCH, version, asked)
    assert found.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert parts.replicas.fetches[0][1].replica_id == -1


@pytest.mark.parametrize("version", [4, 14, 15, 16])
async def test_only_a_broker_fetches_as_a_replica(parts: MemoryParts, version: int) -> None:
    asked = fetch_values(replica_id=2, replica_state={"replica_id": 2, "replica_epoch": 77})
    found = await ask(parts, ApiKey.FETCH, version, asked)
    refused = found.responses[0].partitions[0].error_code
    assert (refused, parts.replicas.fetches) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    await ask(parts, ApiKey.FETCH, version, asked, for_brokers=True)
    assert parts.replicas.fetches[0][1].replica_id == 2
    assert parts.replicas.fetches[0][1].generation == (77 if version >= 15 else -1)


# -- before the first UpdateMetadata ---------------------------------------------------------------


async def test_no_topic_is_unknown_before_the_first_update(tmp_path: Path) -> None:
    parts = MemoryParts.build(config(tmp_path))
    five = ErrorCode.LEADER_NOT_AVAILABLE
    found = await ask(parts, ApiKey.METADATA, 12, metadata_values("t"))
    assert [topic.error_code for topic in found.topics] == [five]
    found = await ask(parts, ApiKey.PRODUCE, 9, produce_values())
    assert found.responses[0].partition_responses[0].error_code == five
    found = await ask(parts, ApiKey.FETCH, 12, fetch_values())
    assert found.responses[0].partitions[0].error_code == five
    found = await ask(parts, ApiKey.LIST_OFFSETS, 7, LIST)
    assert found.topics[0].partitions[0].error_code == five
    found = await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, DESCRIBE)
    assert found.results[0].error_code == five


# -- metadata --------------------------------------------------------------------------------------


async def test_metadata_tells_who_leads(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.METADATA, 12, {**metadata_values(), "topics": None})
    assert (found.cluster_id, found.controller_id) == ("cluster-of-a-test", 1)
    assert [(each.node_id, each.host, each.port) for each in found.brokers] == [(1, "127.0.0.1", 1)]
    rows = [(each.error_code, each.leader_id) for each in found.topics[0].partitions]
    assert rows == [(ErrorCode.NONE, 1), (ErrorCode.LEADER_NOT_AVAILABLE, -1)]


async def test_an_empty_list_means_all_topics_in_version_0_only(parts: MemoryParts) -> None:
    assert len((await ask(parts, ApiKey.METADATA, 0, metadata_values())).topics) == 1
    assert len((await ask(parts, ApiKey.METADATA, 1, metadata_values())).topics) == 0


async def test_unknown_and_impossible_names_differ(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.METADATA, 12, metadata_values("other", "no such/name"))
    codes = [topic.error_code for topic in found.topics]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]


@pytest.mark.parametrize("name", [None, ""])
async def test_metadata_finds_topics_by_id(parts: MemoryParts, name: str | None) -> None:
    """Java's clients send an empty name with the id, also of the topics that a pattern assigns to them."""
    rows = [{"name": name, "topic_id": each} for each in (topic_id("t"), uuid.UUID(int=9))]
    found = await ask(parts, ApiKey.METADATA, 12, {**metadata_values(), "topics": rows})
    assert [(topic.name, topic.error_code) for topic in found.topics] == [
        ("t", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    # So asks Java's admin client.
    found = await ask(parts, ApiKey.METADATA, 12, {**metadata_values(), "topics": [{**rows[0], "name": ""}]})
    assert [(topic.name, topic.topic_id) for topic in found.topics] == [("t", topic_id("t"))]


async def test_a_missing_topic_is_created_where_that_is_configured(tmp_path: Path) -> None:
    parts = MemoryParts.build(config(tmp_path, auto_create_topics=True))
    parts.view.apply(update_metadata({}))
    forbidden = {**metadata_values("made"), "allow_auto_topic_creation": False}
    found = await ask(parts, ApiKey.METADATA, 12, forbidden)
    assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = await ask(parts, ApiKey.METADATA, 12, metadata_values("made"))
    assert (found.topics[0].error_code, len(found.topics[0].partitions)) == (ErrorCode.NONE, 1)


# -- topics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api_key", "values", "field"),
    [
        (ApiKey.CREATE_TOPICS, CREATE, "topics"),
        (ApiKey.DELETE_TOPICS, DELETE, "responses"),
        (ApiKey.CREATE_PARTITIONS, PARTITIONS, "results"),
    ],
)
async def test_who_is_not_the_controller_says_so(
    parts: MemoryParts, api_key: ApiKey, values: dict[str, Any], field: str
) -> None:
    parts.controller.active = False
    found = await ask(parts, api_key, FOR_CLIENTS[api_key].versions.high, values)
    assert [row.error_code for row in getattr(found, field)] == [ErrorCode.NOT_CONTROLLER]


@pytest.mark.parametrize(
    ("changed", "error_code"),
    [
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1]}] * 2,
            },
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        ({"configs": [{"name": "retention.ms", "value": "1"}] * 2}, ErrorCode.INVALID_CONFIG),
        ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.INVALID_CONFIG),
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
async def test_a_topic_that_cannot_be_created_leaves_others_alone(
    parts: MemoryParts, changed: dict[str, Any], error_code: ErrorCode
) -> None:
    asked = {"topics": [{**NEW, "name": "bad", **changed}, NEW], "timeout": 1000}
    found = await ask(parts, ApiKey.CREATE_TOPICS, 7, asked)
    codes = {row.name: row.error_code for row in found.topics}
    assert codes == {changed.get("name", "bad"): error_code, "new": ErrorCode.NONE}


async def test_a_created_topic_is_described_in_the_answer(parts: MemoryParts) -> None:
    asked = {"topics": [{**NEW, "configs": [{"name": "retention.ms", "value": "5"}]}], "timeout": 1000}
    row = (await ask(parts, ApiKey.CREATE_TOPICS, 7, asked)).topics[0]
    assert (row.topic_id, row.num_partitions, row.replication_factor) == (topic_id("new"), 1, 1)
    sources = {each.name: (each.value, each.config_source) for each in row.configs}
    assert sources["retention.ms"] == ("5", 1)
    assert sources["retention.bytes"] == ("-1", 5)


@pytest.mark.parametrize("api_key", [ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS])
async def test_a_request_makes_at_most_ten_thousand_partitions(parts: MemoryParts, api_key: ApiKey) -> None:
    new = {**NEW, "num_partitions": 6000, "count": 6000, "assignments": ()}
    if api_key == ApiKey.CREATE_PARTITIONS:
        new["assignments"] = None
    names = ("a", "b")
    values = {"topics": [{**new, "name": name} for name in names], "timeout": 1, "validate_only": True}
    found = await ask(parts, api_key, FOR_CLIENTS[api_key].versions.high, values)
    rows = found.topics if api_key == ApiKey.CREATE_TOPICS else found.results
    assert [row.error_code for row in rows] == [ErrorCode.POLICY_VIOLATION] * 2
    assert "12000 partitions in one request, at most 10000" in rows[0].error_message


async def test_topics_named_twice_are_refused(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.CREATE_TOPICS, 7, {"topics": [NEW, NEW], "timeout": 1})
    assert [(row.name, row.error_code) for row in found.topics] == [("new", ErrorCode.INVALID_REQUEST)]
    assert "new" not in parts.view.topics


async def test_topics_are_deleted_by_id(parts: MemoryParts) -> None:
    rows = [
        {"name": None, "topic_id": topic_id("t")},
        {"name": None, "topic_id": uuid.UUID(int=9)},
        {"name": "t", "topic_id": topic_id("t")},
    ]
    found = await ask(parts, ApiKey.DELETE_TOPICS, 6, {"topics": rows, "timeout": 1})
    assert sorted(row.error_code for row in found.responses) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert not parts.view.topics


async def test_a_topic_that_is_named_twice_is_not_deleted(parts: MemoryParts) -> None:
    rows = [{"name": None, "topic_id": topic_id("t")}, {"name": "t", "topic_id": None}]
    found = await ask(parts, ApiKey.DELETE_TOPICS, 6, {"topics": rows, "timeout": 1})
    assert [row.error_code for row in found.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert "t" in parts.view.topics


async def test_a_resource_that_is_named_twice_is_not_changed(parts: MemoryParts) -> None:
    resource = {**RESOURCE, "configs": [SETTING]}
    asked = {"resources": [resource, resource], "validate_only": False}
    found = await ask(parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    assert [row.error_code for row in found.responses] == [ErrorCode.INVALID_REQUEST]
    assert not parts.configs.settings.get("t")


async def test_a_topic_asked_for_by_name_and_by_id_is_answered_once(parts: MemoryParts) -> None:
    own = topic_id("t")
    rows = [
        {"name": name, "topic_id": each} for name, each in (("t", None), (None, own), ("", own), ("u", own))
    ]
    found = await ask(parts, ApiKey.METADATA, 12, {**metadata_values(), "topics": rows})
    assert [topic.name for topic in found.topics] == ["t"]


# -- settings --------------------------------------------------------------------------------------


async def test_settings_name_their_sources(parts: MemoryParts) -> None:
    parts.configs.settings["t"] = {"retention.ms": "5"}
    asked = {**DESCRIBE, "include_synonyms": True, "include_documentation": True}
    found = (await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, asked)).results[0]
    rows = {row.name: row for row in found.configs}
    assert (rows["retention.ms"].value, rows["retention.ms"].config_source) == ("5", 1)
    assert [each.source for each in rows["retention.ms"].synonyms] == [1, 5]
    assert (rows["min.insync.replicas"].value, rows["min.insync.replicas"].config_source) == ("2", 4)
    assert rows["retention.bytes"].config_source == 5
    assert rows["retention.ms"].documentation.endswith("in milliseconds.")
    no_effect = "The compression of stored batches. No effect: batches are stored as producers send them."
    assert rows["compression.type"].documentation == no_effect


async def test_only_the_asked_settings_are_described(parts: MemoryParts) -> None:
    asked = {"resources": [{**RESOURCE, "configuration_keys": ["retention.ms", "no.such"]}]}
    found = (await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, asked)).results[0]
    assert [(row.name, row.documentation, row.synonyms) for row in found.configs] == [
        ("retention.ms", None, ())
    ]


async def test_a_broker_describes_itself_only(parts: MemoryParts) -> None:
    rows = [{"resource_type": 4, "resource_name": name, "configuration_keys": None} for name in ("1", "2")]
    found = (await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": rows})).results
    own = {row.name: (row.value, row.read_only) for row in found[0].configs}
    assert own["leader.replication.throttled.rate"] == (str(2**63 - 1), False)
    assert own["max.connections.per.ip"] == (str(2**31 - 1), False)
    assert own["zookeeper.connect"] == ("127.0.0.1:2181", True)
    assert (own["broker.rack"][0], own["auto.create.topics.enable"][0]) == (None, "false")
    assert found[1].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("resource", "changes", "error_code"),
    [
        (("t", 2), [("retention.ms", 0, "x")], ErrorCode.INVALID_CONFIG),
        (("t", 2), [("cleanup.policy", 0, "compacted")], ErrorCode.INVALID_CONFIG),
        (("t", 2), [("cleanup.policy", 2, "compacted")], ErrorCode.INVALID_CONFIG),
        (("t", 2), [("retention.ms", 2, "5")], ErrorCode.INVALID_CONFIG),
        (("t", 2), [("retention.mss", 2, "5")], ErrorCode.INVALID_CONFIG),
        (("t", 2), [("cleanup.policy", 4, "delete")], ErrorCode.INVALID_REQUEST),
        (("t", 2), [("cleanup.policy", 2, None)], ErrorCode.INVALID_REQUEST),
        (("1", 4), [("leader.replication.throttled.rate", 3, "1")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("listeners", 2, "x")], ErrorCode.INVALID_REQUEST),
        (("t", 2), [("retention.ms", 0, None)], ErrorCode.INVALID_REQUEST),
        (("t", 2), [("retention.ms", 0, "1"), ("retention.ms", 1, None)], ErrorCode.INVALID_REQUEST),
        (("other", 2), [("retention.ms", 0, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 2), [("leader.replication.throttled.replicas", 0, "0-1")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("log.retention.ms", 0, "1")], ErrorCode.INVALID_REQUEST),
        (("1", 4), [("log.retention.ms", 1, None)], ErrorCode.INVALID_REQUEST),
        (("1", 4), [("follower.replication.throttled.rate", 0, "-1")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("follower.replication.throttled.rate", 0, "1 MB")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("transaction.partition.verification.enable", 0, "yes")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("max.connections.per.ip", 0, "0")], ErrorCode.INVALID_CONFIG),
        (("1", 4), [("max.connections.per.ip", 0, "2147483648")], ErrorCode.INVALID_CONFIG),
        (("2", 4), [("follower.replication.throttled.rate", 0, "1")], ErrorCode.INVALID_REQUEST),
        (("", 4), [("follower.replication.throttled.rate", 0, "1")], ErrorCode.INVALID_REQUEST),
        (("1", 8), [("follower.replication.throttled.rate", 0, "1")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_wrong_change_of_settings_changes_nothing(
    parts: MemoryParts,
    resource: tuple[str, int],
    changes: list[tuple[str, int, str | None]],
    error_code: ErrorCode,
) -> None:
    configs = [dict(zip(("name", "config_operation", "value"), each, strict=True)) for each in changes]
    row = {"resource_name": resource[0], "resource_type": resource[1], "configs": configs}
    found = await ask(
        parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [row], "validate_only": False}
    )
    assert found.responses[0].error_code == error_code
    assert (parts.configs.settings, parts.own_configs.settings) == ({}, {})


async def test_rates_of_this_broker_change_while_it_runs(parts: MemoryParts) -> None:
    async def change(*changes: tuple[str, int, str | None]) -> ErrorCode:
        configs = [dict(zip(("name", "config_operation", "value"), each, strict=True)) for each in changes]
        row = {"resource_name": "1", "resource_type": 4, "configs": configs}
        asked = {"resources": [row], "validate_only": False}
        found = await ask(parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        return ErrorCode(found.responses[0].error_code)

    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    assert await change((leader, 0, "1000"), (follower, 0, "2000")) == ErrorCode.NONE
    row = {"resource_type": 4, "resource_name": "1", "configuration_keys": [leader]}
    asked = {"resources": [row], "include_synonyms": True}
    shown = (await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, asked)).results[0].configs[0]
    assert (shown.value, shown.config_source, shown.read_only) == ("1000", 2, False)
    assert [each.source for each in shown.synonyms] == [2, 5]
    # Kafka's tool removes the three together.
    third = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert await change((leader, 1, None), (follower, 1, None), (third, 1, None)) == ErrorCode.NONE
    assert parts.own_configs.overrides("1") == {}


async def test_verification_of_this_broker_is_switched_while_it_runs(parts: MemoryParts) -> None:
    name = "transaction.partition.verification.enable"

    async def shown() -> tuple[str | None, int, bool]:
        row = {"resource_type": 4, "resource_name": "1", "configuration_keys": [name]}
        found = await ask(parts, ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [row], "include_synonyms": True})
        (config,) = found.results[0].configs
        return config.value, config.config_source, config.read_only

    assert await shown() == ("true", 4, False)
    configs = [{"name": name, "config_operation": 0, "value": "FALSE"}]
    resource = {"resource_name": "1", "resource_type": 4, "configs": configs}
    asked = {"resources": [resource], "validate_only": False}
    found = await ask(parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
    assert found.responses[0].error_code == ErrorCode.NONE
    assert await shown() == ("FALSE", 2, False)


async def test_lists_take_items_and_lose_them(parts: MemoryParts) -> None:
    name = "leader.replication.throttled.replicas"

    async def change(setting: str, operation: int, value: str) -> tuple[int, str | None]:
        configs = [{"name": setting, "config_operation": operation, "value": value}]
        asked = {"resources": [{**RESOURCE, "configs": configs}], "validate_only": False}
        row = (await ask(parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)).responses[0]
        return row.error_code, row.error_message

    for operation, value, after in (
        (2, "0:1", "0:1"),
        (2, "0:2, 0:1,1:1", "0:1,0:2,1:1"),
        (3, "0:1,7:7", "0:2,1:1"),
        (3, "1:1,0:2", ""),
    ):
        assert await change(name, operation, value) == (ErrorCode.NONE, None)
        assert parts.configs.settings["t"] == {name: after}
    assert (await change("cleanup.policy", 2, "delete"))[0] == ErrorCode.NONE
    assert parts.configs.settings["t"]["cleanup.policy"] == "delete"
    assert await change("retention.ms", 3, "5") == (
        ErrorCode.INVALID_CONFIG,
        "Config value subtract is not allowed for config key: retention.ms (set it as a whole)",
    )


async def test_all_settings_are_replaced(parts: MemoryParts) -> None:
    parts.configs.settings["t"] = {"retention.ms": "5", "segment.bytes": "2000000"}
    parts.own_configs.settings["1"] = {"leader.replication.throttled.rate": "5"}

    async def change(resource: Values, *configs: tuple[str, str | None], check: bool = False) -> ErrorCode:
        rows = [{"name": name, "value": value} for name, value in configs]
        asked = {"resources": [{**resource, "configs": rows}], "validate_only": check}
        found = await ask(parts, ApiKey.ALTER_CONFIGS, 2, asked)
        return ErrorCode(found.responses[0].error_code)

    ours = {"resource_type": 4, "resource_name": "1"}
    assert await change(RESOURCE, ("retention.ms", "soon")) == ErrorCode.INVALID_CONFIG
    assert await change(RESOURCE, ("retention.ms", None)) == ErrorCode.INVALID_REQUEST
    assert await change(RESOURCE, ("retention.ms", "1"), ("retention.ms", "1")) == ErrorCode.INVALID_REQUEST
    assert await change(ours, ("log.retention.ms", "5")) == ErrorCode.INVALID_REQUEST
    assert await change(RESOURCE, ("retention.ms", "6"), check=True) == ErrorCode.NONE
    assert parts.configs.settings["t"] == {"retention.ms": "5", "segment.bytes": "2000000"}
    assert await change(RESOURCE, ("retention.ms", "6"), ("flush.ms", "1")) == ErrorCode.NONE
    assert parts.configs.settings["t"] == {"retention.ms": "6", "flush.ms": "1"}
    assert await change(ours) == ErrorCode.NONE
    assert parts.own_configs.overrides("1") == {}


async def test_a_change_that_is_only_checked_changes_nothing(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {**ALTER, "validate_only": True})
    assert (found.responses[0].error_code, parts.configs.settings) == (ErrorCode.NONE, {})


# -- transactions ----------------------------------------------------------------------------------


async def test_a_transactional_id_is_the_coordinators(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.INIT_PRODUCER_ID, 4, {**PRODUCER, "transactional_id": "x"})
    assert (found.error_code, found.producer_id) == (ErrorCode.NOT_COORDINATOR, -1)
    found = await ask(parts, ApiKey.FIND_COORDINATOR, 4, {**COORDINATOR, "key_type": 1})
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_producer_ids_differ(parts: MemoryParts) -> None:
    found = [await ask(parts, ApiKey.INIT_PRODUCER_ID, 4, PRODUCER) for _ in range(3)]
    assert len({each.producer_id for each in found}) == 3


# -- elections and reassignments ---------------------------------------------------------------------------


async def test_a_reassignment_is_begun_listed_and_cancelled(parts: MemoryParts) -> None:
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    await ask(parts, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, MOVE)
    for asked in (MOVES, {**MOVES, "topics": None}):
        row = (await ask(parts, key, 0, asked)).topics[0].partitions[0]
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((2, 1), (2,), (1,))
    other = {**MOVES, "topics": [{"name": "t", "partition_indexes": [1]}]}
    assert (await ask(parts, key, 0, other)).topics == ()
    cancel = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]}
    found = await ask(parts, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {**MOVE, **cancel})
    assert found.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert (await ask(parts, key, 0, MOVES)).topics == ()


async def test_a_partition_that_is_named_twice_is_not_reassigned(parts: MemoryParts) -> None:
    row = {"partition_index": 0, "replicas": (2,)}
    twice = {**MOVE, "topics": [{"name": "t", "partitions": [row, row]}]}
    found = await ask(parts, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, twice)
    assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_a_broker_that_is_not_the_controller_elects_and_reassigns_nothing(parts: MemoryParts) -> None:
    parts.controller.active = False
    for api_key, values in (
        (ApiKey.ELECT_LEADERS, ELECT),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, MOVE),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, MOVES),
    ):
        version = FOR_CLIENTS[api_key].versions.high
        assert (await ask(parts, api_key, version, values)).error_code == ErrorCode.NOT_CONTROLLER
    found = await ask(parts, ApiKey.ELECT_LEADERS, 0, ELECT)
    assert found.replica_election_results[0].partition_result[0].error_code == ErrorCode.NOT_CONTROLLER
