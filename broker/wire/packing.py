"""Fetch and Produce, packed by hand: they are what every record costs. And the rows of Metadata responses.

Record batches stay the objects that they are: a message is a list of parts that the transport writes one
behind the other, so records are not copied here. What is in a message is decided elsewhere. Every version is
compared byte for byte with kio in a property test.
Source: FetchRequest.json, FetchResponse.json, MetadataResponse.json, ProduceRequest.json,
ProduceResponse.json (Kafka 3.9); KIP-482 (compact lengths, tagged fields).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from controller.wire.decoding import packed_varint
from quorum.metadata.paths import PartitionKey

#: A message in pieces, in their order.
Parts = list[bytes | memoryview]

#: Records up to this size are copied behind what stands before them: one piece more costs more than that.
_INLINE_BYTES_MAX: Final = 4096
_NO_TOPIC_ID: Final = bytes(16)
#: topic_authorized_operations of a reader that does not ask for them
_NO_OPERATIONS: Final = b"\x80\0\0\0"
#: How many layouts of partitions are kept: one for each combination of array lengths that occurs.
_LAYOUTS_MAX: Final = 1000

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
#: index, error code, high watermark, last stable offset
_PARTITION: Final = Struct(">ihqq")
#: index, error code, base offset, time of the append
_PRODUCED: Final = Struct(">ihqq")
#: producer id, first offset
_ABORTED: Final = Struct(">qq")
#: tag, size, epoch, end offset, no tags
_DIVERGING: Final = Struct(">BBiqB")
#: index, current leader epoch, offset, last fetched epoch, start of the log, bytes at most, no tags
_ASKED: Final = Struct(">iiqiqix")
#: how long to wait, bytes at least, bytes at most, isolation level, session id and epoch
_FETCH: Final = Struct(">iiibii")
#: no rack, one tag: its number, size, replica id, replica epoch, no tags
_REPLICA: Final = Struct(">BBBBiqx")
#: tag, size, leader id, leader epoch, no tags
_LEADER: Final = Struct(">BBiiB")


class FetchedPartition(NamedTuple):
    """One partition in a Fetch response; numbers that are not known are -1."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview
    #: (epoch, end offset)
    diverging_epoch: tuple[int, int] | None = None
    #: (broker id, leader epoch)
    current_leader: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    #: (producer id, first offset); None: all records were asked for
    aborted: Sequence[tuple[int, int]] | None = None


class FetchedTopic(NamedTuple):
    """One topic in a Fetch response: named up to version 12, by its id from 13 on."""

    name: str
    topic_id: uuid.UUID | None
    partitions: Sequence[FetchedPartition]


#: A partition in a Fetch request: index, current leader epoch, offset, last fetched epoch, start of the log,
#: bytes at most.
AskedPartition = tuple[int, int, int, int, int, int]


class ProducedPartition(NamedTuple):
    """One partition in a Produce response; numbers that are not known are -1."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    #: (broker id, leader epoch)
    current_leader: tuple[int, int] | None = None
    #: (number in the batch, what is wrong); versions before 8 cannot say it
    record_errors: Sequence[tuple[int, str]] = ()


class PartitionRow(NamedTuple):
    """One partition in a Metadata response, with the names of its fields there."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class NodeEndpoint(NamedTuple):
    """Where a broker that leads one of the partitions is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None


def pack_fetch_response(
    api_version: int,
    topics: Sequence[FetchedTopic],
    *,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> Parts:
    """Pack a Fetch response of version 4 to 17.

    Args:
        api_version: the version.
        topics: what was fetched.
        error_code: of the whole request; versions before 7 cannot say it.
        session_id: of its fetch session, 0: none; versions before 7 cannot say it.
        node_endpoints: the leaders that partitions name; versions before 16 cannot say it.
        throttle_ms: for how long its client is throttled.
    """
    parts: Parts = []
    flexible = api_version >= 12
    head = bytearray(_I32.pack(throttle_ms))
    if api_version >= 7:
        head += _I16.pack(error_code) + _I32.pack(session_id)
    head += _count(len(topics), flexible)
    for topic in topics:
        if api_version >= 13:
            head += _topic_id(topic.topic_id)
        else:
            head += _string(topic.name, flexible)
        head += _count(len(topic.partitions), flexible)
        for partition in topic.partitions:
            head = _pack_partition(parts, head, api_version, partition)
        if flexible:
            head.append(0)
    if flexible:
        head += _endpoints(node_endpoints) if api_version >= 16 and node_endpoints else b"\0"
    parts.append(bytes(head))
    return parts


def pack_fetch_request(
    topics: Sequence[tuple[uuid.UUID | None, Sequence[AskedPartition]]],
    forgotten: Mapping[uuid.UUID | None, Sequence[int]],
    replica_id: int,
    replica_epoch: int,
    *,
    session_id: int,
    session_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
) -> bytes:
    """Pack a follower's Fetch request of version 16.

    Args:
        topics: (id, what is asked of its partitions).
        forgotten: {id of a topic: partitions that the session shall read no longer}
        replica_id: the follower.
        replica_epoch: its generation.
        session_id: 0: none.
        session_epoch: of the request in its session.
        max_wait_ms: how long the leader may hold the request.
        max_bytes: of records in the answer.
    """
    packed = bytearray(_FETCH.pack(max_wait_ms, 1, max_bytes, 0, session_id, session_epoch))
    packed += _count(len(topics), flexible=True)
    for topic_id, partitions in topics:
        packed += _topic_id(topic_id) + _count(len(partitions), flexible=True)
        for asked in partitions:
            packed += _ASKED.pack(*asked)
        packed.append(0)
    packed += _count(len(forgotten), flexible=True)
    for topic_id, indices in forgotten.items():
        packed += _topic_id(topic_id) + _count(len(indices), flexible=True)
        packed += b"".join(map(_I32.pack, indices)) + b"\0"
    packed += _REPLICA.pack(1, 1, 1, 13, replica_id, replica_epoch)
    return bytes(packed)


def _pack_partition(parts: Parts, head: bytearray, version: int, partition: FetchedPartition) -> bytearray:
    flexible = version >= 12
    head += _PARTITION.pack(
        partition.partition, partition.error_code, partition.high_watermark, partition.last_stable_offset
    )
    if version >= 5:
        head += _I64.pack(partition.log_start_offset)
    if partition.aborted is None:
        head += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        head += _count(len(partition.aborted), flexible)
        for each in partition.aborted:
            head += _ABORTED.pack(*each)
            if flexible:
                head.append(0)
    if version >= 11:
        head += _I32.pack(partition.preferred_read_replica)
    head = _append_records(parts, head, partition.records, flexible)
    if not flexible:
        return head
    diverging, leader = partition.diverging_epoch, partition.current_leader
    if diverging == (-1, -1):
        diverging = None
    if leader == (-1, -1):
        leader = None
    head.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        head += _DIVERGING.pack(0, 13, *diverging, 0)
    if leader is not None:
        head += _LEADER.pack(1, 9, *leader, 0)
    return head


def pack_produce_request(
    api_version: int, batches: Mapping[PartitionKey, bytes], *, acks: int, timeout_ms: int
) -> Parts:
    """Pack a Produce request of version 3 to 10, without a transaction.

    Args:
        api_version: the version.
        batches: {partition: record batches}; partitions of one topic stand together, in the order given.
        acks: -1 (all), 0 or 1.
        timeout_ms: how long the leader may wait for acknowledgements.
    """
    parts: Parts = []
    flexible = api_version >= 9
    head = bytearray(b"\0" if flexible else b"\xff\xff")
    head += _I16.pack(acks) + _I32.pack(timeout_ms)
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for key, records in batches.items():
        topics.setdefault(key.topic, []).append((key.partition, records))
    head += _count(len(topics), flexible)
    for topic, partitions in topics.items():
        head += _string(topic, flexible) + _count(len(partitions), flexible)
        for index, records in partitions:
            head += _I32.pack(index)
            head = _append_records(parts, head, records, flexible)
            if flexible:
                head.append(0)
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    parts.append(bytes(head))
    return parts


def pack_produce_response(
    api_version: int,
    topics: Sequence[tuple[str, Sequence[ProducedPartition]]],
    *,
    node_endpoints: Sequence[NodeEndpoint] = (),
    throttle_ms: int = 0,
) -> Parts:
    """Pack a Produce response of version 3 to 10.

    Args:
        api_version: the version.
        topics: (name, what became of its partitions).
        node_endpoints: the leaders that partitions name; versions before 10 cannot say it.
        throttle_ms: for how long its client is throttled.
    """
    flexible = api_version >= 9
    head = bytearray(_count(len(topics), flexible))
    for name, partitions in topics:
        head += _string(name, flexible) + _count(len(partitions), flexible)
        for each in partitions:
            head += _PRODUCED.pack(each.partition, each.error_code, each.base_offset, each.log_append_time_ms)
            if api_version >= 5:
                head += _I64.pack(each.log_start_offset)
            if api_version >= 8:
                head += _count(len(each.record_errors), flexible)
                for number, problem in each.record_errors:
                    head += _I32.pack(number) + _string(problem, flexible)
                    if flexible:
                        head.append(0)
                if each.error_message is None:
                    head += b"\0" if flexible else b"\xff\xff"
                else:
                    head += _string(each.error_message, flexible)
            if flexible:
                leader = each.current_leader if api_version >= 10 else None
                head += b"\0" if leader in (None, (-1, -1)) else b"\1" + _LEADER.pack(0, 9, *leader, 0)
        if flexible:
            head.append(0)
    head += _I32.pack(throttle_ms)
    if flexible:
        # The same tag as in a Fetch response.
        head += _endpoints(node_endpoints) if api_version >= 10 and node_endpoints else b"\0"
    return [bytes(head)]


def pack_topic_row(
    api_version: int, name: str, topic_id: uuid.UUID | None, partitions: Iterable[PartitionRow]
) -> bytes:
    """Pack a topic that there is, as a Metadata response of version 0 to 12 names it.

    Args:
        api_version: the version.
        name: of the topic.
        topic_id: None: it has none; versions before 10 cannot say it.
        partitions: its partitions.
    """
    flexible = api_version >= 9
    rows: list[bytes] = []
    for error_code, index, leader_id, leader_epoch, replicas, isr, offline in partitions:
        pack, replica_count, isr_count, offline_count = _row_layout(
            api_version, len(replicas), len(isr), len(offline)
        )
        head = (leader_id, leader_epoch) if api_version >= 7 else (leader_id,)
        tail = (offline_count, *offline) if api_version >= 5 else ()
        rows.append(pack(error_code, index, *head, replica_count, *replicas, isr_count, *isr, *tail))
    row = bytearray(2) + _string(name, flexible)
    if api_version >= 10:
        row += _topic_id(topic_id)
    if api_version >= 1:
        # No topic is internal.
        row.append(0)
    row += _count(len(rows), flexible)
    row += b"".join(rows)
    if api_version >= 8:
        row += _NO_OPERATIONS
    if flexible:
        row.append(0)
    return bytes(row)


def with_operations(api_version: int, row: bytes, operations: int) -> bytes:
    """Say in a topic's row, from version 8 on, what its reader may do to the topic: a bit field (KIP-430)."""
    end = len(row) - (api_version >= 9)
    return row[: end - 4] + operations.to_bytes(4, "big", signed=True) + row[end:]


@lru_cache(maxsize=_LAYOUTS_MAX)
def _row_layout(
    api_version: int, replicas: int, isr: int, offline: int
) -> tuple[Callable[..., bytes], bytes, bytes, bytes]:
    """Return how a partition with arrays of these lengths is packed, and the lengths as they are packed."""
    flexible = api_version >= 9
    counts = [_count(each, flexible) for each in (replicas, isr, offline)]
    arrays = [f"{len(count)}s{each}i" for count, each in zip(counts, (replicas, isr, offline), strict=True)]
    layout = Struct(
        ">hii"
        + ("i" if api_version >= 7 else "")
        + "".join(arrays if api_version >= 5 else arrays[:2])
        # No tags.
        + ("x" if flexible else "")
    )
    return layout.pack, counts[0], counts[1], counts[2]


def _append_records(parts: Parts, head: bytearray, records: bytes | memoryview, flexible: bool) -> bytearray:
    """Append records to the head, or put both among the parts; returns the head to go on with."""
    head += packed_varint(len(records) + 1) if flexible else _I32.pack(len(records))
    if len(records) <= _INLINE_BYTES_MAX:
        head += records
        return head
    parts.append(bytes(head))
    parts.append(records)
    return bytearray()


def _endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    value = bytearray(_count(len(endpoints), flexible=True))
    for endpoint in endpoints:
        value += _I32.pack(endpoint.node_id) + _string(endpoint.host, flexible=True)
        value += _I32.pack(endpoint.port)
        value += b"\0" if endpoint.rack is None else _string(endpoint.rack, flexible=True)
        value.append(0)
    return b"\1\0" + packed_varint(len(value)) + bytes(value)


def _count(count: int, flexible: bool) -> bytes:
    return packed_varint(count + 1) if flexible else _I32.pack(count)


def _topic_id(topic_id: uuid.UUID | None) -> bytes:
    return _NO_TOPIC_ID if topic_id is None else topic_id.bytes


def _string(text: str, flexible: bool) -> bytes:
    raw = text.encode()
    return (packed_varint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw
