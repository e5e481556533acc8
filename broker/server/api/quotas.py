"""DescribeClientQuotas: there are no quotas, so none is set.

Source: KIP-546.
"""

from __future__ import annotations

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from controller.wire.codes import ErrorCode


def describe_client_quotas(_services: BrokerServices, _call: Call) -> Answer:
    """Answer that nothing matches."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": ()}
