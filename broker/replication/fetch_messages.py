"""The bytes of a follower's Fetch requests and of their answers, in the one version that brokers speak.

Version 16: topics by id, the follower's generation as ReplicaEpoch.
Source: Kafka's FetchRequest.json and FetchResponse.json; KIP-227, KIP-516, KIP-903.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kio.schema.fetch.v16.response import FetchResponse

from broker.core.fetched import FetchOutcome, FetchPosition
from broker.wire.packing import AskedPartition, pack_fetch_request
from controller.wire.codes import ErrorCode
from controller.wire.decoding import Buffer, decode
from quorum.metadata.numbers import BrokerGeneration

FETCH: Final = 1
FETCH_VERSION: Final = 16


class TopicPartition(NamedTuple):
    """A partition as Fetch names it."""

    topic_id: uuid.UUID | None
    partition: int


def encode_fetch(
    positions: Iterable[tuple[TopicPartition, FetchPosition]],
    forgotten: Iterable[TopicPartition],
    broker_id: int,
    generation: BrokerGeneration,
    *,
    session_id: int,
    session_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
) -> bytes:
    """Return the body of a follower's request.

    Args:
        positions: what to read, in the order in which the leader shall read; in a session, what has changed.
        forgotten: what the session shall read no longer.
        broker_id: the follower.
        generation: of the follower.
        session_id: of the fetch session; 0: none.
        session_epoch: of the request in its session.
        max_wait_ms: how long the leader may hold the request.
        max_bytes: of records in the answer.
    """
    topics: list[tuple[uuid.UUID | None, list[AskedPartition]]] = []
    for (topic_id, partition), position in positions:
        if not topics or topics[-1][0] != topic_id:
            topics.append((topic_id, []))
        offset, most, leader_epoch, fetched_epoch, start, _ = position
        topics[-1][1].append((partition, leader_epoch, offset, fetched_epoch, start, most))
    gone: dict[uuid.UUID | None, list[int]] = {}
    for topic_id, partition in forgotten:
        gone.setdefault(topic_id, []).append(partition)
    return pack_fetch_request(
        topics,
        gone,
        broker_id,
        generation,
        session_id=session_id,
        session_epoch=session_epoch,
        max_wait_ms=max_wait_ms,
        max_bytes=max_bytes,
    )


def decode_fetch(body: Buffer) -> tuple[ErrorCode, int, Iterator[tuple[TopicPartition, FetchOutcome]]]:
    """Read a leader's answer: its error for the whole request, its session, what it says of partitions.

    Records are views of `body`.
    """
    records: list[memoryview | None] = []
    response = decode(FetchResponse, body, records=records)
    return ErrorCode(response.error_code.value), response.session_id, _outcomes(response, iter(records))


def _outcomes(
    response: FetchResponse, records: Iterator[memoryview | None]
) -> Iterator[tuple[TopicPartition, FetchOutcome]]:
    for topic in response.responses:
        for data in topic.partitions:
            diverging = data.diverging_epoch
            yield (
                TopicPartition(topic.topic_id, data.partition_index),
                FetchOutcome(
                    ErrorCode(data.error_code.value),
                    data.high_watermark,
                    data.log_start_offset,
                    next(records) or b"",
                    (diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
                ),
            )
