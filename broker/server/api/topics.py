"""CreateTopics, DeleteTopics and CreatePartitions: what only the controller does.

Decides what is wrong with a request by itself (a topic named twice); the rest is the controller's. A broker
that is not the controller says so for every topic, and clients go to the one that is.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-4, KIP-195, KIP-516.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.server.api.partitions import partition_error
from broker.server.api.topic_config_rows import topic_config_rows
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.server.throttling import Mutations
from broker.wire.codec import Values, milliseconds
from controller.core.outcomes import TopicOutcome
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import TOPIC_PARTITIONS_MAX
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType


class _Result(NamedTuple):
    """What became of one topic; requests without a topic id or settings in their answers drop those."""

    name: str | None
    error_code: int
    error_message: str | None
    topic_id: uuid.UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[Values] = ()


def _not_controller(name: str | None, topic_id: uuid.UUID | None = None) -> Values:
    problem = "this broker is not the controller"
    return _Result(name, ErrorCode.NOT_CONTROLLER, problem, topic_id)._asdict()


#: From these versions on single topics are refused by a quota; before, the whole request only throttles.
_STRICT_CREATE: Final = 6
_STRICT_ADD: Final = 3
_STRICT_DELETE: Final = 5


async def create_topics(services: BrokerServices, call: Call) -> Answer:
    """Create topics, or only check them."""
    request = call.body
    controller = services.active_controller()
    if controller is None:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return {"topics": [_not_controller(name) for name in names]}
    counts = Counter(topic.name for topic in request.topics)
    wanted: list[NewTopic] = []
    refused: dict[str, Values] = {}
    mutations = Mutations(services, call, strict_since=_STRICT_CREATE, counts=not request.validate_only)
    for topic in request.topics:
        new = _new_topic(topic, counts[topic.name])
        if isinstance(new, NewTopic):
            refusal = mutations.refusal(new.name, _partition_count(services, new))
            new = new if refusal is None else _Result(topic.name, *refusal)
        if isinstance(new, NewTopic):
            wanted.append(new)
        else:
            refused[topic.name] = new._asdict()
    outcomes: Mapping[str, TopicOutcome] = {}
    count = sum(_partition_count(services, topic) for topic in wanted)
    if count > TOPIC_PARTITIONS_MAX and len(wanted) > 1:
        outcomes = {topic.name: _too_many(count) for topic in wanted}
    elif wanted:
        outcomes = await controller.create_topics(
            wanted, timeout_ms=milliseconds(request.timeout), validate_only=request.validate_only
        )
    created = (_created_row(services, call, name, outcome) for name, outcome in outcomes.items())
    rows = (row for rows in (refused.values(), created) for row in rows)
    return {"topics": rows, "throttle_time": mutations.end(outcomes)}


def _new_topic(topic: Any, count: int) -> NewTopic | _Result:
    if count > 1:
        return _Result(topic.name, ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
    assignments: dict[int, tuple[int, ...]] | None = None
    if topic.assignments:
        assignments = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        if len(assignments) != len(topic.assignments):
            problem = "a partition is assigned twice"
            return _Result(topic.name, ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    settings = {each.name: each.value for each in topic.configs}
    if len(settings) != len(topic.configs):
        return _Result(topic.name, ErrorCode.INVALID_CONFIG, "a setting is given twice")
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignments, settings)


def _partition_count(services: BrokerServices, topic: NewTopic) -> int:
    if topic.assignments is not None:
        return len(topic.assignments)
    return max(
        topic.num_partitions if topic.num_partitions != -1 else services.config.broker.num_partitions, 1
    )


def _too_many(count: int) -> TopicOutcome:
    # Kafka's controller has the same bound (MAX_PARTITIONS_PER_BATCH).
    problem = f"{count} partitions in one request, at most {TOPIC_PARTITIONS_MAX}: ask in several requests"
    return TopicOutcome(ErrorCode.POLICY_VIOLATION, problem)


def _created_row(services: BrokerServices, call: Call, name: str, outcome: TopicOutcome) -> Values:
    if outcome.error_code != ErrorCode.NONE:
        return _Result(name, outcome.error_code, outcome.message)._asdict()
    if not call.access.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        row = _Result(name, outcome.error_code, outcome.message, outcome.topic_id)._asdict()
        return {**row, "configs": None, "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    return _Result(
        name,
        outcome.error_code,
        outcome.message,
        outcome.topic_id,
        outcome.num_partitions,
        outcome.replication_factor,
        [row.values() for row in topic_config_rows(services.topic_configs.defaults, outcome.settings or {})],
    )._asdict()


async def delete_topics(services: BrokerServices, call: Call) -> Answer:
    """Delete topics, by name or by id."""
    request = call.body
    by_state = call.request.api_version >= 6
    asked: list[tuple[str | None, uuid.UUID | None]] = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if by_state
        else [(name, None) for name in request.topic_names]
    )
    controller = services.active_controller()
    if controller is None:
        return {"responses": [_not_controller(name, found) for name, found in dict.fromkeys(asked)]}
    counts = Counter(
        services.view.topic_name(found) if name is None else name
        for name, found in asked
        if name is None or found is None
    )
    rows: list[Values] = []
    wanted: dict[str, uuid.UUID | None] = {}
    mutations = Mutations(services, call, strict_since=_STRICT_DELETE)
    for name, found in dict.fromkeys(asked):
        named = name
        if found is not None and name is None:
            named = services.view.topic_name(found)
        if found is not None and name is not None:
            code, problem = ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        elif found is None and name is None:
            code, problem = ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
        elif named is None:
            code, problem = ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        elif counts[named] > 1:
            code, problem = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        elif (refusal := mutations.refusal(named, _partitions_of(services, named))) is not None:
            code, problem = refusal
        else:
            wanted[named] = found
            continue
        rows.append(_Result(name, code, problem, found)._asdict())
    outcomes: Mapping[str, TopicOutcome] = {}
    if wanted:
        outcomes = await controller.delete_topics(list(wanted), timeout_ms=milliseconds(request.timeout))
        rows += [_deleted_row(services, name, outcomes[name], found) for name, found in wanted.items()]
    return {"responses": rows, "throttle_time": mutations.end(outcomes)}


def _partitions_of(services: BrokerServices, topic: str) -> int:
    found = services.view.topics.get(topic)
    return 0 if found is None else len(found.partitions)


def _deleted_row(
    services: BrokerServices, name: str, outcome: TopicOutcome, asked_id: uuid.UUID | None
) -> Values:
    error_code = partition_error(services.view, ErrorCode(outcome.error_code))
    return _Result(name, error_code, outcome.message, outcome.topic_id or asked_id)._asdict()


async def create_partitions(services: BrokerServices, call: Call) -> Answer:
    """Add partitions to topics, or only check that."""
    request = call.body
    controller = services.active_controller()
    if controller is None:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return {"results": [_not_controller(name) for name in names]}
    counts = Counter(topic.name for topic in request.topics)
    rows: dict[str, Values] = {
        name: _Result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")._asdict()
        for name, count in counts.items()
        if count > 1
    }
    mutations = Mutations(services, call, strict_since=_STRICT_ADD, counts=not request.validate_only)
    wanted: list[NewPartitions] = []
    added = 0
    for each in (_new_partitions(topic) for topic in request.topics if topic.name not in rows):
        count = max(each.count - _partitions_of(services, each.name), 1)
        if (refusal := mutations.refusal(each.name, count)) is not None:
            rows[each.name] = _Result(each.name, *refusal)._asdict()
            continue
        wanted.append(each)
        added += count
    outcomes: Mapping[str, TopicOutcome] = {}
    if added > TOPIC_PARTITIONS_MAX and len(wanted) > 1:
        outcomes = {each.name: _too_many(added) for each in wanted}
    elif wanted:
        outcomes = await controller.create_partitions(
            wanted, timeout_ms=milliseconds(request.timeout), validate_only=request.validate_only
        )
    for name, outcome in outcomes.items():
        rows[name] = _Result(name, outcome.error_code, outcome.message)._asdict()
    return {"results": list(rows.values()), "throttle_time": mutations.end(outcomes)}


def _new_partitions(topic: Any) -> NewPartitions:
    assignments = topic.assignments
    replicas = None if assignments is None else [tuple(each.broker_ids) for each in assignments]
    return NewPartitions(topic.name, topic.count, replicas)
