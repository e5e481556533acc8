"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: what only the controller does.

Only translates. A broker that is not the controller says so, and clients go to the one that is.
Source: KIP-455, KIP-460; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.core.outcomes import PartitionOutcome
from controller.core.reassignment import Move
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey, by_topic

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def elect_leaders(services: BrokerServices, call: Call) -> Answer:
    """Elect preferred leaders, or unclean ones."""
    request, controller = call.body, services.active_controller()
    keys = (
        None
        if request.topic_partitions is None
        else dict.fromkeys(
            PartitionKey(row.topic, each) for row in request.topic_partitions for each in row.partitions
        )
    )
    election_type = getattr(request, "election_type", _PREFERRED)
    outcomes: Mapping[PartitionKey, PartitionOutcome] | ErrorCode = ErrorCode.NOT_CONTROLLER
    if election_type not in (_PREFERRED, _UNCLEAN):
        outcomes = ErrorCode.INVALID_REQUEST
    elif controller is not None:
        outcomes = await controller.elect_leaders(
            keys,
            unclean=election_type == _UNCLEAN,
            timeout_ms=milliseconds(request.timeout),
        )
    error_code = ErrorCode.NONE
    if isinstance(outcomes, ErrorCode):
        # Version 0 has no place for an error of the whole.
        error_code, outcomes = outcomes, dict.fromkeys(keys or (), PartitionOutcome(outcomes))
    rows = (
        {
            "topic": topic,
            "partition_result": [
                {"partition_id": key.partition, **_error(outcomes[key])} for key in by_partition
            ],
        }
        for topic, by_partition in by_topic(outcomes).items()
    )
    return {"error_code": error_code, "replica_election_results": rows}


async def alter_partition_reassignments(services: BrokerServices, call: Call) -> Answer:
    """Begin reassignments; one without replicas is cancelled."""
    request, controller = call.body, services.active_controller()
    targets = {
        PartitionKey(topic.name, row.partition_index): None if row.replicas is None else tuple(row.replicas)
        for topic in request.topics
        for row in topic.partitions
    }
    if len(targets) < sum(len(topic.partitions) for topic in request.topics):
        return _whole(ErrorCode.INVALID_REQUEST, "a partition is named twice", "responses")
    if controller is None:
        return _whole(ErrorCode.NOT_CONTROLLER, "this broker is not the controller", "responses")
    outcomes = await controller.reassign(targets, timeout_ms=milliseconds(request.timeout))
    if isinstance(outcomes, ErrorCode):
        return _whole(outcomes, "ask again", "responses")
    rows = (
        {
            "name": topic,
            "partitions": [{"partition_index": key.partition, **_error(outcomes[key])} for key in keys],
        }
        for topic, keys in by_topic(outcomes).items()
    )
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": rows}


def list_partition_reassignments(services: BrokerServices, call: Call) -> Answer:
    """Say which reassignments are under way."""
    request, controller = call.body, services.active_controller()
    moves = None if controller is None else controller.reassignments()
    if moves is None:
        return _whole(ErrorCode.NOT_CONTROLLER, "this broker is not the controller", "topics")
    if request.topics is not None:
        asked = {
            PartitionKey(topic.name, each) for topic in request.topics for each in topic.partition_indexes
        }
        moves = (each for each in moves if each[0] in asked)
    rows = (
        {"name": topic, "partitions": [_move_row(*each) for each in some]}
        for topic, some in groupby(moves, key=lambda each: each[0].topic)
    )
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": rows}


def _move_row(key: PartitionKey, move: Move) -> Values:
    return {
        "partition_index": key.partition,
        "replicas": move.replicas,
        "adding_replicas": move.adding,
        "removing_replicas": move.removing,
    }


def _error(outcome: PartitionOutcome) -> Values:
    return {"error_code": outcome.error_code, "error_message": outcome.message}


def _whole(error_code: ErrorCode, message: str, field: str) -> Values:
    return {"error_code": error_code, "error_message": message, field: ()}
