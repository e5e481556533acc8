"""Records that clients must read back as they were sent, and what is on the brokers' disks.

A `Sample` is deterministic: its number gives key, value, header and timestamp, so a reader can check content
without having seen the writer. `stored_batches` reads the batch headers of a broker's log files.
Source: Kafka protocol guide (record batch, attributes).
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: How many records each client sends with each codec.
RECORDS = int(os.environ.get("KAFKA_RECORDS", "2000"))
PARTITIONS = 3
FIRST_TIMESTAMP_MS = 1_700_000_000_000
#: {codec of clients: its number in a batch's attributes}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SMALL_BATCH_RECORDS = 10
_HEADER = struct.Struct(">qiibIhiqqqhii")


def quiet(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings of a client of librdkafka that prints nothing while brokers are away."""
    return {"bootstrap.servers": bootstrap, "log_level": 0}


def reading(bootstrap: str) -> dict[str, str | int | float | bool]:
    """Settings of a consumer of librdkafka that reads by assignment: it has a group by name only."""
    return {**quiet(bootstrap), "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}


class Sample(NamedTuple):
    """One record."""

    number: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int

    @property
    def partition(self) -> int:
        """Where it is sent."""
        return self.number % PARTITIONS


def sample(number: int) -> Sample:
    """The record with a number: a value that repeats itself, and so can be compressed."""
    digest = hashlib.sha256(str(number).encode()).hexdigest().encode()
    value = b"%d:" % number + digest * (1 + number % 5)
    headers = (("number", str(number).encode()), ("empty", b"")) if number % 2 else ()
    return Sample(number, b"key-%d" % (number % 97), value, headers, FIRST_TIMESTAMP_MS + number)


def expected(partition: int, records: int = RECORDS) -> list[Sample]:
    """What a partition must hold, in its order."""
    return [sample(number) for number in range(records) if number % PARTITIONS == partition]


class StoredBatch(NamedTuple):
    """The header of one batch in a log file, and where its bytes are."""

    base_offset: int
    codec: int
    records: int
    size: int


def log_files(data_dir: Path, topic: str, partition: int) -> list[Path]:
    """A replica's segments, the oldest first."""
    return sorted((data_dir / f"{topic}-{partition}").glob("*.log"))


def stored_batches(data_dir: Path, topic: str, partition: int) -> Iterator[StoredBatch]:
    """The batches of one replica on one broker's disk."""
    for path in log_files(data_dir, topic, partition):
        content = path.read_bytes()
        position = 0
        while position + _HEADER.size <= len(content):
            header = _HEADER.unpack_from(content, position)
            yield StoredBatch(header[0], header[5] & 7, header[12], header[1] + 12)
            position += header[1] + 12


def stored_codecs(data_dir: Path, topic: str, partition: int) -> set[int]:
    """How the batches of one replica are compressed.

    Small ones do not count: librdkafka sends a batch as it is if the codec would make it larger.
    """
    batches = stored_batches(data_dir, topic, partition)
    return {batch.codec for batch in batches if batch.records >= SMALL_BATCH_RECORDS}
