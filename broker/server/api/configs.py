"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: settings of topics, and what a broker runs with.

Decides which resources have settings: topics, and this broker, most of whose settings come from broker.toml
and may only be read. What may change, and to which values, is decided where the settings are.
Source: Kafka's DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-226, KIP-339).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

from broker.server.api.broker_config_rows import broker_config_rows
from broker.server.api.partitions import why_no_topic
from broker.server.api.topic_config_rows import SettingRow, topic_config_rows
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError, quoted
from quorum.metadata.setting_changes import SettingChanges

_TOPIC: Final = 2
_BROKER: Final = 4


class _Operation(IntEnum):
    """What happens to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Resource(Protocol):
    """A topic or a broker that a request names."""

    resource_type: int
    resource_name: str


class _AskedResource(_Resource, Protocol):
    """One whose settings are wanted."""

    #: None: all
    configuration_keys: Sequence[str] | None


class _NewValue(Protocol):
    """What a request wants of one setting."""

    name: str
    value: str | None
    #: of IncrementalAlterConfigs alone
    config_operation: int


class _ChangedResource(_Resource, Protocol):
    """One whose settings are to change."""

    configs: Sequence[_NewValue]


def describe_configs(services: BrokerServices, call: Call) -> Answer:
    """Answer with settings and where they come from."""
    resources = {(each.resource_type, each.resource_name): each for each in call.body.resources}
    return {"results": (_described(services, call, each) for each in resources.values())}


def _described(services: BrokerServices, call: Call, resource: _AskedResource) -> Values:
    request = call.body
    error_code, message, rows = _describe(services, resource.resource_type, resource.resource_name)
    if resource.configuration_keys is not None:
        names = set(resource.configuration_keys)
        rows = [row for row in rows if row.name in names]
    if not request.include_synonyms:
        rows = [row._replace(synonyms=()) for row in rows]
    if call.request.api_version < 3 or not request.include_documentation:
        rows = [row._replace(documentation=None) for row in rows]
    return {**_result(resource, error_code, message), "configs": [row.values() for row in rows]}


def _describe(
    services: BrokerServices, resource_type: int, name: str
) -> tuple[ErrorCode, str | None, list[SettingRow]]:
    if resource_type == _TOPIC:
        if name not in services.view.topics:
            return *why_no_topic(services.view, name), []
        configs = services.topic_configs
        return ErrorCode.NONE, None, topic_config_rows(configs.defaults, configs.overrides(name))
    if resource_type == _BROKER:
        if not name:
            # What holds for all brokers at once: nothing does.
            return ErrorCode.NONE, None, []
        if name != str(services.broker_id):
            return ErrorCode.INVALID_REQUEST, _another_broker(services, name), []
        overrides = services.broker_configs.overrides(name)
        return ErrorCode.NONE, None, broker_config_rows(services.config, overrides)
    return ErrorCode.INVALID_REQUEST, _no_such_kind(resource_type), []


def _result(resource: _Resource, error_code: ErrorCode, message: str | None) -> Values:
    return {
        "error_code": error_code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


async def incremental_alter_configs(services: BrokerServices, call: Call) -> Answer:
    """Change some settings of topics and of this broker, each resource on its own."""
    return await _altered(services, call, _some_changes)


async def alter_configs(services: BrokerServices, call: Call) -> Answer:
    """Replace all settings of topics and of this broker, each resource on its own."""
    return await _altered(services, call, _whole_change)


async def _altered(services: BrokerServices, call: Call, read: _Read) -> Answer:
    request = call.body
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    responses: list[Values] = []
    for key, resource in resources.items():
        if counts[key] > 1:
            responses.append(_result(resource, ErrorCode.INVALID_REQUEST, "the resource is named twice"))
            continue
        error_code, message = await _alter(services, resource, read, request.validate_only)
        responses.append(_result(resource, error_code, message))
    return {"responses": responses}


async def _alter(
    services: BrokerServices, resource: _ChangedResource, read: _Read, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    name, kind = resource.resource_name, resource.resource_type
    if kind not in (_TOPIC, _BROKER):
        return ErrorCode.INVALID_REQUEST, _no_such_kind(kind)
    if kind == _BROKER and name != str(services.broker_id):
        return ErrorCode.INVALID_REQUEST, _another_broker(services, name)
    if kind == _TOPIC and name not in services.view.topics:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
        return why_no_topic(services.view, name)
    try:
        configs = services.topic_configs if kind == _TOPIC else services.broker_configs
        await configs.alter(name, read(resource.configs), validate_only)
    except _UnclearError as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    except QuorateError as error:
        return code_of_error(error), str(error)
    return ErrorCode.NONE, None


class _UnclearError(Exception):
    """What a request wants of a setting is not clear."""


_Read = Callable[[Sequence[_NewValue]], SettingChanges]


def _whole_change(configs: Sequence[_NewValue]) -> SettingChanges:
    """Read what AlterConfigs wants."""
    return SettingChanges({each.name: _value_of(each) for each in _each_once(configs)}, is_whole=True)


def _some_changes(configs: Sequence[_NewValue]) -> SettingChanges:
    """Read what IncrementalAlterConfigs wants."""
    removed: list[str] = []
    given: dict[_Operation, dict[str, str]] = {each: {} for each in _Operation}
    for each in _each_once(configs):
        if each.config_operation == _Operation.DELETE:
            removed.append(each.name)
        elif each.config_operation in given:
            given[_Operation(each.config_operation)][each.name] = _value_of(each)
        else:
            raise _UnclearError(f"{quoted(each.name)}: operation {each.config_operation}; there are 0 to 3")
    return SettingChanges(
        given[_Operation.SET], removed, given[_Operation.APPEND], given[_Operation.SUBTRACT]
    )


def _each_once(configs: Sequence[_NewValue]) -> Iterator[_NewValue]:
    seen: set[str] = set()
    for each in configs:
        if each.name in seen:
            raise _UnclearError(f"Error due to duplicate config keys: {quoted(each.name)}")
        seen.add(each.name)
        yield each


def _value_of(config: _NewValue) -> str:
    if config.value is None:
        raise _UnclearError(
            f"Null value not supported for : {quoted(config.name)}; delete it for its default"
        )
    return config.value


def _no_such_kind(kind: int) -> str:
    return f"Unknown resource type {kind}: only topics (2) and brokers (4) have settings"


def _another_broker(services: BrokerServices, name: str) -> str:
    if not name:
        return "no setting is for all brokers at once; name one broker"
    if not re.fullmatch(r"-?[0-9]{1,10}", name):
        return f"Node id must be an integer, but it is: {quoted(name)}"
    return f"Unexpected broker id, expected {services.broker_id}, but received {name}: ask that broker itself"
