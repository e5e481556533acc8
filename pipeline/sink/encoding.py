"""Rows to records: each task turns its rows into chunks, which the driver only has to head and send.

Decides which partition a row goes to, as Kafka's Java client does: the column `partition`, else the hash of
the key, else one partition for a chunk's length and then the next. Rows of a task keep their order within a
partition. The timestamp and the sequence numbers are the driver's: they stand in the head of a batch.
Source: Kafka's protocol guide, "Record"; Kafka's Utils.murmur2 and BuiltInPartitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import cramjam

from broker.client.producing import HEADER_BYTES, Chunk
from pipeline.sink.errors import RowError
from quorum.errors import shown
from quorum.metadata.paths import PartitionKey

#: Records of one chunk, before compression; a topic with smaller messages has smaller chunks.
CHUNK_BYTES_MAX: Final = 900_000
#: All unfinished chunks of a task.
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
#: Topics that a task remembers.
TOPICS_MAX: Final = 1024
#: What compression may add where nothing can be compressed.
_COMPRESSION_ROOM: Final = 4_096
#: Keys of which the partition is remembered.
_HASHES_MAX: Final = 65_536

_COMPRESS: Final[Mapping[int, Callable[[bytes], Any]]] = {
    0: bytes,
    1: cramjam.gzip.compress,
    3: cramjam.lz4.compress,
    4: cramjam.zstd.compress,
}

Header = Mapping[str, Any]


class TopicShape(NamedTuple):
    """What a task must know of a topic."""

    partitions: int
    message_bytes_max: int


class SinkRow(NamedTuple):
    """What one row says."""

    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None


class _Open:
    """The unfinished chunk of one partition."""

    __slots__ = ("count", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.count = 0
        self.size = 0


class Encoder:
    """The chunks of one task."""

    def __init__(self, shape_of: Callable[[str], TopicShape], *, codec: int, first_partition: int) -> None:
        """Begin.

        Args:
            shape_of: looks a topic up; raises OptionError if there is none.
            codec: Kafka's number of the compression.
            first_partition: where rows without a key go first, modulo the topic's partitions.
        """
        self._shape_of = lru_cache(maxsize=TOPICS_MAX)(shape_of)
        self._codec = codec
        self._turn = first_partition
        self._open: dict[PartitionKey, _Open] = {}
        self._open_bytes = 0

    def add(self, row: SinkRow) -> Iterator[Chunk]:
        """Take a row; yields the chunks that it completes."""
        if row.topic is None:
            raise RowError("a row has no topic", "fill the column topic, or give the option topic")
        shape = self._shape_of(row.topic)
        bytes_max = chunk_bytes_max(shape, self._codec)
        while True:
            key = PartitionKey(row.topic, self._partition(row, shape))
            open_chunk = self._open.setdefault(key, _Open())
            record = encode_record(open_chunk.count, row.key, row.value, row.headers)
            if not open_chunk.count or open_chunk.size + len(record) <= bytes_max:
                break
            yield self._close(key)
        if len(record) > shape.message_bytes_max - HEADER_BYTES - (_COMPRESSION_ROOM if self._codec else 0):
            raise RowError(
                f"a row of {len(record)} bytes for topic {shown(row.topic)}: its max.message.bytes is "
                f"{shape.message_bytes_max}",
                "raise max.message.bytes of the topic, or write smaller values",
            )
        open_chunk.parts.append(record)
        open_chunk.count += 1
        open_chunk.size += len(record)
        self._open_bytes += len(record)
        if self._open_bytes > OPEN_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """Yield the unfinished chunks."""
        for key in list(self._open):
            yield self._close(key)

    def _close(self, key: PartitionKey) -> Chunk:
        done = self._open.pop(key)
        self._open_bytes -= done.size
        self._turn += 1
        records = bytes(_COMPRESS[self._codec](b"".join(done.parts)))
        return Chunk(key, done.count, records, self._codec)

    def _partition(self, row: SinkRow, shape: TopicShape) -> int:
        if row.partition is not None:
            if not 0 <= row.partition < shape.partitions:
                raise RowError(
                    f"a row for partition {row.partition} of topic {shown(row.topic)}, which has "
                    f"{shape.partitions}",
                    "correct the column partition, or add partitions",
                )
            return row.partition
        if row.key is not None:
            return _hash(row.key) % shape.partitions
        return self._turn % shape.partitions


def chunk_bytes_max(shape: TopicShape, codec: int) -> int:
    """Return how large a chunk of a topic may become before it is compressed."""
    room = HEADER_BYTES + (_COMPRESSION_ROOM if codec else 0)
    return max(1, min(CHUNK_BYTES_MAX, shape.message_bytes_max - room))


def encode_record(
    offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None
) -> bytes:
    """Return one record of a batch whose records have one timestamp."""
    # Attributes and the timestamp's delta: both 0.
    parts = [b"\0\0", _varint(offset_delta), _sized(key), _sized(value)]
    if headers:
        parts.append(_varint(len(headers)))
        for header in headers:
            parts += (_sized(header["key"].encode()), _sized(header["value"]))
    else:
        parts.append(b"\0")
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(content: bytes | None) -> bytes:
    return b"\1" if content is None else _varint(len(content)) + content


def _varint_of(number: int) -> bytes:
    """Encode a number from 0 on, zigzag."""
    left = number << 1
    packed = bytearray()
    while left > 0x7F:
        packed.append(left & 0x7F | 0x80)
        left >>= 7
    packed.append(left)
    return bytes(packed)


#: The short numbers, which are most.
_SHORT: Final = tuple(_varint_of(number) for number in range(16_384))


def _varint(number: int) -> bytes:
    return _SHORT[number] if number < len(_SHORT) else _varint_of(number)


@lru_cache(maxsize=_HASHES_MAX)
def _hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def murmur2(content: bytes) -> int:
    """Return Kafka's hash of a key, unsigned."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    value = (0x9747B28C ^ len(content)) & mask
    whole = len(content) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(content[position : position + 4], "little") * mixer & mask
        word = (word ^ (word >> 24)) * mixer & mask
        value = (value * mixer & mask) ^ word
    tail = content[whole:]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * mixer & mask
    value = (value ^ (value >> 13)) * mixer & mask
    return value ^ (value >> 15)
