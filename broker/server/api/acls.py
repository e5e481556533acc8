"""DescribeAcls, CreateAcls and DeleteAcls: there is no authorizer, and each request says so.

Source: Kafka's answer of a broker without `authorizer.class.name` (SECURITY_DISABLED, 54).
"""

from __future__ import annotations

from typing import Final

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode

_DISABLED: Final[Values] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "access control is not offered: whoever reaches the listener may do everything",
}


def describe_acls(_services: BrokerServices, _call: Call) -> Answer:
    """Refuse."""
    return {**_DISABLED, "resources": ()}


def create_acls(_services: BrokerServices, call: Call) -> Answer:
    """Refuse each."""
    return {"results": [_DISABLED] * len(call.body.creations)}


def delete_acls(_services: BrokerServices, call: Call) -> Answer:
    """Refuse each."""
    return {"filter_results": [{**_DISABLED, "matching_acls": ()}] * len(call.body.filters)}
