"""`partition.metadata`: of which topic's life a folder is.

A topic that was deleted and made again has the same name and another id; a folder with the old id is a
stray.
Source: KIP-516; Kafka's PartitionMetadataFile (3.9).
"""

from __future__ import annotations

import base64
import logging
import uuid
from typing import Final

from broker.log.files import read_file

log = logging.getLogger("quorate.broker.log")

METADATA_NAME: Final = "partition.metadata"


def metadata_bytes(topic_id: uuid.UUID) -> bytes:
    """Return the content of the file."""
    encoded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {encoded}\n".encode()


def read_metadata(folder: str) -> uuid.UUID | None:
    """Return the topic id of a folder; None: it has none, or a damaged one."""
    path = f"{folder}/{METADATA_NAME}"
    content = read_file(path)
    if not content:
        # A power cut before the first records were durable leaves no file, or an empty one.
        return None
    try:
        return parse_metadata(content)
    except ValueError as error:
        log.error("%s is damaged (%s); it is written again from the topic's record", path, error)
        return None


def parse_metadata(content: bytes) -> uuid.UUID:
    """Read such a file."""
    parts = [line.partition(": ") for line in content.decode("ascii").splitlines()]
    rows = {name: value for name, _, value in parts}
    if rows.get("version") != "0" or "topic_id" not in rows:
        raise ValueError("version 0 with a topic_id was expected")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(rows["topic_id"] + "=="))
