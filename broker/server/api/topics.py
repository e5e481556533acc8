"""CreateTopics, DeleteTopics and CreatePartitions: what only the controller does.

Decides what is wrong with a request by itself (a topic named twice); the rest is the controller's. A broker
that is not the controller says so for every topic, and clients go to the one that is.
Source: control-plane design, "init_leaders / topics"; KIP-4, KIP-195, KIP-516.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker.server.api.partitions import partition_error
from broker.server.api.topic_config_rows import topic_config_rows
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.core.outcomes import TopicOutcome
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import TOPIC_PARTITIONS_MAX
from controller.wire.codes import ErrorCode


class _RefusedError(Exception):
    """One topic of a request is wrong by itself."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
        self.message = message


def _row(name: str | None, error_code: int, message: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": error_code, "error_message": message}


def _not_controller(name: str | None) -> dict[str, Any]:
    return _row(name, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")


async def create_topics(services: BrokerServices, call: Call) -> Answer:
    """Create topics, or only check them."""
    request = call.body
    controller = services.active_controller()
    if controller is None:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return {"topics": [_new_topic_row(_not_controller(name)) for name in names]}
    counts = Counter(topic.name for topic in request.topics)
    wanted: list[NewTopic] = []
    refused: dict[str, Values] = {}
    for topic in request.topics:
        try:
            if counts[topic.name] > 1:
                raise _RefusedError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            wanted.append(_new_topic(topic))
        except _RefusedError as error:
            refused[topic.name] = _new_topic_row(_row(topic.name, error.error_code, error.message))
    outcomes: Mapping[str, TopicOutcome] = {}
    count = sum(_partition_count(services, topic) for topic in wanted)
    if count > TOPIC_PARTITIONS_MAX and len(wanted) > 1:
        outcomes = {topic.name: _too_many(count) for topic in wanted}
    elif wanted:
        outcomes = await controller.create_topics(
            wanted, timeout_ms=milliseconds(request.timeout), validate_only=request.validate_only
        )
    created = (_created_row(services, name, outcome) for name, outcome in outcomes.items())
    return {"topics": (row for rows in (refused.values(), created) for row in rows)}


def _new_topic(topic: Any) -> NewTopic:
    assignments: dict[int, tuple[int, ...]] | None = None
    if topic.assignments:
        assignments = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
        if len(assignments) != len(topic.assignments):
            raise _RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned twice")
    settings = {each.name: each.value for each in topic.configs}
    if len(settings) != len(topic.configs):
        raise _RefusedError(ErrorCode.INVALID_CONFIG, "a setting is given twice")
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


def _new_topic_row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "topic_id": None, "configs": ()}


def _created_row(services: BrokerServices, name: str, outcome: TopicOutcome) -> Values:
    row = _new_topic_row(_row(name, outcome.error_code, outcome.message))
    if outcome.error_code != ErrorCode.NONE:
        return row
    configs = topic_config_rows(services.topic_configs.defaults, outcome.settings or {})
    return {
        **row,
        "topic_id": outcome.topic_id,
        "num_partitions": outcome.num_partitions,
        "replication_factor": outcome.replication_factor,
        "configs": configs,
    }


async def delete_topics(services: BrokerServices, call: Call) -> Answer:
    """Delete topics, by name or by id."""
    request = call.body
    by_state = call.api_version >= 6
    asked: list[tuple[str | None, uuid.UUID | None]] = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if by_state
        else [(name, None) for name in request.topic_names]
    )
    controller = services.active_controller()
    if controller is None:
        return {
            "responses": [
                {**_not_controller(name), "topic_id": found} for name, found in dict.fromkeys(asked)
            ]
        }
    counts = Counter(
        services.view.topic_name(found) if name is None else name
        for name, found in asked
        if name is None or found is None
    )
    rows: list[Values] = []
    wanted: dict[str, uuid.UUID | None] = {}
    for name, found in dict.fromkeys(asked):
        named = name
        if found is not None and name is None:
            named = services.view.topic_name(found)
        if found is not None and name is not None:
            row = _row(name, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        elif found is None and name is None:
            row = _row(name, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif named is None:
            row = _row(name, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        elif counts[named] > 1:
            row = _row(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            wanted[named] = found
            continue
        rows.append({**row, "topic_id": found})
    if wanted:
        outcomes = await controller.delete_topics(list(wanted), timeout_ms=milliseconds(request.timeout))
        rows += [_deleted_row(services, name, outcomes[name], found) for name, found in wanted.items()]
    return {"responses": rows}


def _deleted_row(
    services: BrokerServices, name: str, outcome: TopicOutcome, asked_id: uuid.UUID | None
) -> Values:
    error_code = partition_error(services.view, ErrorCode(outcome.error_code))
    return {**_row(name, error_code, outcome.message), "topic_id": outcome.topic_id or asked_id}


async def create_partitions(services: BrokerServices, call: Call) -> Answer:
    """Add partitions to topics, or only check that."""
    request = call.body
    controller = services.active_controller()
    if controller is None:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return {"results": [_not_controller(name) for name in names]}
    counts = Counter(topic.name for topic in request.topics)
    rows: dict[str, Values] = {
        name: _row(name, ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        for name, count in counts.items()
        if count > 1
    }
    wanted = [_new_partitions(topic) for topic in request.topics if topic.name not in rows]
    known = services.view.topics
    added = sum(
        max(each.count - (len(known[each.name].partitions) if each.name in known else 0), 1)
        for each in wanted
    )
    outcomes: Mapping[str, TopicOutcome] = {}
    if added > TOPIC_PARTITIONS_MAX and len(wanted) > 1:
        outcomes = {each.name: _too_many(added) for each in wanted}
    elif wanted:
        outcomes = await controller.create_partitions(
            wanted, timeout_ms=milliseconds(request.timeout), validate_only=request.validate_only
        )
    for name, outcome in outcomes.items():
        rows[name] = _row(name, outcome.error_code, outcome.message)
    return {"results": list(rows.values())}


def _new_partitions(topic: Any) -> NewPartitions:
    assignments = topic.assignments
    replicas = None if assignments is None else [tuple(each.broker_ids) for each in assignments]
    return NewPartitions(topic.name, topic.count, replicas)
