"""What was seen of brokers, partitions and groups, as the checks take it. Pure; no state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class BrokerSeen(NamedTuple):
    """A broker that is registered.

    Attributes:
        admin: its admin port; None: the registration names none, as Kafka's own.
        silence: why that port gave no answer, else None; what follows is known only if it gave one.
        refusal: why it does not show its state, else None.
        problem: why it serves no clients, else None.
        connections, connections_max: of the listener that is nearest to its limit.
        shortened_logs: that may lack what they had acknowledged.
        uncleanable: logs that cannot be compacted.
        late_transactions: partitions with a transaction that is open for longer than any may be.
    """

    broker_id: int
    admin: str | None
    silence: str | None = None
    refusal: str | None = None
    problem: str | None = None
    connections: float | None = None
    connections_max: float | None = None
    shortened_logs: float | None = None
    uncleanable: float | None = None
    late_transactions: float | None = None


class PartitionSeen(NamedTuple):
    """A partition, as its state says; leader −1: nobody leads it, None: it has no state that can be read."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...]

    @property
    def name(self) -> str:
        """As people call it: orders-0."""
        return f"{self.topic}-{self.partition}"


class ControllerSeen(NamedTuple):
    """What the controller says.

    Attributes:
        strangers: {broker id: why its registration does not count}.
        moving: reassignments under way.
        partitions, partitions_max: of all topics; what they may be.
    """

    strangers: Mapping[int, str]
    moving: float | None = None
    partitions: float | None = None
    partitions_max: float | None = None


class CoordinatorSeen(NamedTuple):
    """What the coordinator of groups says.

    Attributes:
        unwritten: {group: why its last write was given up}.
        groups_bytes, groups_bytes_max: what groups hold on each node; what they may.
    """

    unwritten: Mapping[str, str]
    groups_bytes: float | None = None
    groups_bytes_max: float | None = None


class BrokersSeen(NamedTuple):
    """All that was seen.

    Attributes:
        brokers: that are registered, by rising id.
        controller_id: None: no broker is it.
        has_coordinator: whether a broker that answers knows one; None: none answers.
        controller, coordinator: None: it does not answer.
        partitions: of all topics; a str says why they are not known, and so below.
        malformed: {topic: why it cannot be read}.
        min_isr: {topic: min.insync.replicas in force}.
        throttled: ids of the brokers that have a rate for reassignments.
        lags: {group: records that it is behind, of all partitions together}.
        lag_max: that a group may be behind.
    """

    brokers: tuple[BrokerSeen, ...]
    controller_id: int | None
    has_coordinator: bool | None
    controller: ControllerSeen | None
    coordinator: CoordinatorSeen | None
    partitions: tuple[PartitionSeen, ...] | str
    malformed: Mapping[str, str]
    min_isr: Mapping[str, int] | str
    throttled: tuple[int, ...] | str
    lags: Mapping[str, int] | str
    lag_max: int
