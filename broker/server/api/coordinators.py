"""FindCoordinator: there is no coordinator of groups yet, and there are no transactions.

A group's coordinator is not available, which clients retry; a transaction's is refused for good.
Source: KIP-699; control-plane design, "Coordinator".
"""

from __future__ import annotations

from typing import Final

from broker.server.api.produce import NO_TRANSACTIONS
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from controller.messages.codes import ErrorCode

_GROUP: Final = 0
_TRANSACTION: Final = 1
_ANSWERS: Final = {
    _GROUP: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not served; assign partitions"),
    _TRANSACTION: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS),
}
_UNKNOWN: Final = (ErrorCode.INVALID_REQUEST, "the type of the key is neither group (0) nor transaction (1)")


def find_coordinator(_services: BrokerServices, call: Call) -> Answer:
    """Answer that there is no coordinator, and whether to ask again."""
    key_type = call.body.key_type if call.api_version >= 1 else _GROUP
    error_code, message = _ANSWERS.get(key_type, _UNKNOWN)
    row = {"node_id": -1, "host": "", "port": -1, "error_code": error_code, "error_message": message}
    if call.api_version < 4:
        return row
    return {"coordinators": [{**row, "key": key} for key in call.body.coordinator_keys]}
