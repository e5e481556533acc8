"""LeaderAndIsr, UpdateMetadata and StopReplica: what the controller says.

Only hands on; fences and effects are the replica manager's. They exist on the broker listener alone.
Source: control-plane design, "Control requests".
"""

from __future__ import annotations

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from controller.messages.entities import encode_response


async def leader_and_isr(services: BrokerServices, call: Call) -> Answer:
    """Lead or follow partitions."""
    return [encode_response(await services.replicas.handle_leader_and_isr(call.body))]


async def stop_replica(services: BrokerServices, call: Call) -> Answer:
    """Stop replicas, and delete some."""
    return [encode_response(await services.replicas.handle_stop_replica(call.body))]


def update_metadata(services: BrokerServices, call: Call) -> Answer:
    """Take over what the controller says of the cluster."""
    return [encode_response(services.replicas.handle_update_metadata(call.body))]
