"""Fetch: record batches to consumers and followers.

Decides who may fetch as a follower (only who has authenticated), and gives no sessions: every request names
its partitions, and session id 0 in a response says so. broker/replication/fetching.py waits
and reads.
Source: docs/guarantees.md, "Leaders and in-sync replicas", "Consumers"; KIP-227, KIP-392, KIP-516, KIP-951.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final, NamedTuple, Protocol

from broker.replication.fetching import Reader
from broker.replication.outcomes import FetchOutcome, FetchPosition
from broker.server.api.partitions import (
    client_endpoints,
    current_leader,
    named_once,
    partition_error,
    topic_id,
)
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import milliseconds
from broker.wire.packing import FetchedPartition, FetchedTopic, pack_fetch_response
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey

#: Largest answer, whatever a client asks for; Kafka's fetch.max.bytes.
FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
#: A request about more partitions leaves the loop between reading and answering.
LONG_PARTITIONS_MIN: Final = 1000
_CONSUMER: Final = -1
#: Session epochs of a request that names all its partitions.
_FULL: Final = (-1, 0)


class _AskedPartition(Protocol):
    """What a request asks of one partition; older versions lack the fields that say so."""

    fetch_offset: int
    partition_max_bytes: int
    #: from version 9 on
    current_leader_epoch: int
    #: from version 12 on
    last_fetched_epoch: int
    #: from version 5 on
    log_start_offset: int


class _Asked(NamedTuple):
    """What a request asks of one topic."""

    name: str | None
    #: as it was asked for; None: by its name
    topic_id: uuid.UUID | None
    #: {partition: its row}
    partitions: dict[int, _AskedPartition]


async def fetch(services: BrokerServices, call: Call) -> Answer:
    """Read, and answer when there is enough or the time is over."""
    request = call.body
    version = call.request.api_version
    if getattr(request, "session_epoch", -1) not in _FULL:
        return list(pack_fetch_response(version, (), error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    replica_id, generation = _replica(request, version)
    positions: dict[PartitionKey, FetchPosition] = {}
    outcomes: dict[PartitionKey, FetchOutcome] = {}
    asked = named_once(request.topics, "topic_id" if version >= 13 else "topic", "partition")
    #: In the order of the request; a topic id that is not known has no name.
    rows: list[_Asked] = []
    for topic, partitions in asked.items():
        name, found = (services.view.topic_name(topic), topic) if version >= 13 else (topic, None)
        rows.append(_Asked(name, found, partitions))
        if name is None:
            continue
        for number, each in partitions.items():
            positions[PartitionKey(name, number)] = _position(each, found, version)
    if replica_id != _CONSUMER and not call.from_broker:
        refused = FetchOutcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        outcomes = dict.fromkeys(positions, refused)
    elif positions:
        outcomes = await services.replicas.fetching.fetch(
            positions,
            Reader(replica_id, BrokerGeneration(generation), getattr(request, "rack_id", "")),
            max_wait_ms=milliseconds(request.max_wait),
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, FETCH_BYTES_MAX, call.request.answer_bytes_max),
        )
    if len(positions) > LONG_PARTITIONS_MIN:
        # Reading held the loop for long enough; others are next.
        await asyncio.sleep(0)
    return _pack(services, version, rows, outcomes)


def _replica(request: Any, version: int) -> tuple[int, int]:
    """Return which broker fetches; below 0 are consumers: -2 is Kafka's tool that compares replicas."""
    if version >= 15:
        state = request.replica_state
        return max(state.replica_id, _CONSUMER), state.replica_epoch
    return max(request.replica_id, _CONSUMER), -1


def _position(each: _AskedPartition, asked_id: uuid.UUID | None, version: int) -> FetchPosition:
    return FetchPosition(
        each.fetch_offset,
        each.partition_max_bytes,
        each.current_leader_epoch if version >= 9 else -1,
        each.last_fetched_epoch if version >= 12 else -1,
        each.log_start_offset if version >= 5 else -1,
        asked_id,
    )


def _pack(
    services: BrokerServices,
    version: int,
    rows: list[_Asked],
    outcomes: dict[PartitionKey, FetchOutcome],
) -> Answer:
    view = services.view
    leaders: set[int] = set()
    topics = []
    for name, asked_id, numbers in rows:
        partitions = []
        for number in numbers:
            if name is None:
                partitions.append(FetchedPartition(number, ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1, b""))
                continue
            key = PartitionKey(name, number)
            outcome = outcomes[key]
            leader = outcome.current_leader
            if outcome.error_code is not ErrorCode.NONE and leader is None:
                leader = current_leader(view, key, outcome.error_code)
            if leader is not None:
                leaders.add(leader[0])
            partitions.append(
                FetchedPartition(
                    number,
                    partition_error(view, outcome.error_code),
                    outcome.high_watermark,
                    # Without transactions every committed record is stable.
                    outcome.high_watermark,
                    outcome.log_start_offset,
                    outcome.records,
                    outcome.diverging_epoch,
                    leader,
                    outcome.preferred_read_replica,
                )
            )
        found = asked_id if version >= 13 else topic_id(view, name or "")
        topics.append(FetchedTopic(name or "", found, partitions))
    return pack_fetch_response(version, topics, node_endpoints=client_endpoints(view, leaders))
