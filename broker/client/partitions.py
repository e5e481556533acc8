"""Requests to the leaders of partitions, and what they answer.

Source: Kafka's Produce, Fetch and ListOffsets requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from broker.log.batches import CONTROL, HEADER, TRANSACTIONAL, BatchHeader, parse_header
from broker.wire.codec import Values
from quorum.errors import UsageError, shown
from quorum.metadata.paths import PartitionKey

T = TypeVar("T")

#: What a reader sees of transactions, under Kafka's names.
Isolation = Literal["read_uncommitted", "read_committed"]
_ISOLATIONS: Final = get_args(Isolation)


class Produced(NamedTuple):
    """What became of the records for one partition."""

    error_code: int
    base_offset: int = -1
    message: str | None = None


class FetchedRecords(NamedTuple):
    """What was read of one partition."""

    error_code: int
    #: Exclusive; -1: unknown.
    high_watermark: int = -1
    log_start_offset: int = -1
    #: Whole batches of records; the last one may be cut.
    records: bytes = b""
    #: Behind the last whole batch that was read, also where it is none of records; -1: none was.
    next_offset: int = -1


class FoundOffset(NamedTuple):
    """The offset that belongs to a timestamp; -1: there is none."""

    error_code: int
    timestamp: int = -1
    offset: int = -1


class FoundProducers(NamedTuple):
    """The producers that a partition's log knows, as rows of DescribeProducers."""

    error_code: int
    producers: Sequence[Any] = ()


def fetch_values(
    offsets: Mapping[PartitionKey, int], *, max_wait_ms: int, max_bytes: int, isolation: Isolation
) -> Values:
    """Return the body of a Fetch request of version 4 to 12."""
    if isolation not in _ISOLATIONS:
        raise UsageError(f"isolation {shown(isolation)} is not known", f"give {' or '.join(_ISOLATIONS)}")
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": _ISOLATIONS.index(isolation),
        "topics": by_topic(
            offsets,
            "topic",
            lambda index, offset: {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": max_bytes,
            },
        ),
        "forgotten_topics_data": (),
    }


def read_fetch(response: Any) -> dict[PartitionKey, FetchedRecords]:
    """Return the content of a Fetch response that names topics; an error of the whole is one of each."""
    overall = int(getattr(response, "error_code", 0))
    return {
        PartitionKey(topic.topic, each.partition_index): FetchedRecords(
            overall or int(each.error_code),
            each.high_watermark,
            each.log_start_offset,
            *_for_users(each.records or b"", each.aborted_transactions or ()),
        )
        for topic in response.responses
        for each in topic.partitions
    }


def _for_users(records: bytes, aborted: Iterable[Any]) -> tuple[bytes, int]:
    """Leave out control batches and those of aborted transactions; returns what is left and what comes next.

    Args:
        records: as fetched.
        aborted: rows with `producer_id` and `first_offset`; none where all records were asked for.
    """
    begins = deque(sorted((each.first_offset, each.producer_id) for each in aborted))
    aborting: set[int] = set()
    left: list[bytes] = []
    position, next_offset = 0, -1
    for header in batch_headers(records):
        begin, position = position, position + header.size
        next_offset = header.last_offset + 1
        while begins and begins[0][0] <= header.last_offset:
            aborting.add(begins.popleft()[1])
        if header.attributes & CONTROL:
            # It ends the transaction of its producer, whichever way.
            aborting.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
            left.append(records[begin:position])
    return b"".join([*left, records[position:]]), next_offset


def batch_headers(records: bytes) -> Iterator[BatchHeader]:
    """Yield the headers of the whole batches that a fetch returned."""
    position = 0
    while position + HEADER.size <= len(records):
        header = parse_header(records, position)
        position += header.size
        if position <= len(records):
            yield header


def list_offsets_values(timestamps: Mapping[PartitionKey, int]) -> Values:
    """Return the body of a ListOffsets request."""
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": by_topic(
            timestamps,
            "name",
            lambda index, timestamp: {"partition_index": index, "timestamp": timestamp},
        ),
    }


def read_list_offsets(response: Any) -> dict[PartitionKey, FoundOffset]:
    """Return the content of a ListOffsets response."""
    return {
        PartitionKey(topic.name, each.partition_index): FoundOffset(
            int(each.error_code), each.timestamp, each.offset
        )
        for topic in response.topics
        for each in topic.partitions
    }


def read_produce(response: Any) -> dict[PartitionKey, Produced]:
    """Return the content of a Produce response."""
    return {
        PartitionKey(topic.name, each.index): Produced(
            int(each.error_code), each.base_offset, getattr(each, "error_message", None)
        )
        for topic in response.responses
        for each in topic.partition_responses
    }


def by_topic(
    items: Mapping[PartitionKey, T],
    name: str,
    row: Callable[[int, T], object],
    *,
    partitions: str = "partitions",
) -> list[Values]:
    """Return rows of topics, as requests have them.

    Args:
        items: by partition.
        name: of the field with the topic's name.
        row: (partition, item) → its row.
        partitions: of the field with the rows.
    """
    topics: dict[str, list[object]] = {}
    for key, item in items.items():
        topics.setdefault(key.topic, []).append(row(key.partition, item))
    return [{name: topic, partitions: rows} for topic, rows in topics.items()]
