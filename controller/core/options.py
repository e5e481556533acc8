"""What the controller is configured with, and what it says about itself.

Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import SEGMENT_BYTES_MIN


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Settings of a controller."""

    #: After this time without an answer the connection is closed and the newest state is sent again.
    control_request_timeout_ms: int = 30_000
    #: How control requests travel: "direct", or "queue": by the brokers' queues in the quorum.
    channel: str = "direct"
    default_num_partitions: int = 1
    default_replication_factor: int = 1
    #: The smallest segment.bytes of a topic that is created.
    segment_bytes_min: int = SEGMENT_BYTES_MIN
    #: Of all topics together; above it none are created.
    partitions_max: int = 200_000
    #: How long ISR changes of leaders are collected before everybody's metadata is updated.
    isr_coalesce_ms: int = 100
    #: How long the answer to a creation waits for the brokers, once it is committed.
    settle_ms: int = 1_000
    #: How long the answer to a controlled shutdown waits for the brokers, so that none sends clients to one
    #: that is gone; no longer than half of control_request_timeout_ms.
    shutdown_settle_ms: int = 10_000
    #: How long a controlled shutdown waits for the event of a registration that it names.
    broker_event_ms: int = 5_000
    #: How often the balance of leaderships is checked; None: never.
    leader_imbalance_check_interval_ms: int | None = 300_000
    #: Leaderships that a broker may lack, in percent of those that are preferably its.
    leader_imbalance_per_broker_percentage: int = 10


@dataclass(slots=True)
class Counters:
    """How often things happened since the broker's session began."""

    #: Rounds after which partitions had to be decided again, because their state had changed meanwhile.
    rounds_repeated: int = 0
    #: Elections that may have lost records.
    unclean_elections: int = 0
    #: Partitions that went back to their preferred leader by the check of the balance.
    leaders_rebalanced: int = 0
    #: Brokers that lost their ISR memberships because they came with another disk.
    disks_replaced: int = 0
    #: Control requests, or entries of queues.
    requests_sent: int = 0
    #: Requests without an answer, which were sent again.
    requests_repeated: int = 0
    #: Requests that a broker refused because they were for an earlier life of it (77).
    stale_generations: int = 0


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What one candidate knows."""

    #: The broker that is the controller, as far as this candidate knows; None before the first election.
    controller_id: int | None
    #: None where this candidate is not the controller.
    controller_epoch: ControllerEpoch | None
    #: {broker id: generation}; empty where this candidate is not the controller, as are the next two.
    brokers: Mapping[int, BrokerGeneration] = field(default_factory=dict)
    under_replicated: tuple[PartitionKey, ...] = ()
    offline: tuple[PartitionKey, ...] = ()
    #: Of all topics.
    partition_count: int = 0
    #: {topic: why nothing is decided about it}
    left_alone: Mapping[str, str] = field(default_factory=dict)
    #: {broker id: why its registration does not count}
    strangers: Mapping[int, str] = field(default_factory=dict)
    #: The step of the pass that runs; "" between passes.
    step_under_way: str = ""
    counters: Counters = field(default_factory=Counters)
