"""Fetch: record batches to consumers and followers.

Decides who may fetch as a follower (only who has authenticated), and which session a request belongs to
(broker/core/fetch_sessions.py). broker/replication/fetching.py waits and reads.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas", "Consumers"; KIP-227, KIP-392, KIP-516,
KIP-951.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from broker.core.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, Owner
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.replication.fetching import Reader
from broker.server.api.partitions import (
    READ_COMMITTED,
    client_endpoints,
    current_leader,
    named_once,
    partition_error,
)
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.server.throttling import fetch_left, throttle_fetch
from broker.wire.codec import milliseconds
from broker.wire.packing import FetchedPartition, FetchedTopic, pack_fetch_response
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey

#: Largest answer, whatever a client asks for; Kafka's fetch.max.bytes.
FETCH_BYTES_MAX: Final = 55 * 1024 * 1024
#: A request about more partitions leaves the loop between reading and answering.
LONG_PARTITIONS_MIN: Final = 1000
_CONSUMER: Final = -1


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


#: (id of a topic, or its name; partition)
_Name = tuple[Any, int]
_Session = FetchSession


class _Named(NamedTuple):
    """What a request asks for, or a session has due."""

    positions: dict[PartitionKey, FetchPosition]
    #: Of topics whose id is not known here.
    unknown: dict[_Name, FetchPosition]


async def fetch(services: BrokerServices, call: Call) -> Answer:
    """Read, and answer when there is enough or the time is over."""
    request = call.body
    version = call.request.api_version
    replica_id, generation = _replica(request, version)
    read_committed = replica_id == _CONSUMER and request.isolation_level == READ_COMMITTED
    reader = Reader(replica_id, BrokerGeneration(generation), getattr(request, "rack_id", ""), read_committed)
    may_read = replica_id == _CONSUMER or call.from_broker
    named = _named(services, request, version)
    session: _Session | ErrorCode | None = None
    session_epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    is_full = session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
    if may_read and version >= 7:
        session = _session(services, call, (replica_id, generation), named)
    if isinstance(session, ErrorCode):
        return list(pack_fetch_response(version, (), error_code=session))
    left, throttle_ms = fetch_left(services, call)
    if throttle_ms:
        return _throttled(services, version, session, is_full, throttle_ms)
    # One batch is always read.
    bytes_max = int(min(request.max_bytes, FETCH_BYTES_MAX, call.request.answer_bytes_max, max(left, 1)))
    if session is not None:
        named = _due(services, session)
        if call.request.on_next is not None:
            call.request.on_next.append(session.end)
    positions, refused = named.positions, dict[PartitionKey, FetchOutcome]()
    outcomes = refused
    if call.access.lists is not None:
        refused = _refused(call, positions)
        positions = {key: position for key, position in positions.items() if key not in refused}
    if not may_read:
        outcomes = dict.fromkeys(positions, FetchOutcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    elif positions or session is not None:
        outcomes = await services.replicas.fetching.fetch(
            positions,
            reader,
            # What is not known or refused is worth an answer.
            max_wait_ms=0 if named.unknown or refused else milliseconds(request.max_wait),
            min_bytes=min(request.min_bytes, bytes_max),
            max_bytes=bytes_max,
            session=session,
        )
    if call.access.lists is not None:
        # Those of a session that changed meanwhile were read, too.
        outcomes |= refused | _refused(call, outcomes)
    if len(positions) > LONG_PARTITIONS_MIN:
        # Reading held the loop for long enough; others are next.
        await asyncio.sleep(0)
    throttle_ms = throttle_fetch(services, call, outcomes.values())
    if session is None:
        return _pack(services, version, call.listener, named, outcomes, throttle_ms=throttle_ms)
    ids = {key: each.topic_id for key in outcomes if (each := session.partitions.get(key)) is not None}
    answered = session.answer(outcomes, is_full=is_full)
    about = services, version, call.listener, named, answered
    return _pack(*about, session_id=session.session_id, ids=ids, throttle_ms=throttle_ms)


def _throttled(
    services: BrokerServices, version: int, session: _Session | None, is_full: bool, throttle_ms: int
) -> Answer:
    """Answer without anything, read nothing; what would begin a session begins none."""
    if session is not None and is_full:
        services.replicas.fetching.sessions.end(session)
        session = None
    session_id = NO_SESSION if session is None else session.session_id
    return pack_fetch_response(version, (), session_id=session_id, throttle_ms=throttle_ms)


def _refused(call: Call, keys: Iterable[PartitionKey]) -> dict[PartitionKey, FetchOutcome]:
    """Return the outcomes of what a consumer may not read."""
    refusal = FetchOutcome(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    access = call.access
    return {key: refusal for key in keys if not access.permits(Operation.READ, ResourceType.TOPIC, key.topic)}


def _named(services: BrokerServices, request: Any, version: int) -> _Named:
    named = _Named({}, {})
    by_id = version >= 13
    for topic, rows in named_once(request.topics, "topic_id" if by_id else "topic", "partition").items():
        name, asked_id = (services.view.topic_name(topic), topic) if by_id else (topic, None)
        for number, each in rows.items():
            position = _position(each, asked_id, version)
            if name is None:
                named.unknown[topic, number] = position
            else:
                named.positions[PartitionKey(name, number)] = position
    return named


def _session(
    services: BrokerServices, call: Call, owner: Owner, named: _Named
) -> _Session | ErrorCode | None:
    """Return the session that a request belongs to, with what it names; None: it has none."""
    request, sessions = call.body, services.replicas.fetching.sessions
    now_ms, by_id = int(call.request.received_s * 1000), call.request.api_version >= 13
    session_id, epoch = request.session_id, request.session_epoch
    found: _Session | ErrorCode | None = None
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.end_of(session_id, owner)
        if epoch == INITIAL_EPOCH:
            size = len(named.positions) + len(named.unknown)
            found = sessions.begin(owner, now_ms, size=size, by_id=by_id)
    else:
        found = sessions.take(session_id, epoch, owner, now_ms, by_id=by_id)
    if not isinstance(found, FetchSession):
        return found
    size = len(found)
    found.name(named.positions)
    found.unknown.update(named.unknown)
    unnamed: set[_Name] = set()
    for topic in request.forgotten_topics_data:
        name = services.view.topic_name(topic.topic_id) if by_id else topic.topic
        if by_id:
            # It was not known when it was named; by now it may be.
            for number in topic.partitions:
                found.unknown.pop((topic.topic_id, number), None)
        if name is None:
            unnamed.update((topic.topic_id, number) for number in topic.partitions)
        else:
            sessions.forget(found, [PartitionKey(name, number) for number in topic.partitions])
    if unnamed:
        # They are deleted, or have never been known.
        named_so = found.partitions.items()
        sessions.forget(found, [key for key, each in named_so if (each.topic_id, key.partition) in unnamed])
    if len(found) > size and not sessions.has_room(found):
        sessions.end(found)
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    if not len(found):
        sessions.end(found)
        return None
    return found


def _due(services: BrokerServices, session: _Session) -> _Named:
    """Return what a session reads now; topics that were not known may be by now."""
    for topic_id, number in list(session.unknown):
        if (name := services.view.topic_name(topic_id)) is not None:
            position = session.unknown.pop((topic_id, number))
            session.name({PartitionKey(name, number): position})
    return _Named(session.positions(), dict(session.unknown))


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
    listener: str,
    named: _Named,
    outcomes: Mapping[PartitionKey, FetchOutcome],
    *,
    session_id: int = NO_SESSION,
    throttle_ms: int = 0,
    ids: Mapping[PartitionKey, uuid.UUID | None] | None = None,
) -> Answer:
    view = services.view
    leaders: set[int] = set()
    topics: dict[tuple[str, uuid.UUID | None], list[FetchedPartition]] = {}
    for key, outcome in outcomes.items():
        leader = outcome.current_leader
        if outcome.error_code is not ErrorCode.NONE and leader is None:
            leader = current_leader(view, key, outcome.error_code)
        if leader is not None:
            leaders.add(leader[0])
        found = named.positions[key].topic_id if ids is None else ids.get(key)
        error_code = partition_error(view, outcome.error_code)
        if outcome.error_code is not ErrorCode.NONE and found is not None and view.topic_name(found) is None:
            error_code = ErrorCode.UNKNOWN_TOPIC_ID
        topics.setdefault((key.topic, found), []).append(
            FetchedPartition(
                key.partition,
                error_code,
                outcome.high_watermark,
                outcome.last_stable_offset,
                outcome.log_start_offset,
                outcome.records,
                outcome.diverging_epoch,
                leader,
                outcome.preferred_read_replica,
                outcome.aborted,
            )
        )
    for topic_id, number in named.unknown:
        refused = FetchedPartition(number, ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, -1, b"")
        topics.setdefault(("", topic_id), []).append(refused)
    rows = [FetchedTopic(name, found, partitions) for (name, found), partitions in topics.items()]
    endpoints = client_endpoints(view, leaders, listener)
    return pack_fetch_response(
        version, rows, session_id=session_id, node_endpoints=endpoints, throttle_ms=throttle_ms
    )
