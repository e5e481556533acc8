"""InitProducerId: an id for an idempotent producer, and a higher epoch for a transactional one.

Source: KIP-98, KIP-360; docs/concepts/guarantees.md, "Producers: what an acknowledgement means".
"""

from __future__ import annotations

import logging

from broker.core.transactions.inputs import InitProducer, Producer
from broker.server.api.transactions import asked, fenced_code
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.wire.codes import RETRIABLE, ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError
from quorum.metadata.transaction_records import NO_PRODUCER

log = logging.getLogger("quorate.broker.server")


async def init_producer_id(services: BrokerServices, call: Call) -> Answer:
    """Answer with an id that no other producer has, or with that of a transactional id."""
    if call.body.transactional_id is not None:
        return await _transactional(services, call)
    try:
        producer_id = await services.producer_ids.next()
    except QuorateError as error:
        log.warning("no producer id for %s: %s", call.request.client_id, error.message)
        error_code = code_of_error(error)
        # Of the codes that say "ask again" clients know only this one here.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error_code in RETRIABLE else error_code)
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": 0}


async def _transactional(services: BrokerServices, call: Call) -> Answer:
    body = call.body
    expected = Producer(getattr(body, "producer_id", NO_PRODUCER), getattr(body, "producer_epoch", -1))
    if (expected.id == NO_PRODUCER) != (expected.epoch == NO_PRODUCER):
        return _refused(ErrorCode.INVALID_REQUEST)
    request = InitProducer(
        body.transactional_id,
        milliseconds(body.transaction_timeout),
        None if expected.id == NO_PRODUCER else expected,
    )
    try:
        outcome = await asked(services, request)
    except QuorateError as error:
        log.warning("no producer id for %s: %s", body.transactional_id, error.message)
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if isinstance(outcome, Producer):
        return {"error_code": ErrorCode.NONE, "producer_id": outcome.id, "producer_epoch": outcome.epoch}
    return _refused(fenced_code(outcome, call, 4))


def _refused(error_code: ErrorCode) -> Values:
    return {"error_code": error_code, "producer_id": -1, "producer_epoch": -1}
