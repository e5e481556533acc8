"""DescribeClientQuotas and AlterClientQuotas: how much users and clients may produce, fetch and change.

Each broker carries them out; all of them follow. What an entity's quotas are is decided where they are kept.
Quotas that Quorate does not keep are refused, with what to set in their place.
Source: KIP-546; ZkAdminManager, ClientQuotaControlManager (Kafka 3.9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError, quoted
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.quota_records import (
    DEFAULT,
    QUOTA_KINDS,
    EntityName,
    QuotaEntity,
    QuotaKind,
    quota_path,
    quota_text,
)

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_IP: Final = "ip"
_TYPES: Final = (_USER, _CLIENT_ID)
#: match types of a filter
_EXACT, _DEFAULT, _ANY = range(3)
#: {Kafka's name of a quota that is not kept: what to do}
_NOT_KEPT: Final[Mapping[str, str]] = {
    "request_percentage": "brokers do not limit time; set producer_byte_rate and consumer_byte_rate",
    "connection_creation_rate": "brokers do not limit how fast connections come; set max.connections.per.ip "
    "(limits.connections_per_address_max)",
}
_NO_IP: Final = (
    "No quota is kept for an ip: set max.connections.per.ip (limits.connections_per_address_max), "
    "which bounds the connections of each address"
)


class _Component(Protocol):
    """One part of a filter."""

    entity_type: str
    match_type: int
    match: str | None


class _Part(Protocol):
    """One part of an entity."""

    entity_type: str
    #: None: the default
    entity_name: str | None


class _Change(Protocol):
    """What becomes of one quota."""

    key: str
    value: float
    remove: bool


class _RefusedError(Exception):
    """What a request wants cannot be: code and words."""

    def __init__(self, words: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(words)
        self.code = code


def describe_client_quotas(services: BrokerServices, call: Call) -> Answer:
    """Answer with the quotas of all entities that a filter matches."""
    try:
        components = _components(call.body.components)
    except _RefusedError as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    matching = () if _IP in components else services.quota_store.quotas.items()
    found = [(entity, rates) for entity, rates in matching if _matches(entity, components, call.body.strict)]
    found.sort(key=lambda each: quota_path(each[0]))
    rows = [
        {
            "entity": _parts(entity),
            "values": [{"key": kind.value, "value": rate} for kind, rate in rates.items()],
        }
        for entity, rates in found
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": rows}


def _components(asked: Sequence[_Component]) -> dict[str, _Component]:
    components: dict[str, _Component] = {}
    for each in asked:
        kind = each.entity_type
        if not kind:
            raise _RefusedError("Unexpected empty filter component entity type")
        if kind not in (*_TYPES, _IP):
            words = f"Custom entity type {quoted(kind)} not supported"
            raise _RefusedError(words, ErrorCode.UNSUPPORTED_VERSION)
        if kind in components:
            raise _RefusedError(f"Duplicate {kind} filter component entity type")
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise _RefusedError(f"Unexpected match type {each.match_type}; there are 0 to 2")
        if (each.match_type == _EXACT) == (each.match is None):
            raise _RefusedError(f"match type {each.match_type} of {kind}: only 0 has a name")
        components[kind] = each
    if _IP in components and len(components) > 1:
        words = "Invalid entity filter component combination, IP filter component should not be used "
        raise _RefusedError(f"{words}with user or clientId filter component.")
    return components


def _matches(entity: QuotaEntity, components: Mapping[str, _Component], is_strict: bool) -> bool:
    for kind, name in zip(_TYPES, entity, strict=True):
        component = components.get(kind)
        if component is None:
            if is_strict and name is not None:
                return False
        elif name is None:
            return False
        elif component.match_type != _ANY:
            wanted = DEFAULT if component.match_type == _DEFAULT else component.match
            if name != wanted:
                return False
    return True


async def alter_client_quotas(services: BrokerServices, call: Call) -> Answer:
    """Set and remove quotas, those of one entity together, or only check that."""
    rows = []
    counts = Counter(_named(entry.entity) for entry in call.body.entries)
    refusal = call.access.refusal(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
    for named, entry in {_named(entry.entity): entry for entry in call.body.entries}.items():
        words: str | None
        if counts[named] > 1:
            code, words = ErrorCode.INVALID_REQUEST, "the entity is named twice; name it once"
        elif refusal is None:
            code, words = await _altered(services, entry.entity, entry.ops, call.body.validate_only)
        else:
            code, words = refusal, "Cluster authorization failed."
        parts = [{"entity_type": kind, "entity_name": name} for kind, name in dict.fromkeys(named)]
        rows.append({"error_code": code, "error_message": words, "entity": parts})
    return {"entries": rows}


def _named(parts: Sequence[_Part]) -> tuple[tuple[str, str | None], ...]:
    return tuple((each.entity_type, each.entity_name) for each in parts)


async def _altered(
    services: BrokerServices, parts: Sequence[_Part], asked: Sequence[_Change], validate_only: bool
) -> tuple[ErrorCode, str | None]:
    try:
        entity, changes = _entity(parts), _changes(asked)
        if not validate_only:
            await services.quota_store.alter(entity, changes)
    except _RefusedError as error:
        return error.code, str(error)
    except QuorateError as error:
        return code_of_error(error), error.message
    return ErrorCode.NONE, None


def _entity(parts: Sequence[_Part]) -> QuotaEntity:
    names: dict[str, EntityName] = {}
    for each in parts:
        kind, name = each.entity_type, each.entity_name
        if kind == _IP:
            raise _RefusedError(_NO_IP)
        if kind not in _TYPES:
            raise _RefusedError(f"Unhandled client quota entity type: {quoted(kind)}")
        if kind in names:
            raise _RefusedError(f"Duplicate entity type {kind}")
        if name is not None and not name:
            raise _RefusedError(f"Empty {kind} not supported")
        # They would be other znodes.
        if name in (".", ".."):
            raise _RefusedError(f"{name} can be no {kind}; give another name")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise _RefusedError("Invalid empty client quota entity")
    return QuotaEntity(names.get(_USER), names.get(_CLIENT_ID))


def _changes(asked: Sequence[_Change]) -> dict[QuotaKind, str | None]:
    changes: dict[QuotaKind, str | None] = {}
    for each in asked:
        kind = QUOTA_KINDS.get(each.key)
        if kind is None:
            known = ", ".join(QUOTA_KINDS)
            remedy = _NOT_KEPT.get(each.key, f"there are {known}")
            raise _RefusedError(f"Invalid configuration key {quoted(each.key)}: {remedy}")
        if kind in changes:
            raise _RefusedError(f"{each.key} is changed twice; change it once")
        try:
            changes[kind] = None if each.remove else quota_text(kind, each.value)
        except ValueError as error:
            raise _RefusedError(f"Quota {each.key} {error}, but got {each.value}") from error
    return changes


def _parts(entity: QuotaEntity) -> list[Values]:
    return [
        {"entity_type": kind, "entity_name": None if name is DEFAULT else name}
        for kind, name in zip(_TYPES, entity, strict=True)
        if name is not None
    ]
