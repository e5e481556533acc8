"""DescribeConfigs and IncrementalAlterConfigs: settings of topics, and what a broker runs with.

Decides which resources have settings: topics, and this broker, most of whose settings come from broker.toml
and may only be read. What may change, and to which values, is decided where the settings are.
Source: Kafka's DescribeConfigs and IncrementalAlterConfigs (KIP-133, KIP-226, KIP-339).
"""

from __future__ import annotations

import re
from collections import Counter
from enum import IntEnum
from typing import Any, Final

from broker.server.api.broker_config_rows import broker_config_rows
from broker.server.api.partitions import partition_error
from broker.server.api.topic_config_rows import topic_config_rows
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.messages.codes import ErrorCode
from controller.messages.error_codes import code_of_error
from quorum.errors import QuorateError, quoted
from quorum.metadata.paths import check_topic, missing_topic

_TOPIC: Final = 2
_BROKER: Final = 4


class _Operation(IntEnum):
    """What happens to one setting."""

    SET = 0
    DELETE = 1


def describe_configs(services: BrokerServices, call: Call) -> Answer:
    """Answer with settings and where they come from."""
    resources = {(each.resource_type, each.resource_name): each for each in call.body.resources}
    return {"results": (_described(services, call, each) for each in resources.values())}


def _described(services: BrokerServices, call: Call, resource: Any) -> Values:
    request = call.body
    error_code, message, rows = _describe(services, resource.resource_type, resource.resource_name)
    if resource.configuration_keys is not None:
        names = set(resource.configuration_keys)
        rows = [row for row in rows if row["name"] in names]
    if not request.include_synonyms:
        rows = [{**row, "synonyms": ()} for row in rows]
    if call.api_version < 3 or not request.include_documentation:
        rows = [{**row, "documentation": None} for row in rows]
    return {**_result(resource, error_code, message), "configs": rows}


def _describe(
    services: BrokerServices, resource_type: int, name: str
) -> tuple[ErrorCode, str | None, list[dict[str, Any]]]:
    if resource_type == _TOPIC:
        if name not in services.view.topics:
            return *_no_topic(services, name), []
        configs = services.topic_configs
        return ErrorCode.NONE, None, topic_config_rows(configs.defaults, configs.overrides(name))
    if resource_type == _BROKER:
        if not name:
            # What holds for all brokers at once: nothing does.
            return ErrorCode.NONE, None, []
        if name != str(services.broker_id):
            return ErrorCode.INVALID_REQUEST, _another_broker(services, name), []
        return ErrorCode.NONE, None, broker_config_rows(services.config, services.broker_configs.overrides)
    return ErrorCode.INVALID_REQUEST, _no_such_kind(resource_type), []


def _result(resource: Any, error_code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


async def incremental_alter_configs(services: BrokerServices, call: Call) -> Answer:
    """Change settings of topics and of this broker, each resource on its own."""
    request = call.body
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    responses: list[Values] = []
    for key, resource in resources.items():
        if counts[key] > 1:
            responses.append(_result(resource, ErrorCode.INVALID_REQUEST, "the resource is named twice"))
            continue
        error_code, message = await _alter(services, resource, request.validate_only)
        responses.append(_result(resource, error_code, message))
    return {"responses": responses}


async def _alter(
    services: BrokerServices, resource: Any, validate_only: bool
) -> tuple[ErrorCode, str | None]:
    name, kind = resource.resource_name, resource.resource_type
    if kind not in (_TOPIC, _BROKER):
        return ErrorCode.INVALID_REQUEST, _no_such_kind(kind)
    if kind == _BROKER and name != str(services.broker_id):
        return ErrorCode.INVALID_REQUEST, _another_broker(services, name)
    if kind == _TOPIC and name not in services.view.topics:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
        return _no_topic(services, name)
    changed: dict[str, str] = {}
    removed: dict[str, None] = {}
    for each in resource.configs:
        if each.name in changed or each.name in removed:
            return ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {quoted(each.name)}"
        if each.config_operation == _Operation.DELETE:
            removed[each.name] = None
        elif each.config_operation == _Operation.SET and each.value is not None:
            changed[each.name] = each.value
        elif each.config_operation == _Operation.SET:
            problem = f"Null value not supported for : {quoted(each.name)}; delete it for its default"
            return ErrorCode.INVALID_REQUEST, problem
        else:
            operation = {2: "append", 3: "subtract"}.get(each.config_operation, str(each.config_operation))
            problem = f"Config value {operation} is not allowed for config key: {quoted(each.name)}"
            return ErrorCode.INVALID_CONFIG, f"{problem}; set it as a whole"
    try:
        if kind == _TOPIC:
            await services.topic_configs.alter(name, changed, list(removed), validate_only)
        else:
            await services.broker_configs.alter(changed, list(removed), validate_only)
    except QuorateError as error:
        return code_of_error(error), str(error)
    return ErrorCode.NONE, None


def _no_topic(services: BrokerServices, name: str) -> tuple[ErrorCode, str]:
    try:
        check_topic(name)
    except ValueError as error:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)
    code = partition_error(services.view, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return code, missing_topic(name)


def _no_such_kind(kind: int) -> str:
    return f"Unknown resource type {kind}: only topics (2) and brokers (4) have settings"


def _another_broker(services: BrokerServices, name: str) -> str:
    if not name:
        return "no setting is for all brokers at once; name one broker"
    if not re.fullmatch(r"-?[0-9]{1,10}", name):
        return f"Node id must be an integer, but it is: {quoted(name)}"
    return f"Unexpected broker id, expected {services.broker_id}, but received {name}: ask that broker itself"
