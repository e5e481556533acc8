"""DescribeAcls, CreateAcls and DeleteAcls: the access lists of Kafka's resources.

Any broker carries them out. A broker without an authorizer says so, as Kafka's does.
Source: KafkaApis, AclApis, AclAuthorizer (Kafka 3.9); KIP-140, KIP-290.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final, Protocol, TypeVar

from broker.core.access.asking import CLUSTER_NAME
from broker.core.access.filters import ANY, MATCH, AclFilter
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.stores.access import AccessStore
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError, quoted
from quorum.metadata.acl_records import (
    AclBinding,
    AclEntry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

_DISABLED: Final[Values] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured on the broker",
}
_DONE: Final[Values] = {"error_code": ErrorCode.NONE, "error_message": None}
_PRINCIPAL: Final = re.compile(r"[^:]+:.+", re.DOTALL)
E = TypeVar("E", ResourceType, Operation, Permission)


class _Creation(Protocol):
    resource_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission_type: int


class _AskedFilter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class _InvalidError(Exception):
    """A request names what there is not."""


def describe_acls(services: BrokerServices, call: Call) -> Answer:
    """Answer with the entries that a filter wants."""
    authorizer = services.authorizer
    if authorizer is None:
        return {**_DISABLED, "resources": ()}
    try:
        wanted = _filter(call.body)
    except _InvalidError as error:
        return {**_invalid(error), "resources": ()}
    found: dict[Pattern, list[Values]] = defaultdict(list)
    for pattern, entry in authorizer.lists.bindings():
        if wanted.wants(AclBinding(pattern, entry)):
            found[pattern].append(_entry_row(entry))
    return {
        **_DONE,
        "resources": [{**_pattern_row(pattern), "acls": rows} for pattern, rows in found.items()],
    }


async def create_acls(services: BrokerServices, call: Call) -> Answer:
    """Add entries, each on its own."""
    authorizer, creations = services.authorizer, call.body.creations
    if authorizer is None:
        return {"results": [_DISABLED] * len(creations)}
    results: list[Values] = []
    added: dict[Pattern, dict[int, AclEntry]] = defaultdict(dict)
    for number, creation in enumerate(creations):
        try:
            pattern, entry = _binding(creation)
            added[pattern][number] = entry
            results.append(_DONE)
        except _InvalidError as error:
            results.append(_invalid(error))
    for pattern, entries in added.items():
        new = frozenset(entries.values())
        outcome = await _altered(authorizer.store, pattern, new, frozenset())
        for number in entries:
            results[number] = outcome
    return {"results": results}


async def delete_acls(services: BrokerServices, call: Call) -> Answer:
    """Remove the entries that filters want."""
    authorizer, filters = services.authorizer, call.body.filters
    if authorizer is None:
        return {"filter_results": [{**_DISABLED, "matching_acls": ()}] * len(filters)}
    results: list[Values] = []
    for each in filters:
        try:
            wanted = _filter(each)
        except _InvalidError as error:
            results.append({**_invalid(error), "matching_acls": ()})
            continue
        gone: dict[Pattern, list[AclEntry]] = defaultdict(list)
        for pattern, entry in authorizer.lists.bindings():
            if wanted.wants(AclBinding(pattern, entry)):
                gone[pattern].append(entry)
        rows: list[Values] = []
        for pattern, entries in gone.items():
            outcome = await _altered(authorizer.store, pattern, frozenset(), frozenset(entries))
            rows += [{**outcome, **_pattern_row(pattern), **_entry_row(entry)} for entry in entries]
        results.append({**_DONE, "matching_acls": rows})
    return {"filter_results": results}


async def _altered(
    store: AccessStore, pattern: Pattern, added: frozenset[AclEntry], gone: frozenset[AclEntry]
) -> Values:
    try:
        await store.alter(pattern, lambda entries: (entries | added) - gone)
    except QuorateError as error:
        return {"error_code": code_of_error(error), "error_message": error.message}
    return _DONE


def _binding(creation: _Creation) -> AclBinding:
    pattern = Pattern(
        _number(ResourceType, creation.resource_type, "resource type"),
        _pattern_type(getattr(creation, "resource_pattern_type", PatternType.LITERAL)),
        creation.resource_name,
    )
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise _InvalidError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        raise _InvalidError("Invalid empty resource name")
    if "/" in pattern.name or pattern.name in (".", ".."):
        raise _InvalidError(f"ACL binding contains illegal resource name: {quoted(pattern.name)}")
    if not _PRINCIPAL.fullmatch(creation.principal):
        raise _InvalidError(
            f"expected a string in format principalType:principalName but got {quoted(creation.principal)}"
        )
    if not creation.host:
        raise _InvalidError('the host is empty; "*" is every host')
    operation = _number(Operation, creation.operation, "operation")
    permission = _number(Permission, creation.permission_type, "permission type")
    return AclBinding(pattern, AclEntry(creation.principal, creation.host, operation, permission))


def _filter(asked: _AskedFilter) -> AclFilter:
    pattern_type = getattr(asked, "pattern_type_filter", PatternType.LITERAL)
    return AclFilter(
        _number_or_any(ResourceType, asked.resource_type_filter, "resource type"),
        asked.resource_name_filter,
        None if pattern_type in (ANY, MATCH) else _pattern_type(pattern_type),
        matching=pattern_type == MATCH,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=_number_or_any(Operation, asked.operation, "operation"),
        permission=_number_or_any(Permission, asked.permission_type, "permission type"),
    )


def _number(kind: type[E], number: int, what: str) -> E:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{each.name} ({each.value})" for each in kind)
        raise _InvalidError(f"{what} {number}: there are {known}") from None


def _number_or_any(kind: type[E], number: int, what: str) -> E | None:
    return None if number == ANY else _number(kind, number, what)


def _pattern_type(number: int) -> PatternType:
    try:
        return PatternType(number)
    except ValueError:
        raise _InvalidError(f"pattern type {number}: there are LITERAL (3) and PREFIXED (4)") from None


def _invalid(error: _InvalidError) -> Values:
    return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": str(error)}


def _pattern_row(pattern: Pattern) -> Values:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def _entry_row(entry: AclEntry) -> Values:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }
