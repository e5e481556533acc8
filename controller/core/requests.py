"""What clients ask of the controller about topics. Values only; topics.py judges them.

Source: Kafka's CreateTopics, CreatePartitions and DeleteTopics requests (3.9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    #: -1: the default, or what the assignments say.
    num_partitions: int = -1
    #: -1: the default, or what the assignments say.
    replication_factor: int = -1
    #: {partition: replicas}; None where the controller places them.
    assignments: Mapping[int, tuple[int, ...]] | None = None
    #: {Kafka's name: text}
    settings: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Partitions to add to a topic."""

    name: str
    #: How many partitions the topic shall have.
    count: int
    #: Replicas of each new partition in order; None where the controller places them.
    assignments: Sequence[tuple[int, ...]] | None = None
