"""A principal without rights is refused by every request, in every version, with the code of the resource."""

from __future__ import annotations

import uuid
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.access.asking import CLUSTER_NAME, REFUSED_BY, Access
from broker.core.access.lists import ANONYMOUS, AccessLists, Principal
from broker.core.cluster_view import ClusterView
from broker.server.guards import GUARDS, Guard, guarded, with_refused
from broker.server.requests import Call, Request
from broker.server.table import FOR_GUARDED_CLIENTS
from broker.wire.codec import decode_request, decode_response, encode_request, encode_response, request_type
from controller.core.brokers import CLIENT_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import (
    AclEntry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tests.support.broker_services import services
from tests.support.wire_values import WireValues

VALUES = WireValues(("t", "g"), (uuid.UUID(int=1),))
CODES = {*REFUSED_BY.values(), ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}
GUARDED = sorted(key for key, guard in GUARDS.items() if guard != Guard())
ALICE = Principal("User:alice", "10.0.0.1")


def call_of(api_key: int, version: int, body: Any, lists: AccessLists, principal: Principal = ALICE) -> Call:
    request = Request(api_key, version, 1, "c", memoryview(b""), 0, 0.0)
    return Call(
        request,
        body,
        from_broker=False,
        records=(),
        listener=CLIENT_LISTENER,
        access=Access(lists, principal),
    )


def codes_in(message: Any) -> list[int]:
    """Return every error code of a response."""
    found: list[int] = []
    for field in fields(message):
        value = getattr(message, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            found.append(value)
        for each in value if isinstance(value, tuple) else ():
            if is_dataclass(each):
                found += codes_in(each)
    return found


def test_every_request_has_its_guard() -> None:
    assert set(GUARDS) == set(FOR_GUARDED_CLIENTS)


@pytest.mark.parametrize("api_key", GUARDED, ids=lambda key: ApiKey(key).name)
def test_nothing_is_left_without_a_right(api_key: ApiKey) -> None:
    versions = FOR_GUARDED_CLIENTS[api_key].versions

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(versions.low, versions.high))
        body = data.draw(VALUES.of(request_type(api_key, version)))
        left, refused = guarded(services(ClusterView()), call_of(api_key, version, body, AccessLists()))
        if left is None:
            answer = decode_response(api_key, version, encode_response(api_key, version, refused))
            found = codes_in(answer)
            assert set(found) <= CODES
            # The code of the whole is 0 where its rows are refused.
            assert all(found[1:] if hasattr(answer, "error_code") else found)
        else:
            # Only what names nothing is carried out, or what has an id that no topic has.
            named = [items.asked for items in GUARDS[api_key].items]
            for name in named:
                kept = getattr(left.body, name, None) or ()
                assert not any(isinstance(each, str) or getattr(each, "name", "") for each in kept)

    check()


def test_what_is_allowed_is_left_and_the_rest_is_answered() -> None:
    lists = AccessLists()
    entry = AclEntry(ALICE.name, "*", Operation.DESCRIBE, Permission.ALLOW)
    lists.replace(Pattern(ResourceType.TOPIC, PatternType.LITERAL, "mine"), frozenset({entry}))
    kind = request_type(ApiKey.LIST_OFFSETS, 7)
    topic_type = get_args(next(each.type for each in fields(kind) if each.name == "topics"))[0]
    body = kind(
        replica_id=-1,
        isolation_level=0,
        topics=tuple(topic_type(name=name, partitions=()) for name in ("mine", "theirs")),
    )
    left, refused = guarded(services(ClusterView()), call_of(ApiKey.LIST_OFFSETS, 7, body, lists))
    assert left is not None
    assert [each.name for each in left.body.topics] == ["mine"]
    answer = with_refused({"topics": [{"name": "mine", "partitions": []}]}, refused)
    assert isinstance(answer, dict)
    assert sorted(each["name"] for each in answer["topics"]) == ["mine", "theirs"]


def test_a_producer_without_an_id_needs_any_topic() -> None:
    lists = AccessLists()
    kind = request_type(ApiKey.INIT_PRODUCER_ID, 4)
    body = kind(transactional_id=None, transaction_timeout=0, producer_id=-1, producer_epoch=-1)
    asked = call_of(ApiKey.INIT_PRODUCER_ID, 4, body, lists)
    assert guarded(services(ClusterView()), asked).call is None
    for name, permission, left in (("t", Permission.ALLOW, True), ("*", Permission.DENY, False)):
        entry = AclEntry("User:*", "*", Operation.WRITE, permission)
        lists.replace(Pattern(ResourceType.TOPIC, PatternType.LITERAL, name), frozenset({entry}))
        assert (guarded(services(ClusterView()), asked).call is not None) is left
    anonymous = asked._replace(access=Access(lists, Principal(ANONYMOUS, "10.0.0.1")))
    assert guarded(services(ClusterView()), anonymous).call is None


@pytest.mark.parametrize(
    ("operation", "is_left"),
    [(Operation.ALTER, True), (Operation.CLUSTER_ACTION, True), (Operation.DESCRIBE, False)],
)
def test_markers_need_one_of_two_rights(operation: Operation, is_left: bool) -> None:
    marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 1}
    topics = [{"name": name, "partition_indexes": [0, 1]} for name in ("t", "u")]
    asked = encode_request(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [{**marker, "topics": topics}]})
    body = decode_request(ApiKey.WRITE_TXN_MARKERS, 1, memoryview(asked))
    lists = AccessLists()
    entry = AclEntry(ALICE.name, "*", operation, Permission.ALLOW)
    lists.replace(Pattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME), frozenset({entry}))
    left, refused = guarded(services(ClusterView()), call_of(ApiKey.WRITE_TXN_MARKERS, 1, body, lists))
    assert (left is not None) is is_left
    if not is_left:
        encoded = encode_response(ApiKey.WRITE_TXN_MARKERS, 1, refused)
        answer = decode_response(ApiKey.WRITE_TXN_MARKERS, 1, encoded)
        assert codes_in(answer) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 4
