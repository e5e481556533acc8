"""The high watermarks of all logs of a directory, in one file.

Source: Kafka's OffsetCheckpointFile (3.9): version, number of rows, "topic partition offset" in each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorum.metadata.paths import PartitionKey

CHECKPOINT_NAME: Final = "replication-offset-checkpoint"
_FORMAT: Final = 0


def checkpoint_bytes(high_watermarks: Mapping[PartitionKey, int]) -> bytes:
    """Return the content of the file."""
    rows = [f"{key.topic} {key.partition} {offset}\n" for key, offset in sorted(high_watermarks.items())]
    return f"{_FORMAT}\n{len(rows)}\n{''.join(rows)}".encode()


def parse_checkpoint(content: bytes) -> dict[PartitionKey, int]:
    """Read such a file.

    Raises:
        ValueError: it is none.
    """
    version, count, *lines = content.decode("ascii").splitlines()
    found: dict[PartitionKey, int] = {}
    for line in lines:
        topic, partition, offset = line.split(" ")
        found[PartitionKey(topic, int(partition))] = int(offset)
    if int(version) != _FORMAT or int(count) != len(lines):
        raise ValueError(f"version {version} with {len(lines)} of {count} rows")
    return found
