"""InitProducerId: an id for an idempotent producer; transactions are refused at once.

A transactional id gets a code that clients take as final. The codes that would fit better are retried by
clients until their own deadline.
Source: KIP-98, KIP-360; docs/guarantees.md, "Producers: what an acknowledgement means".
"""

from __future__ import annotations

import logging

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import RETRIABLE, ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError

log = logging.getLogger("quorate.broker.server")


async def init_producer_id(services: BrokerServices, call: Call) -> Answer:
    """Answer with an id that no other producer has."""
    if call.body.transactional_id is not None:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await services.producer_ids.next()
    except QuorateError as error:
        log.warning("no producer id for %s: %s", call.request.client_id, error.message)
        error_code = code_of_error(error)
        # Of the codes that say "ask again" clients know only this one here.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error_code in RETRIABLE else error_code)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refused(error_code: ErrorCode) -> Values:
    return {"error_code": error_code, "producer_id": -1, "producer_epoch": -1}
