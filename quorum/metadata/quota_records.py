"""Quotas of Kafka's clients, as znodes: whom they are for, where they are kept, and what they may be.

Pure. A user's quotas share the znode of its SCRAM credentials, so each change keeps the other keys. Names are
escaped as Kafka does; `<default>` is the znode of everybody without one of its own.
Source: kafka.zk.ZkAdminManager, Sanitizer, QuotaConfigs (Kafka 3.9); KIP-13, KIP-55, KIP-546, KIP-599.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

from quorum.metadata.paths import CONFIG_CLIENTS, CONFIG_USERS
from quorum.metadata.user_records import UserRecord, segment_of

#: Between a user and one of its clients.
_CLIENTS: Final = "clients"
#: Kafka's default of a byte rate: no limit.
BYTE_RATE_MAX: Final = 2**63 - 1
#: How far a byte rate may be from a whole number: it travels as a float.
_EPSILON: Final = 1e-6


class QuotaKind(Enum):
    """What a quota limits; the value is Kafka's name of the setting."""

    #: bytes of Produce requests a second
    PRODUCE = "producer_byte_rate"
    #: bytes of Fetch answers a second
    FETCH = "consumer_byte_rate"
    #: partitions that are created or deleted, in a second
    MUTATION = "controller_mutation_rate"


#: {Kafka's name: kind}
QUOTA_KINDS: Final[Mapping[str, QuotaKind]] = {each.value: each for each in QuotaKind}


class Default(Enum):
    """In place of a name: whoever has nothing of its own; the value is how its znode is named."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
#: of a user or a client
EntityName = str | Default


class QuotaEntity(NamedTuple):
    """Whom quotas are for; of one part at least, None: whatever it is."""

    user: EntityName | None
    client_id: EntityName | None


def quota_path(entity: QuotaEntity) -> str:
    """Path of the quotas of an entity."""
    if entity.user is None:
        return f"{CONFIG_CLIENTS}/{_segment(entity.client_id)}"
    user = f"{CONFIG_USERS}/{_segment(entity.user)}"
    return user if entity.client_id is None else f"{user}/{_CLIENTS}/{_segment(entity.client_id)}"


def quota_parents(entity: QuotaEntity) -> list[str]:
    """Return the paths that must exist above an entity's, each after its own parent; Kafka's are empty."""
    if entity.user is None or entity.client_id is None:
        return []
    user = quota_path(QuotaEntity(entity.user, None))
    return [user, f"{user}/{_CLIENTS}"]


def clients_path(user: str) -> str:
    """Path below which the quotas of single clients of a user are, `user` as its znode is named."""
    return f"{CONFIG_USERS}/{user}/{_CLIENTS}"


def quota_entity_at(path: str) -> QuotaEntity | None:
    """Return whose quotas a znode holds; None: it is another znode."""
    parts = path.split("/")[2:]
    found: QuotaEntity | None = None
    match parts:
        case ["clients", client]:
            found = QuotaEntity(None, _name(client))
        case ["users", user]:
            found = QuotaEntity(_name(user), None)
        case ["users", user, "clients", client]:
            found = QuotaEntity(_name(user), _name(client))
    return found if found is not None and quota_path(found) == path else None


def read_quotas(path: str, data: bytes | None) -> dict[QuotaKind, float]:
    """Return the quotas that a znode holds; one that is malformed counts as not given.

    Raises:
        MetadataDecodeError: the value is malformed. The error shows none of it.
    """
    settings = UserRecord.decode(path, data).settings
    rates = {QUOTA_KINDS[name]: quota_rate(text) for name, text in settings.items() if name in QUOTA_KINDS}
    return {kind: rate for kind, rate in rates.items() if rate is not None}


def quota_rate(text: str) -> float | None:
    """Return the rate that a text gives; None: it is no rate above 0."""
    if not re.fullmatch(r"[0-9]{1,19}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", text.strip()):
        return None
    rate = float(text)
    return rate if 0 < rate < math.inf else None


def quota_text(kind: QuotaKind, rate: float) -> str:
    """Return a rate as Kafka writes it.

    Raises:
        ValueError: it is no rate of this kind; in words that follow its name.
    """
    if not 0 < rate < math.inf:
        raise ValueError("must be greater than 0")
    if kind is QuotaKind.MUTATION:
        return repr(float(rate))
    if abs(round(rate) - rate) > _EPSILON:
        raise ValueError("must be a whole number of bytes a second")
    return str(min(round(rate), BYTE_RATE_MAX))


def changed_quotas(path: str, data: bytes | None, changes: Mapping[QuotaKind, str | None]) -> bytes:
    """Return a znode's value with other quotas; what else it holds stays.

    Args:
        path: of the znode.
        data: its value, None without a znode.
        changes: {kind: text, None to remove it}

    Raises:
        MetadataDecodeError: the present value is malformed.
    """
    settings = {} if data is None else dict(UserRecord.decode(path, data).settings)
    for kind, text in changes.items():
        settings.pop(kind.value, None)
        if text is not None:
            settings[kind.value] = text
    return UserRecord(settings).encode()


def precedence(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, tuple[str, str]]]:
    """Yield the entities whose quotas may hold for a client, the one first that hides all others.

    Yields:
        (entity, who shares its rate: user and client id, "" for all of them)
    """
    names: tuple[EntityName, EntityName] = (user, DEFAULT)
    for name in names:
        yield QuotaEntity(name, client_id), (user, client_id)
        yield QuotaEntity(name, DEFAULT), (user, client_id)
        yield QuotaEntity(name, None), (user, "")
    yield QuotaEntity(None, client_id), ("", client_id)
    yield QuotaEntity(None, DEFAULT), ("", client_id)


def _segment(name: EntityName | None) -> str:
    assert name is not None, "an entity has a part"
    return DEFAULT.value if name is DEFAULT else segment_of(name)


def _name(segment: str) -> EntityName:
    return DEFAULT if segment == DEFAULT.value else unquote(segment)
