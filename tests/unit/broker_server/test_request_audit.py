"""What of administrative requests and their answers becomes a line of the audit log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from broker.server.audit import RequestAudit, note_created
from broker.server.requests import Request
from controller.wire.apis import ApiKey
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.platform.audit import AuditLog

TOPIC_ID = uuid.UUID(int=7)


class Row(NamedTuple):
    name: str
    error_code: int


def request(api_key: int) -> Request:
    body = memoryview(b"")
    return Request(
        api_key, 0, 41, None, body, 0, 0.0, client_host="10.0.0.9", peer="10.0.0.9:1", principal="User:dave"
    )


class Lines:
    """The lines of one log."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "audit.log"
        self._log = AuditLog(self._path, file_bytes_max=1 << 20, files_max=1)
        self._log.start()
        self.audit = RequestAudit(self._log)

    def of(self, *keys: str) -> list[tuple[object, ...]]:
        self._log.stop()
        found = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [tuple(each[key] for key in keys) for each in found]


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    return Lines(tmp_path)


ANSWERS: list[tuple[int, dict[str, Any], Mapping[str, object], list[tuple[str, str]]]] = [
    (
        ApiKey.DELETE_TOPICS,
        {},
        {"responses": [{"name": None, "topic_id": TOPIC_ID, "error_code": 100}, Row("b", 0)]},
        [(f"Topic:LITERAL:{TOPIC_ID}", "failed"), ("Topic:LITERAL:b", "allowed")],
    ),
    (
        ApiKey.DELETE_RECORDS,
        {},
        {"topics": [{"name": "a", "partitions": [{"error_code": 0}, {"error_code": 1}]}]},
        [("Topic:LITERAL:a", "failed")],
    ),
    (
        ApiKey.ALTER_CONFIGS,
        {},
        {
            "responses": [
                {"resource_type": 2, "resource_name": "a", "error_code": 0},
                {"resource_type": 4, "resource_name": "1", "error_code": 40},
            ]
        },
        [("Topic:LITERAL:a", "allowed"), ("Broker:LITERAL:1", "failed")],
    ),
    (
        ApiKey.DELETE_ACLS,
        {
            "filters": [
                SimpleNamespace(resource_type_filter=3, pattern_type_filter=4, resource_name_filter="g"),
                SimpleNamespace(resource_type_filter=1, pattern_type_filter=1, resource_name_filter=None),
            ]
        },
        {"filter_results": [{"error_code": 0, "matching_acls": [{"error_code": 0}]}, {"error_code": 54}]},
        [
            ("Group:PREFIXED:g (any any any from any)", "allowed"),
            ("All:ANY:* (any any any from any)", "failed"),
        ],
    ),
    (
        49,
        {},
        {
            "entries": [
                {
                    "error_code": 0,
                    "entity": [
                        {"entity_type": "user", "entity_name": "eve"},
                        {"entity_type": "client-id", "entity_name": None},
                    ],
                }
            ]
        },
        [("ClientQuota:user=eve,client-id=<default>", "allowed")],
    ),
    (
        ApiKey.ELECT_LEADERS,
        {},
        {"error_code": 41, "replica_election_results": ()},
        [("Cluster:LITERAL:kafka-cluster", "failed")],
    ),
    (ApiKey.DELETE_GROUPS, {}, {"results": [{"group_id": "g", "error_code": 30}]}, []),
    (ApiKey.METADATA, {}, {"topics": [{"name": "a", "error_code": 3}]}, []),
]


@pytest.mark.parametrize(("api_key", "body", "answer", "wanted"), ANSWERS)
def test_each_item_is_named_with_its_outcome(
    lines: Lines,
    api_key: int,
    body: dict[str, Any],
    answer: Mapping[str, object],
    wanted: list[tuple[str, str]],
) -> None:
    found = lines.audit.answered(request(api_key), SimpleNamespace(**body), answer, from_broker=False)
    assert found == answer
    assert lines.of("resource", "outcome") == wanted


def test_rows_that_are_made_later_are_answered_all_the_same(lines: Lines) -> None:
    answer = {"topics": (row for row in [{"name": "a", "error_code": 0}])}
    found = lines.audit.answered(request(ApiKey.CREATE_TOPICS), None, answer, from_broker=True)
    assert found == {"topics": [{"name": "a", "error_code": 0}]}
    assert lines.of("principal", "operation", "request") == [("broker", "CreateTopics", 41)]


def test_a_denial_is_noted_once_a_request(lines: Lines) -> None:
    denied = lines.audit.denials(request(ApiKey.FETCH))
    for _ in range(3):
        denied(Operation.READ, ResourceType.TOPIC, "a")
    denied(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "kafka-cluster")
    denied(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
    assert lines.of("principal", "address", "operation", "resource", "outcome", "request", "session") == [
        ("User:dave", "10.0.0.9:1", operation, resource, "denied", 41, None)
        for operation, resource in (
            ("Read", "Topic:LITERAL:a"),
            ("IdempotentWrite", "Cluster:LITERAL:kafka-cluster"),
            ("Write", "TransactionalId:LITERAL:t"),
        )
    ]


def test_topics_that_a_client_has_made_by_asking_are_noted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "made.log", file_bytes_max=1 << 20, files_max=1)
    log.start()
    note_created(log, request(ApiKey.METADATA), ["a", "b"], {"b": 5})
    log.stop()
    found = [json.loads(line) for line in (tmp_path / "made.log").read_text().splitlines()]
    assert [(each["principal"], each["resource"], each["outcome"]) for each in found] == [
        ("User:dave", "Topic:LITERAL:a", "allowed"),
        ("User:dave", "Topic:LITERAL:b", "failed"),
    ]


def test_a_claimed_name_is_cut(lines: Lines) -> None:
    lines.audit.unproved("10.0.0.9:1", "User:" + "x" * 10_000, "PLAIN")
    ((principal, operation),) = lines.of("principal", "operation")
    assert (len(str(principal)), operation) == (255, "Authenticate")
