"""Requests about topics and their settings, and what is answered.

Source: Kafka's CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs and
IncrementalAlterConfigs requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker.client.errors import BrokerRequestError
from broker.wire.codec import Values
from controller.core.requests import NewTopic

_SET: Final = 0
_DELETE: Final = 1


class TopicResult(NamedTuple):
    """What became of one topic of a request."""

    error_code: int
    message: str | None
    topic_id: uuid.UUID | None
    num_partitions: int
    replication_factor: int


class ConfigRow(NamedTuple):
    """One setting."""

    name: str
    value: str | None
    #: Kafka's number: 1 the topic itself, 4 broker.toml, 5 the built-in default.
    source: int
    read_only: bool


def topic_values(topic: NewTopic) -> Values:
    """Return a topic as CreateTopics carries it."""
    return {
        "name": topic.name,
        "num_partitions": topic.num_partitions,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": replicas}
            for index, replicas in (topic.assignments or {}).items()
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.settings.items()],
    }


def read_topic_results(rows: Iterable[Any]) -> dict[str, TopicResult]:
    """Return what became of each topic; what an old version does not say is None or -1."""
    return {
        row.name: TopicResult(
            int(row.error_code),
            getattr(row, "error_message", None),
            getattr(row, "topic_id", None),
            getattr(row, "num_partitions", -1),
            getattr(row, "replication_factor", -1),
        )
        for row in rows
    }


def describe_values(resource_type: int, names: Iterable[str]) -> Values:
    """Return the body of a DescribeConfigs request for all settings of topics or brokers."""
    resources = [
        {"resource_type": resource_type, "resource_name": name, "configuration_keys": None} for name in names
    ]
    return {"resources": resources, "include_synonyms": False, "include_documentation": False}


def alter_values(
    resource_type: int,
    name: str,
    changed: Mapping[str, str],
    removed: Iterable[str],
    validate_only: bool = False,
) -> Values:
    """Return the body of an IncrementalAlterConfigs request for one topic or broker."""
    configs: list[Values] = [
        {"name": each, "config_operation": _SET, "value": value} for each, value in changed.items()
    ]
    configs += [{"name": each, "config_operation": _DELETE, "value": None} for each in removed]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": validate_only}


def read_configs(results: Iterable[Any]) -> dict[str, list[ConfigRow]]:
    """Return the settings of each topic or broker."""
    found: dict[str, list[ConfigRow]] = {}
    for result in results:
        if result.error_code:
            raise BrokerRequestError(
                f"settings of topic {result.resource_name}", result.error_code, result.error_message
            )
        found[result.resource_name] = [
            ConfigRow(row.name, row.value, row.config_source, row.read_only) for row in result.configs
        ]
    return found
