"""What each request needs the right to, and the answer that a client gets without it.

A request, or one item of it, is refused before its handler sees it; the handler carries out what is left.
Listings (all topics, all groups) and packed answers are filtered by their handlers, by `Call.access`.
A name that may not be described is refused whether it exists or not.
Source: Kafka's security guide, "Operations and resources on protocols"; KafkaApis (3.9).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import chain
from types import GeneratorType, MappingProxyType
from typing import Final, NamedTuple

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, response_type, row_kind
from broker.wire.refused import refused
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID = ResourceType.TRANSACTIONAL_ID

#: Why a request or an item is refused; None: it is not.
_Refusal = ErrorCode | None
_Whole = Callable[[Call], _Refusal]
_Item = Callable[[BrokerServices, Call, object], _Refusal]


class Items(NamedTuple):
    """Items of a request that are refused one by one."""

    #: array of the request
    asked: str
    #: array of the response
    answered: str
    refusal: _Item
    #: what the others get where one is refused; None: they are carried out
    others: ErrorCode | None = None


class Guard(NamedTuple):
    """What one request needs."""

    whole: _Whole = lambda _: None
    items: tuple[Items, ...] = ()


class Guarded(NamedTuple):
    """What is left of a request."""

    #: None: nothing
    call: Call | None
    #: {array: rows} of what is refused; the whole answer where nothing is left
    refused: Values


def guarded(services: BrokerServices, call: Call) -> Guarded:
    """Take out of a request what its principal may not do."""
    guard = GUARDS[ApiKey(call.request.api_key)]
    kind: object = response_type(call.request.api_key, call.request.api_version)
    if (code := guard.whole(call)) is not None:
        return Guarded(None, refused(kind, call.body, code))
    rows: dict[str, list[Values]] = {}
    for items in guard.items:
        asked = getattr(call.body, items.asked, None)
        if not asked:
            continue
        codes = [items.refusal(services, call, each) for each in asked]
        if not any(codes):
            continue
        below = row_kind(kind, items.answered)
        kept = tuple(each for each, code in zip(asked, codes, strict=True) if not code)
        rows[items.answered] = [
            refused(below, each, code) for each, code in zip(asked, codes, strict=True) if code
        ]
        if items.others is not None:
            rows[items.answered] += [refused(below, each, items.others) for each in kept]
            kept = ()
        if not kept:
            return Guarded(None, {**refused(kind, None, ErrorCode.NONE), **rows})
        call = call._replace(body=dataclasses.replace(call.body, **{items.asked: kept}))
    return Guarded(call, rows)


def with_refused(answer: Answer, rows: Values) -> Answer:
    """Add refused rows to an answer."""
    if not rows:
        return answer
    assert isinstance(answer, Mapping), "packed answers are filtered by their handlers"
    added = {}
    for name, some in rows.items():
        found = answer[name]
        # What is made while it is written stays so.
        is_made_later = isinstance(found, GeneratorType)
        added[name] = (row for row in chain(some, found)) if is_made_later else [*some, *found]
    return {**answer, **added}


# -- what requests need ------------------------------------------------------------------------------------


def _whole(operation: Operation, resource_type: ResourceType, *fields: str) -> _Whole:
    """Need a right to the resource that the first of these fields names, or to the cluster."""

    def refusal(call: Call) -> _Refusal:
        if not fields:
            return call.access.refusal(operation, resource_type)
        names = (getattr(call.body, field, None) for field in fields)
        name = next((each for each in names if each is not None), None)
        return None if name is None else call.access.refusal(operation, resource_type, name)

    return refusal


def _all(*needed: _Whole) -> _Whole:
    return lambda call: next((code for each in needed if (code := each(call)) is not None), None)


def _any(*sufficient: _Whole) -> _Whole:
    """Need one of these rights; a refusal names the last."""

    def refusal(call: Call) -> _Refusal:
        codes = [each(call) for each in sufficient]
        return codes[-1] if all(codes) else None

    return refusal


def _items(
    operation: Operation, resource_type: ResourceType, asked: str, answered: str, field: str | None = "name"
) -> Items:
    """Need a right to the resource that each item of an array names."""

    def refusal(_services: BrokerServices, call: Call, item: object) -> _Refusal:
        name = str(item if field is None else getattr(item, field))
        return call.access.refusal(operation, resource_type, name)

    return Items(asked, answered, refusal)


def _new_topic(_services: BrokerServices, call: Call, item: object) -> _Refusal:
    if call.access.allows(Operation.CREATE, _CLUSTER):
        return None
    return call.access.refusal(Operation.CREATE, _TOPIC, _name(item))


def _deleted_topic(services: BrokerServices, call: Call, item: object) -> _Refusal:
    # An id that no topic has is nobody's.
    name = _name(item) or services.view.topic_name(getattr(item, "topic_id", None))
    return None if name is None else call.access.refusal(Operation.DELETE, _TOPIC, name)


def _committed_topic(services: BrokerServices, call: Call, item: object) -> _Refusal:
    topic_id = getattr(item, "topic_id", None)
    name = _name(item) if topic_id is None else services.view.topic_name(topic_id)
    return None if name is None else call.access.refusal(Operation.READ, _TOPIC, name)


def _name(item: object) -> str:
    """Return the name that an item has, "" if it has an id."""
    return getattr(item, "name", None) or ""


def _settings(topics: Operation) -> _Item:
    def refusal(_services: BrokerServices, call: Call, item: object) -> _Refusal:
        # ConfigResource.Type.TOPIC; all others are of brokers
        if getattr(item, "resource_type", None) == 2:
            return call.access.refusal(topics, _TOPIC, getattr(item, "resource_name", ""))
        return call.access.refusal(topics, _CLUSTER)

    return refusal


def _coordinated(call: Call, name: str) -> _Refusal:
    is_group = getattr(call.body, "key_type", 0) == 0
    return call.access.refusal(Operation.DESCRIBE, _GROUP if is_group else _ID, name)


def _one_coordinated(call: Call) -> _Refusal:
    key = getattr(call.body, "key", None)
    return None if key is None else _coordinated(call, key)


def _producer(call: Call) -> _Refusal:
    """A producer without transactions needs to write to the cluster, or to any topic (KIP-679)."""
    transactional_id = call.body.transactional_id
    if transactional_id is not None:
        return call.access.refusal(Operation.WRITE, _ID, transactional_id)
    if call.access.allows_some(Operation.WRITE, _TOPIC):
        return None
    return call.access.refusal(Operation.IDEMPOTENT_WRITE, _CLUSTER)


_READ_GROUP: Final = Guard(_whole(Operation.READ, _GROUP, "group_id"))
_WRITE_ID: Final = _whole(Operation.WRITE, _ID, "transactional_id", "v3_and_below_transactional_id")
_ALTER_CLUSTER: Final = Guard(_whole(Operation.ALTER, _CLUSTER))
_DESCRIBE_CLUSTER: Final = Guard(_whole(Operation.DESCRIBE, _CLUSTER))
#: Their handlers ask for each topic, group or id that they answer with.
_BY_HANDLER: Final = Guard()
_READ_TOPICS: Final = (_items(Operation.READ, _TOPIC, "topics", "topics"),)
_DESCRIBE_TOPICS: Final = _items(Operation.DESCRIBE, _TOPIC, "topics", "topics")
_ADDED_TOPICS: Final = _items(
    Operation.WRITE, _TOPIC, "v3_and_below_topics", "results_by_topic_v3_and_below"
)._replace(others=ErrorCode.OPERATION_NOT_ATTEMPTED)

GUARDS: Final[Mapping[ApiKey, Guard]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _BY_HANDLER,
        ApiKey.FETCH: _BY_HANDLER,
        ApiKey.LIST_OFFSETS: Guard(items=(_DESCRIBE_TOPICS,)),
        ApiKey.METADATA: _BY_HANDLER,
        ApiKey.OFFSET_COMMIT: Guard(_READ_GROUP.whole, (Items("topics", "topics", _committed_topic),)),
        ApiKey.OFFSET_FETCH: Guard(
            _whole(Operation.DESCRIBE, _GROUP, "group_id"),
            (_items(Operation.DESCRIBE, _GROUP, "groups", "groups", "group_id"),),
        ),
        ApiKey.FIND_COORDINATOR: Guard(
            _one_coordinated,
            (Items("coordinator_keys", "coordinators", lambda _, call, name: _coordinated(call, str(name))),),
        ),
        ApiKey.JOIN_GROUP: _READ_GROUP,
        ApiKey.HEARTBEAT: _READ_GROUP,
        ApiKey.LEAVE_GROUP: _READ_GROUP,
        ApiKey.SYNC_GROUP: _READ_GROUP,
        ApiKey.DESCRIBE_GROUPS: Guard(items=(_items(Operation.DESCRIBE, _GROUP, "groups", "groups", None),)),
        ApiKey.LIST_GROUPS: _BY_HANDLER,
        ApiKey.SASL_HANDSHAKE: Guard(),
        ApiKey.API_VERSIONS: Guard(),
        ApiKey.CREATE_TOPICS: Guard(items=(Items("topics", "topics", _new_topic),)),
        ApiKey.DELETE_TOPICS: Guard(
            items=(
                Items("topics", "responses", _deleted_topic),
                _items(Operation.DELETE, _TOPIC, "topic_names", "responses", None),
            )
        ),
        ApiKey.DELETE_RECORDS: Guard(items=(_items(Operation.DELETE, _TOPIC, "topics", "topics"),)),
        ApiKey.INIT_PRODUCER_ID: Guard(_producer),
        ApiKey.ADD_PARTITIONS_TO_TXN: Guard(_WRITE_ID, (_ADDED_TOPICS,)),
        ApiKey.ADD_OFFSETS_TO_TXN: Guard(_all(_WRITE_ID, _READ_GROUP.whole)),
        ApiKey.END_TXN: Guard(_WRITE_ID),
        ApiKey.TXN_OFFSET_COMMIT: Guard(_all(_WRITE_ID, _READ_GROUP.whole), _READ_TOPICS),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Guard(
            items=(_items(Operation.DESCRIBE, _TOPIC, "topics", "topics", "topic"),)
        ),
        ApiKey.WRITE_TXN_MARKERS: Guard(
            _any(_ALTER_CLUSTER.whole, _whole(Operation.CLUSTER_ACTION, _CLUSTER))
        ),
        ApiKey.DESCRIBE_ACLS: _DESCRIBE_CLUSTER,
        ApiKey.CREATE_ACLS: _ALTER_CLUSTER,
        ApiKey.DELETE_ACLS: _ALTER_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS: Guard(
            items=(Items("resources", "results", _settings(Operation.DESCRIBE_CONFIGS)),)
        ),
        ApiKey.ALTER_CONFIGS: Guard(
            items=(Items("resources", "responses", _settings(Operation.ALTER_CONFIGS)),)
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _BY_HANDLER,
        ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE_CLUSTER,
        ApiKey.SASL_AUTHENTICATE: Guard(),
        ApiKey.CREATE_PARTITIONS: Guard(items=(_items(Operation.ALTER, _TOPIC, "topics", "results"),)),
        ApiKey.DELETE_GROUPS: Guard(
            items=(_items(Operation.DELETE, _GROUP, "groups_names", "results", None),)
        ),
        ApiKey.ELECT_LEADERS: _ALTER_CLUSTER,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Guard(
            items=(Items("resources", "responses", _settings(Operation.ALTER_CONFIGS)),)
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER_CLUSTER,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE_CLUSTER,
        ApiKey.OFFSET_DELETE: Guard(_whole(Operation.DELETE, _GROUP, "group_id"), _READ_TOPICS),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Guard(_whole(Operation.DESCRIBE_CONFIGS, _CLUSTER)),
        ApiKey.ALTER_CLIENT_QUOTAS: _BY_HANDLER,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _BY_HANDLER,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _BY_HANDLER,
        ApiKey.DESCRIBE_CLUSTER: Guard(),
        ApiKey.DESCRIBE_PRODUCERS: Guard(items=_READ_TOPICS),
        ApiKey.DESCRIBE_TRANSACTIONS: Guard(
            items=(_items(Operation.DESCRIBE, _ID, "transactional_ids", "transaction_states", None),)
        ),
        ApiKey.LIST_TRANSACTIONS: _BY_HANDLER,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _READ_GROUP,
        ApiKey.CONSUMER_GROUP_DESCRIBE: Guard(
            items=(_items(Operation.DESCRIBE, _GROUP, "group_ids", "groups", None),)
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _BY_HANDLER,
    }
)
