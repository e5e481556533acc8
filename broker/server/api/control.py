"""The controller's requests to brokers, and the one that brokers make to it, ControlledShutdown.

Only hands on; fences and effects are those of broker.replication and of the controller. They exist on the
broker listener alone.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from controller.core.outcomes import ShutdownOutcome
from controller.messages.entities import ControlledShutdownResponse, RemainingPartition, encode_response
from controller.wire.codes import ErrorCode


async def control(services: BrokerServices, call: Call) -> Answer:
    """Lead, follow or stop replicas, or take over what the controller says of the cluster."""
    return [encode_response(await services.replicas.control.apply(call.body))]


async def controlled_shutdown(services: BrokerServices, call: Call) -> Answer:
    """Let other brokers lead what a broker leads that is about to stop."""
    controller = services.active_controller()
    outcome = ShutdownOutcome(ErrorCode.NOT_CONTROLLER)
    if controller is not None:
        outcome = await controller.shut_down(call.body.broker_id, call.body.broker_epoch)
    remaining = [
        RemainingPartition(topic_name=key.topic, partition_index=key.partition) for key in outcome.remaining
    ]
    response = ControlledShutdownResponse(
        error_code=int(outcome.error_code), remaining_partitions=tuple(remaining)
    )
    return [encode_response(response)]
