"""Produce: record batches to the leader's log.

Decides which requests are refused as a whole or by partition before they reach a log; broker/replication/
producing.py does the rest. With acks=0 there is no response, so an error ends the connection: the client then
looks for the leader again.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means"; Kafka's Produce request
(3.9).
"""

from __future__ import annotations

from typing import Final

from broker.replication.outcomes import ProduceOutcome
from broker.server.api.partitions import client_endpoints, current_leader, partition_error
from broker.server.requests import Answer, Call, CloseConnectionError
from broker.server.services import BrokerServices
from broker.server.throttling import throttle_produce
from broker.wire.codec import milliseconds
from broker.wire.packing import ProducedPartition, pack_produce_response
from controller.wire.codes import ErrorCode, code_name
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.paths import PartitionKey

TWO_BATCHES: Final = "the request names the partition twice: send one batch for each partition"


async def produce(services: BrokerServices, call: Call) -> Answer:
    """Append, and answer when the acknowledgements are there."""
    request = call.body
    batches: dict[PartitionKey, memoryview] = {}
    outcomes: dict[PartitionKey, ProduceOutcome] = {}
    refused = _refusal(call)
    all_records = iter(call.records)
    for topic in request.topic_data:
        for each in topic.partition_data:
            key, records = PartitionKey(topic.name, each.index), next(all_records)
            if refused is not None:
                outcomes[key] = refused
            elif not call.access.permits(Operation.WRITE, ResourceType.TOPIC, topic.name):
                outcomes[key] = ProduceOutcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif records is None:
                outcomes[key] = ProduceOutcome(ErrorCode.INVALID_RECORD, message="no records")
            elif key in batches:
                # Which of the two an acknowledgement would be for could not be told.
                outcomes[key] = ProduceOutcome(ErrorCode.INVALID_RECORD, message=TWO_BATCHES)
            else:
                batches[key] = records
    for key in outcomes:
        batches.pop(key, None)
    if batches:
        timeout_ms = milliseconds(request.timeout)
        outcomes.update(
            await services.replicas.producing.produce(
                batches,
                acks=request.acks,
                timeout_ms=timeout_ms,
                transactional_id=request.transactional_id,
            )
        )
    throttle_ms = throttle_produce(services, call)
    if request.acks == 0:
        _check_unacknowledged(outcomes)
        return None
    return _packed(services, call, outcomes, throttle_ms)


def _refusal(call: Call) -> ProduceOutcome | None:
    acks, transactional_id = call.body.acks, call.body.transactional_id
    if transactional_id is not None and not call.access.permits(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return ProduceOutcome(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if acks not in (-1, 0, 1):
        problem = f"acks = {acks}: -1 (all), 0 or 1 are possible"
        return ProduceOutcome(ErrorCode.INVALID_REQUIRED_ACKS, message=problem)
    return None


def _check_unacknowledged(outcomes: dict[PartitionKey, ProduceOutcome]) -> None:
    for key, outcome in outcomes.items():
        if outcome.error_code is not ErrorCode.NONE:
            raise CloseConnectionError(
                f"acks=0 and {key.topic}-{key.partition} failed: {code_name(outcome.error_code)}"
            )


def _packed(
    services: BrokerServices, call: Call, outcomes: dict[PartitionKey, ProduceOutcome], throttle_ms: int
) -> Answer:
    view = services.view
    leaders: set[int] = set()
    topics = []
    for topic in call.body.topic_data:
        rows = []
        for each in topic.partition_data:
            key = PartitionKey(topic.name, each.index)
            outcome = outcomes[key]
            leader = current_leader(view, key, outcome.error_code)
            if leader is not None:
                leaders.add(leader[0])
            rows.append(
                ProducedPartition(
                    each.index,
                    partition_error(view, outcome.error_code),
                    outcome.base_offset,
                    outcome.log_append_time_ms,
                    outcome.log_start_offset,
                    outcome.message,
                    leader,
                    outcome.record_errors,
                )
            )
        topics.append((topic.name, rows))
    endpoints = client_endpoints(view, leaders, call.listener) if leaders else ()
    return pack_produce_response(
        call.request.api_version, topics, node_endpoints=endpoints, throttle_ms=throttle_ms
    )
