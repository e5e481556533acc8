"""Quotas of Kafka's clients, set and read through a broker by requests 48 and 49."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from tests.support.broker_wire import BrokerLink


def entity(**parts: str | None) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()]


def alter(
    link: BrokerLink, of: list[dict[str, str | None]], quotas: Mapping[str, float | None], **more: bool
) -> Any:
    """Set or remove quotas; returns the row of the answer."""
    ops = [{"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in quotas.items()]
    values = {"entries": [{"entity": of, "ops": ops}], "validate_only": False, **more}
    (row,) = link.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, values).entries
    return row


def described(link: BrokerLink) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = link.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": (), "strict": False})
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((each.entity_type, each.entity_name) for each in row.entity): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }
