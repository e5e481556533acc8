"""Records of a partition for a page: some of them from an offset on, filtered here, within bounds.

Decides how much is looked at for one answer: a page asks again from where it ended, and may stop at any time.
No state.

Source: Kafka's record format 2 (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.client import BrokerClient
from broker.client.partitions import batch_headers
from broker.log.unfolding import unfolded
from controller.wire.codes import code_name
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey

#: of one answer: records, bytes of their values, and bytes that are looked at
RECORDS_MAX: Final = 100
BYTES_MAX: Final = 512 * 1024
LOOKED_AT_BYTES_MAX: Final = 8 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 32 * 1024 * 1024
_VALUE_SHOWN_MAX: Final = 64 * 1024
_CONTROL: Final = 0x20


class Record(NamedTuple):
    """One record; key and value are None where they are null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class ReadRecords(NamedTuple):
    """Some records.

    Attributes:
        next_offset: to go on from.
        ended: whether there are no more now.
        looked_at: records, those that the filter left out among them.
    """

    records: list[Record]
    next_offset: int
    ended: bool
    looked_at: int


async def read(
    client: BrokerClient, key: PartitionKey, offset: int, count: int, wanted: bytes
) -> ReadRecords:
    """Read records from an offset on.

    Args:
        client: of the brokers.
        key: the partition.
        offset: the first one.
        count: how many at most.
        wanted: what key or value has to contain; empty: anything.

    Raises:
        QuorateError: the partition cannot be read from there.
    """
    kept: list[Record] = []
    size = looked_at = bytes_seen = 0
    while bytes_seen < LOOKED_AT_BYTES_MAX:
        found = (await client.fetch({key: offset}, max_wait_ms=0, max_bytes=1 << 20))[key]
        if found.error_code:
            name = f"{key.topic}-{key.partition}"
            first = found.log_start_offset
            where = f"; its log begins at {first}" if first >= 0 else ""
            raise QuorateError(
                f"{name} cannot be read from {offset}: {code_name(found.error_code)}{where}",
                "choose another offset or partition",
            )
        bytes_seen += len(found.records) + 1
        before = offset
        for record in _records(found.records):
            if record.offset < offset:
                continue
            offset = record.offset + 1
            looked_at += 1
            if wanted and wanted not in (record.key or b"") and wanted not in (record.value or b""):
                continue
            kept.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if len(kept) >= count or size >= BYTES_MAX:
                return ReadRecords(kept, offset, ended=False, looked_at=looked_at)
        offset = max(offset, found.next_offset)
        if offset <= before:
            return ReadRecords(kept, offset, ended=True, looked_at=looked_at)
    return ReadRecords(kept, offset, ended=False, looked_at=looked_at)


def _records(fetched: bytes) -> Iterator[Record]:
    position = 0
    for header in batch_headers(fetched):
        batch = memoryview(fetched)[position : position + header.size]
        position += header.size
        if header.attributes & _CONTROL:
            continue
        content, at, _ = unfolded(header, batch, _BATCH_BYTES_MAX)
        reader = _Reader(bytes(content), at)
        for _ in range(header.records_count):
            reader.varint()
            reader.at += 1
            timestamp = header.base_timestamp + reader.varint()
            offset = header.base_offset + reader.varint()
            key, value = reader.text(), reader.text()
            headers = tuple(
                ((reader.text() or b"").decode("utf-8", "replace"), reader.text())
                for _ in range(reader.varint())
            )
            yield Record(
                offset, timestamp if header.append_time_ms < 0 else header.append_time_ms, key, value, headers
            )


class _Reader:
    """Reads the numbers and texts of records."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content = content
        self.at = at

    def varint(self) -> int:
        """Read a zigzag number."""
        number = shift = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7

    def text(self) -> bytes | None:
        """Read bytes after their length; −1: null."""
        length = self.varint()
        if length < 0:
            return None
        found = self.content[self.at : self.at + length]
        self.at += length
        return found


def shortened(value: bytes | None) -> tuple[bytes | None, int]:
    """Return as much of a value as is shown, and its size."""
    return (None, 0) if value is None else (value[:_VALUE_SHOWN_MAX], len(value))
