"""FindCoordinator: any broker names the coordinator of groups and transactions.

One broker coordinates all of both. Before one is elected, or while its address is not known yet, clients are
asked to come again.
Source: KIP-699; ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from controller.wire.codes import ErrorCode

_GROUP: Final = 0
_TRANSACTION: Final = 1


class _Coordinator(NamedTuple):
    """What one row says, and the whole response before version 4."""

    error_code: ErrorCode
    error_message: str | None
    node_id: int = -1
    host: str = ""
    port: int = -1


def find_coordinator(services: BrokerServices, call: Call) -> Answer:
    """Answer which broker is the coordinator, or why there is none."""
    key_type = call.body.key_type if call.request.api_version >= 1 else _GROUP
    if key_type in (_GROUP, _TRANSACTION):
        row = _coordinator(services, call.listener)
    else:
        problem = "the type of the key is neither group (0) nor transaction (1)"
        row = _Coordinator(ErrorCode.INVALID_REQUEST, problem)
    if call.request.api_version < 4:
        return row._asdict()
    return {
        "coordinators": [{**row._asdict(), "key": key} for key in dict.fromkeys(call.body.coordinator_keys)]
    }


def _coordinator(services: BrokerServices, listener: str) -> _Coordinator:
    candidate = services.groups()
    broker_id = None if candidate is None else candidate.holder_id
    address = None if broker_id is None else services.view.endpoint(broker_id, listener)
    if broker_id is None or address is None:
        return _Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no coordinator of groups is elected yet")
    return _Coordinator(ErrorCode.NONE, None, broker_id, *address)
