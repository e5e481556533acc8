"""Requests about logs and pages of topics: what the rows say, repeats, cursors and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.replication.outcomes import DeleteOutcome
from broker.wire.codec import Values
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.support.memory_broker import MemoryParts, config, partition_state, topic_id, update_metadata
from tests.unit.broker_server.test_handlers import ask

T0, T1 = PartitionKey("t", 0), PartitionKey("t", 1)


@pytest.fixture
async def parts(tmp_path: Path) -> MemoryParts:
    found = MemoryParts.build(config(tmp_path))
    found.view.apply(update_metadata({"t": [partition_state(0), partition_state(1)]}))
    found.replicas.batches[T1] = [(0, 5, bytes(70)), (6, 7, bytes(30))]
    return found


# -- DeleteRecords -----------------------------------------------------------------------------------------


async def test_deleting_names_each_partition_once(
    parts: MemoryParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def delete_records(offsets: dict[PartitionKey, int], *, timeout_ms: int) -> Any:
        asked.append((offsets, timeout_ms))
        outcomes = (DeleteOutcome(ErrorCode.NONE, 4), DeleteOutcome(ErrorCode.REQUEST_TIMED_OUT, 1))
        return dict(zip(offsets, outcomes, strict=True))

    monkeypatch.setattr(parts.replicas, "delete_records", delete_records)
    rows = [{"partition_index": each, "offset": offset} for each, offset in ((0, 4), (1, -1), (0, 9))]
    values = {"topics": [{"name": "t", "partitions": rows}], "timeout": 1234}
    found = await ask(parts, ApiKey.DELETE_RECORDS, 2, values)
    assert asked == [({T0: 4, T1: -1}, 1234)]
    assert [
        (each.partition_index, each.low_watermark, each.error_code) for each in found.topics[0].partitions
    ] == [(0, 4, ErrorCode.NONE), (1, 1, ErrorCode.REQUEST_TIMED_OUT)]


async def test_deleting_from_an_unknown_topic_is_refused(parts: MemoryParts) -> None:
    rows = [{"partition_index": 0, "offset": 4}]
    values = {"topics": [{"name": "other", "partitions": rows}], "timeout": 1000}
    found = await ask(parts, ApiKey.DELETE_RECORDS, 0, values)
    assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- log directories ---------------------------------------------------------------------------------------


def log_dir(parts: MemoryParts) -> str:
    return str(Path(parts.services.config.broker.data_dir).absolute())


@pytest.mark.parametrize("version", [1, 4])
async def test_the_one_log_directory_says_what_it_holds(parts: MemoryParts, version: int) -> None:
    some = [{"topic": "t", "partitions": (1, 9, 1)}, {"topic": "other", "partitions": (0,)}]
    for topics, expected in ((None, [(0, 0), (1, 100)]), (some, [(1, 100)]), ([], [])):
        found = await ask(parts, ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
        (result,) = found.results
        assert (result.error_code, result.log_dir) == (ErrorCode.NONE, log_dir(parts))
        rows = [each for topic in result.topics for each in topic.partitions]
        assert [(each.partition_index, each.partition_size) for each in rows] == expected
        assert not any(each.offset_lag or each.is_future_key for each in rows)
        if version == 4:
            assert (result.total_bytes, result.usable_bytes) == (1000, 400)


async def test_a_log_directory_that_cannot_be_asked_says_so(parts: MemoryParts) -> None:
    parts.replicas.error = ErrorCode.KAFKA_STORAGE_ERROR
    found = await ask(parts, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    (result,) = found.results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())


async def test_a_log_moves_to_no_other_directory(parts: MemoryParts) -> None:
    parts.view.apply(update_metadata({"u": [partition_state(0)]}))
    here = log_dir(parts)

    def to(path: str, name: str, *numbers: int) -> Values:
        return {"path": path, "topics": [{"name": name, "partitions": numbers}]}

    dirs = [to(here, "t", 0, 9), to("/elsewhere", "t", 0, 1), to(here, "other", 0)]
    found = await ask(parts, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs})
    assert [
        (topic.topic_name, each.partition_index, each.error_code)
        for topic in found.results
        for each in topic.partitions
    ] == [
        ("t", 0, ErrorCode.NONE),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
        ("other", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_a_log_that_another_broker_has_is_not_here(
    parts: MemoryParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.replicas, "size", lambda _key: None)
    dirs = [{"path": log_dir(parts), "topics": [{"name": "t", "partitions": (0,)}]}]
    found = await ask(parts, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": dirs})
    assert found.results[0].partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE


# -- producers and quotas ----------------------------------------------------------------------------------


async def test_producers_of_a_log_are_named(parts: MemoryParts) -> None:
    asked = {
        "topics": [{"name": "t", "partition_indexes": (1, 1, 0)}, {"name": "u", "partition_indexes": (0,)}]
    }
    found = await ask(parts, ApiKey.DESCRIBE_PRODUCERS, 0, asked)
    written, empty = found.topics[0].partitions
    assert (written.partition_index, empty.partition_index) == (1, 0)
    assert [
        (each.producer_id, each.last_sequence, each.last_timestamp) for each in written.active_producers
    ] == [
        (7, 5, 5),
        (7, 7, 5),
    ]
    assert {each.coordinator_epoch for each in written.active_producers} == {3}
    assert [each.current_txn_start_offset for each in written.active_producers] == [4, 6]
    assert (empty.error_code, empty.active_producers) == (ErrorCode.NONE, ())
    assert found.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_no_quota_is_set(parts: MemoryParts) -> None:
    found = await ask(parts, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": (), "strict": False})
    assert (found.error_code, found.error_message, found.entries) == (ErrorCode.NONE, None, ())


# -- pages of topics ---------------------------------------------------------------------------------------


async def pages(parts: MemoryParts, *names: str, limit: int, cursor: Values | None = None) -> list[Any]:
    """Ask page after page, as a client does; returns the topics of each."""
    found = []
    while True:
        asked = {
            "topics": [{"name": name} for name in names],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        page = await ask(parts, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        found.append([(each.name, [row.partition_index for row in each.partitions]) for each in page.topics])
        if page.next_cursor is None:
            return found
        cursor = {
            "topic_name": page.next_cursor.topic_name,
            "partition_index": page.next_cursor.partition_index,
        }


@pytest.fixture
def topics(parts: MemoryParts) -> MemoryParts:
    parts.view.topics.clear()
    sizes = {"c": 1, "a": 3, "b": 2}
    parts.view.apply(
        update_metadata(
            {name: [partition_state(each) for each in range(size)] for name, size in sizes.items()}
        )
    )
    return parts


async def test_pages_hold_as_many_partitions_as_were_asked_for(topics: MemoryParts) -> None:
    assert await pages(topics, limit=2000) == [[("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]]
    assert await pages(topics, limit=2) == [
        [("a", [0, 1])],
        [("a", [2]), ("b", [0])],
        [("b", [1]), ("c", [0])],
    ]
    assert await pages(topics, limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1]), ("c", [0])]]
    assert len(await pages(topics, limit=0)) == 6
    assert await pages(topics, "c", "a", limit=3) == [[("a", [0, 1, 2])], [("c", [0])]]


async def test_a_page_begins_at_its_cursor(topics: MemoryParts) -> None:
    cursor = {"topic_name": "a", "partition_index": 2}
    assert await pages(topics, "a", "c", limit=9, cursor=cursor) == [[("a", [2]), ("c", [0])]]
    assert await pages(topics, limit=9, cursor={"topic_name": "aa", "partition_index": 5}) == [
        [("b", [0, 1]), ("c", [0])]
    ]


async def test_a_topic_of_a_page_has_its_id_leader_and_replicas(topics: MemoryParts) -> None:
    topics.view.apply(update_metadata({"c": [partition_state(0, leader=-1, leader_epoch=8)]}))
    asked = {"topics": [{"name": "c"}], "response_partition_limit": 2000, "cursor": None}
    found = await ask(topics, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
    (topic,) = found.topics
    (row,) = topic.partitions
    assert (topic.topic_id, row.leader_id, row.leader_epoch) == (topic_id("c"), -1, 8)
    assert (row.replica_nodes, row.isr_nodes, row.offline_replicas) == ((1,), (1,), ())
    assert (row.eligible_leader_replicas, row.last_known_elr) == ((), ())


async def test_topics_that_are_not_there_have_no_place_in_the_page(topics: MemoryParts) -> None:
    asked = {
        "topics": [{"name": name} for name in ("zz", "no such/name", "a")],
        "response_partition_limit": 3,
        "cursor": None,
    }
    found = await ask(topics, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
    assert [(each.name, each.error_code) for each in found.topics] == [("a", ErrorCode.NONE)]
    found = await ask(topics, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {**asked, "response_partition_limit": 4})
    assert [(each.name, each.error_code) for each in found.topics] == [
        ("a", ErrorCode.NONE),
        ("no such/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("zz", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_a_cursor_that_leads_nowhere_is_refused(topics: MemoryParts, cursor: tuple[str, int]) -> None:
    asked = {
        "topics": [{"name": "a"}, {"name": "c"}],
        "response_partition_limit": 3,
        "cursor": {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    found = await ask(topics, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
    assert [each.error_code for each in found.topics] == [ErrorCode.INVALID_REQUEST] * 2
