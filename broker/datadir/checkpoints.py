"""Offsets of the logs of a directory, in one file: their high watermarks, or those of shortened logs.

Source: Kafka's OffsetCheckpointFile (3.9): version, number of rows, "topic partition offset" in each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from broker.log.files import read_file
from quorum.metadata.paths import PartitionKey

log = logging.getLogger("quorate.broker.log")

CHECKPOINT_NAME: Final = "replication-offset-checkpoint"
#: the logs that may end below what they had acknowledged, with their high watermarks
SHORTENED_NAME: Final = "shortened-checkpoint"
_FORMAT: Final = 0


def checkpoint_bytes(offsets: Mapping[PartitionKey, int]) -> bytes:
    """Return the content of the file."""
    rows = [f"{key.topic} {key.partition} {offset}\n" for key, offset in sorted(offsets.items())]
    return f"{_FORMAT}\n{len(rows)}\n{''.join(rows)}".encode()


def read_checkpoint(path: str) -> dict[PartitionKey, int] | None:
    """Read such a file; none if it is missing, None if it is damaged."""
    content = read_file(path)
    if content is None:
        return {}
    try:
        return parse_checkpoint(content)
    except ValueError as error:
        log.error("%s is damaged (%s) and counts for nothing", path, error)
        return None


def parse_checkpoint(content: bytes) -> dict[PartitionKey, int]:
    """Read such a file."""
    version, count, *lines = content.decode("ascii").splitlines()
    found: dict[PartitionKey, int] = {}
    for line in lines:
        topic, partition, offset = line.split(" ")
        found[PartitionKey(topic, int(partition))] = int(offset)
    if int(version) != _FORMAT or int(count) != len(lines):
        raise ValueError(f"version {version} with {len(lines)} of {count} rows")
    return found
