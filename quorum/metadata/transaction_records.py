"""The values of /transactions/ID and of its children: a transactional id, and offsets that wait for its end.

Pure. An id without a transaction is one small znode; only an open transaction has children.
Source: ARCHITECTURE.md, "Life of a transaction"; KIP-98; TransactionLogValue (Kafka 3.9).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from quorum.metadata import paths
from quorum.metadata.decode import INT64_MAX, JsonFields
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey

#: As producer id, or as epoch: there is none.
NO_PRODUCER: Final = -1
#: An epoch from which on the next producer gets another id; the last one is for a fence.
EPOCH_EXHAUSTED: Final = 2**15 - 2


#: One for all: each empty set that is made takes 232 bytes.
NOTHING: Final[frozenset[Any]] = frozenset()


class TransactionState(StrEnum):
    """What a transactional id is doing, in Kafka's words."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    #: It is removed.
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The value of /transactions/ID."""

    producer_id: int
    producer_epoch: int
    #: Who had the id before, if its present producer continues that one; else -1.
    last_producer_id: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    #: Wall clock, milliseconds since 1970; -1: no transaction has begun.
    start_timestamp_ms: int
    update_timestamp_ms: int
    #: That have records of the transaction, or may have.
    partitions: frozenset[PartitionKey] = NOTHING
    #: Groups whose offsets belong to the transaction.
    groups: frozenset[str] = NOTHING

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 1,
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
                "last_producer_id": self.last_producer_id,
                "last_producer_epoch": self.last_producer_epoch,
                "timeout_ms": self.timeout_ms,
                "state": self.state.value,
                "start_timestamp": self.start_timestamp_ms,
                "update_timestamp": self.update_timestamp_ms,
                "partitions": partitions_by_topic(self.partitions),
                "groups": sorted(self.groups),
            }
        )

    @classmethod
    def decode(cls, transactional_id: str, data: bytes | None) -> TransactionRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.transaction_path(transactional_id), data)
        fields.integer("version", 1, 1)
        state = fields.string("state")
        if state not in _STORED_STATES:
            fields.refuse("state", " or ".join(_STORED_STATES))
        topics = fields.nested("partitions")
        return cls(
            producer_id=fields.integer("producer_id", 0, INT64_MAX),
            producer_epoch=fields.integer("producer_epoch", 0, 2**15 - 1),
            last_producer_id=fields.integer("last_producer_id", -1, INT64_MAX),
            last_producer_epoch=fields.integer("last_producer_epoch", -1, 2**15 - 1),
            timeout_ms=fields.integer("timeout_ms", 1),
            state=TransactionState(state),
            start_timestamp_ms=fields.integer("start_timestamp", -1, INT64_MAX),
            update_timestamp_ms=fields.integer("update_timestamp", 0, INT64_MAX),
            partitions=frozenset(
                # A list of partitions has the form of a list of broker ids: different integers from 0.
                PartitionKey(topic, each)
                for topic in topics.names()
                for each in topics.broker_ids(topic)
            )
            or NOTHING,
            groups=frozenset(fields.strings("groups")) or NOTHING,
        )


_STORED_STATES: Final = tuple(each.value for each in TransactionState if each is not TransactionState.DEAD)


def partitions_by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[int]]:
    """Return {topic: its partitions}, all rising."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    return topics


def encode_pending_offsets(offsets: Mapping[PartitionKey, OffsetRecord]) -> bytes:
    """Return the value of /transactions/ID/G: offsets of a group that take effect with the commit."""
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "offset": each.offset,
            "leader_epoch": each.leader_epoch,
            "metadata": each.metadata,
            "commit_timestamp": each.commit_timestamp_ms,
        }
        for key, each in offsets.items()
    ]
    return _json({"version": 1, "offsets": rows})


def decode_pending_offsets(path: str, data: bytes | None) -> dict[PartitionKey, OffsetRecord]:
    """Read the value of /transactions/ID/G.

    Raises:
        MetadataDecodeError: the value is malformed.
    """
    fields = JsonFields.parse(path, data)
    fields.integer("version", 1, 1)
    return {
        PartitionKey(row.string("topic"), row.integer("partition", 0)): OffsetRecord(
            row.integer("offset", -INT64_MAX - 1, INT64_MAX),
            row.integer("leader_epoch", -1),
            row.string("metadata"),
            row.integer("commit_timestamp", 0, INT64_MAX),
        )
        for row in fields.objects("offsets")
    }


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
