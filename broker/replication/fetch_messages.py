"""The bytes of a follower's Fetch requests and of their answers, in the one version that brokers speak.

Version 16: topics by id, the follower's generation as ReplicaEpoch.
Source: Kafka's FetchRequest.json and FetchResponse.json; KIP-227, KIP-516, KIP-903.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple, cast

from kio.schema.fetch.v16.request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kio.schema.fetch.v16.response import FetchResponse
from kio.schema.types import BrokerId
from kio.serial import entity_writer
from kio.static.primitive import i8, i32, i32Timedelta, i64

from broker.core.fetched import FetchOutcome, FetchPosition
from controller.wire.codes import ErrorCode
from controller.wire.decoding import Buffer, decode
from quorum.metadata.numbers import BrokerGeneration

FETCH: Final = 1
FETCH_VERSION: Final = 16

_write_request = entity_writer(FetchRequest)
#: Without the checks of kio's number types: there is one for every partition, several times a second.
_fetch_partition = cast("Callable[..., FetchPartition]", FetchPartition)


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
    topics: list[FetchTopic] = []
    topic_id: uuid.UUID | None = None
    partitions: list[FetchPartition] = []
    for name, position in positions:
        if name.topic_id != topic_id and partitions:
            topics.append(FetchTopic(topic_id=topic_id, partitions=tuple(partitions)))
            partitions = []
        topic_id = name.topic_id
        partitions.append(
            _fetch_partition(
                partition=name.partition,
                current_leader_epoch=position.current_leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=position.max_bytes,
            )
        )
    if partitions:
        topics.append(FetchTopic(topic_id=topic_id, partitions=tuple(partitions)))
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=BrokerId(broker_id), replica_epoch=i64(generation)),
        max_wait=i32Timedelta.parse(timedelta(milliseconds=max_wait_ms)),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=i8(0),
        session_id=i32(session_id),
        session_epoch=i32(session_epoch),
        topics=tuple(topics),
        forgotten_topics_data=tuple(
            ForgottenTopic(topic_id=name.topic_id, partitions=(i32(name.partition),)) for name in forgotten
        ),
    )
    buffer = io.BytesIO()
    _write_request(buffer, request)
    return buffer.getvalue()


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
