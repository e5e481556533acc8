"""What became of a request, with Kafka's error codes.

Source: Kafka's CreateTopics, CreatePartitions and DeleteTopics responses (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.core.topics import Refused
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import TopicId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord

#: Bytes of a topic's assignment; its settings are created in the same write, which has at most a mebibyte.
ASSIGNMENT_BYTES_MAX: Final = 640 * 1024


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """What became of one topic of a request."""

    error_code: ErrorCode
    message: str | None = None
    #: None after an error, and where nothing was created (validate_only).
    topic_id: TopicId | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    #: What was set for the topic itself: {Kafka's name: text}.
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What became of one partition of a request."""

    error_code: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ShutdownOutcome:
    """What became of a controlled shutdown."""

    error_code: ErrorCode
    #: What the broker still leads and another live replica could lead, once it is in sync.
    remaining: tuple[PartitionKey, ...] = ()


def too_large(record: TopicRecord) -> Refused | None:
    """Refuse an assignment that would not fit one write, with what goes with it; None: it fits."""
    size_bytes = len(record.encode())
    if size_bytes <= ASSIGNMENT_BYTES_MAX:
        return None
    problem = f"the assignment would have {size_bytes} bytes, at most {ASSIGNMENT_BYTES_MAX} are allowed"
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{problem}: give fewer partitions or replicas")


def refused(refusal: Refused) -> TopicOutcome:
    """Return the outcome of a request that was refused."""
    return TopicOutcome(refusal.error_code, refusal.message)


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request of which nothing was carried out, or nobody knows."""

    error_code: ErrorCode
    message: str


Outcome = (
    Mapping[str, TopicOutcome] | Mapping[PartitionKey, PartitionOutcome] | ShutdownOutcome | RequestFailed
)
"""What Answer brings."""
