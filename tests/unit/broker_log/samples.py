"""Record batches and log directories for the tests of the partition log.

Batches are built by the protocol guide, independently of broker/log; the compressed ones by Python's gzip
and by cramjam, snappy also in the frames of the Java client's library.
"""

from __future__ import annotations

import asyncio
import gzip
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from struct import Struct
from unittest import mock

import cramjam
from crc32c import crc32c

from broker.datadir.directory import LogDirectory
from broker.log.batches import BatchHeader, parse_header
from broker.log.partition_log import PartitionLog
from broker.log.produced import checked_batch_of
from broker.log.records import walk
from broker.log.results import Appended
from broker.log.time_lookup import TimedBatch
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings

HEADER = Struct(">qiibIhiqqqhii")
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
XERIAL = 2 | 0x100
NOW_MS = 1_700_000_000_000
KEY = PartitionKey("orders", 3)
TOPIC_ID = uuid.UUID("6f0e9b1c-0f5d-4a7b-9d6e-3c2b1a098765")
EPOCH = LeaderEpoch(1)
EVERYTHING = 1 << 40
SETTINGS = TopicSettings()


def batch(
    times: Sequence[int] = (NOW_MS,),
    *,
    value: bytes = b"value",
    codec: int = NONE,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch with one record for each timestamp, as a producer or a leader sends it."""
    records = b"".join(
        _record(each - times[0], number, value + str(number).encode()) for number, each in enumerate(times)
    )
    content = compressed(records, codec)
    header = [
        *(base_offset, HEADER.size - 12 + len(content), leader_epoch, 2, 0, attributes | codec & 7),
        *(len(times) - 1, times[0], max(times), *producer, len(times)),
    ]
    header[4] = crc32c(HEADER.pack(*header)[21:] + content)
    return HEADER.pack(*header) + content


def keyed(
    items: Sequence[tuple[bytes | None, bytes | None]],
    *,
    codec: int = NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    at_ms: int = NOW_MS,
) -> bytes:
    """A batch of records with these keys and values; None: none."""
    records = b""
    for number, texts in enumerate(items):
        body = b"\0" + varint(0) + varint(number)
        for each in texts:
            body += varint(-1) if each is None else varint(len(each)) + each
        body += varint(0)
        records += varint(len(body)) + body
    content = compressed(records, codec)
    count = len(items)
    header = [*(0, HEADER.size - 12 + len(content), -1, 2, 0, codec & 7, count - 1, at_ms, at_ms)]
    header += [*producer, count]
    header[4] = crc32c(HEADER.pack(*header)[21:] + content)
    return HEADER.pack(*header) + content


def altered(content: bytes, *, keep_crc: bool = False, **fields: int) -> bytes:
    """The same batch with other values in its header; with a right checksum unless it is kept."""
    header = parse_header(content, 0)._replace(**fields)
    if not keep_crc:
        header = header._replace(crc=crc32c(HEADER.pack(*header)[21:] + content[HEADER.size :]))
    return HEADER.pack(*header) + content[HEADER.size :]


def _record(timestamp_delta: int, offset_delta: int, value: bytes) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + varint(-1) + varint(len(value)) + value
    body += varint(0)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    """A zigzag varint."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def compressed(records: bytes, codec: int) -> bytes:
    """Records as a producer compresses them."""
    if codec == GZIP:
        return gzip.compress(records)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(records))
    if codec == XERIAL:
        half = len(records) // 2
        blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (records[:half], records[half:])]
        framed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
        return b"\x82SNAPPY\0" + (1).to_bytes(4, "big") * 2 + framed
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(records))
    return bytes(cramjam.zstd.compress(records)) if codec == ZSTD else records


class Broker:
    """A log directory that a test opens, leaves as a killed process would, and opens again."""

    def __init__(self, path: Path, settings: TopicSettings = SETTINGS, open_files_max: int = 64) -> None:
        self.path = path
        self.settings = settings
        self.open_files_max = open_files_max
        self.directory = self.open()

    def open(self, *, broker_id: int = 1, cluster_id: str = "cluster-a") -> LogDirectory:
        self.directory = LogDirectory.open(
            self.path,
            broker_id=broker_id,
            cluster_id=cluster_id,
            settings_of=lambda _topic: self.settings,
            open_files_max=self.open_files_max,
        )
        return self.directory

    def create(self, **settings: int | str) -> PartitionLog:
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]  # of the right type
        return self.directory.create(KEY, TOPIC_ID, self.settings)

    @property
    def log(self) -> PartitionLog:
        return self.directory.logs[KEY]

    def restart(self) -> PartitionLog:
        """After a clean end."""
        self.directory.close()
        return self.open().logs[KEY]

    def revive(self) -> PartitionLog:
        """After an end at which nothing was closed or written."""
        self.directory.abandon()
        return self.open().logs[KEY]

    def started_clean(self) -> bool:
        return self.directory.clean_start

    @property
    def folder(self) -> Path:
        return self.path / f"{KEY.topic}-{KEY.partition}"

    def names(self, suffix: str) -> list[str]:
        """The stems of the log's files with a suffix."""
        return sorted(each.name.removesuffix(suffix) for each in self.folder.glob(f"*{suffix}"))


def append_batch(log: PartitionLog, records: bytes, leader_epoch: LeaderEpoch, now_ms: int) -> Appended:
    """Check and append what a producer sent."""
    return log.append_produced(checked_batch_of(log.check(records)), leader_epoch, now_ms)


def truncate(log: PartitionLog, offset: int) -> None:
    """Cut what ends at this offset or behind it; durable on return."""
    assert asyncio.run(log.truncate_patiently(offset, lambda: True))
    log.settle_flushes()


def start_anew(log: PartitionLog, offset: int) -> None:
    """Remove all records and go on at an offset; durable on return."""
    log.truncate_fully_and_start_at(offset)
    log.settle_flushes()


def fill(log: PartitionLog, count: int, *, size: int = 200, leader_epoch: int = 1) -> None:
    """Append batches of one record each, of about `size` bytes, one millisecond apart."""
    for _ in range(count):
        timestamp = NOW_MS + log.log_end_offset
        content = batch([timestamp], value=b"x" * max(size - 75, 0))
        append_batch(log, content, LeaderEpoch(leader_epoch), NOW_MS)


def make_durable(log: PartitionLog, *, leader_epoch: int = 1) -> None:
    """Append one more batch and have all be durable, as after every 64 MiB."""
    log.settle_flushes()
    with mock.patch("broker.log.partition_log.FLUSH_BYTES", -1):
        fill(log, 1, leader_epoch=leader_epoch)
    log.settle_flushes()


def expire(log: PartitionLog, *, high_watermark: int, now_ms: int, by_age: bool = True) -> int:
    """Remove what retention keeps no longer, and wait for the disk as the upkeep of a broker does."""
    for _ in range(2):
        log.settle_flushes()
        start = log.delete_expired(high_watermark=high_watermark, now_ms=now_ms, by_age=by_age)
    log.settle_flushes()
    return start


def headers(records: bytes) -> list[BatchHeader]:
    """The headers of whole batches, each checked by its checksum."""
    found: list[BatchHeader] = []
    position = 0
    while position < len(records):
        header = parse_header(records, position)
        assert header.crc == crc32c(records[position + 21 : position + header.size])
        found.append(header)
        position += header.size
    assert position == len(records)
    return found


def read_all(log: PartitionLog, bytes_max: int = 1000) -> bytes:
    """Everything, in several reads."""
    parts: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.segments.read(offset, bytes_max, below=EVERYTHING, at_least_one=True)
        assert found.next_offset > offset
        parts.append(found.records)
        offset = found.next_offset
    return b"".join(parts)


def offset_for_time(log: PartitionLog, timestamp_ms: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after a time, as ListOffsets finds it."""
    place: TimedBatch | int | None = log.log_start_offset
    while place is not None:
        if isinstance(place, TimedBatch):
            found = walk(*place, at_least=timestamp_ms)
            if found.timestamp >= timestamp_ms:
                return found.timestamp, found.offset
            place = place.header.last_offset + 1
        place = log.segments.batch_for_time(timestamp_ms, place)
    return None


def max_timestamp(log: PartitionLog) -> tuple[int, int]:
    """(timestamp, offset) of the first record with the largest timestamp; (-1, -1): none has one."""
    newest = log.segments.newest_batch()
    return (-1, -1) if newest is None else walk(*newest)[:2]
