"""What happens to a replica's machine: inputs, each a value that can be recorded and replayed.

Requests of others are legal in every role. Completions (`LogGrew`, `Copied`, `Truncated`, `WriteFailed`,
`IsrWritten`, `IsrRefused`, `IsrFound`) answer an effect.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, Protocol

from broker.core.fetched import FetchPosition
from broker.core.partition import NO_GENERATION
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, LeaderEpoch, PartitionVersion
from quorum.metadata.records import PartitionStateRecord


class LogView(Protocol):
    """What a decision may know of the replica's log; ends are exclusive."""

    @property
    def topic_id(self) -> Hashable | None:
        """Of the topic that it belongs to."""

    @property
    def log_start_offset(self) -> int:
        """Of its first record."""

    @property
    def log_end_offset(self) -> int:
        """Where the next record goes."""

    @property
    def latest_epoch(self) -> int:
        """Of its last record; -1 if it is empty."""

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """Return the end (exclusive) of what a reader of committed records may see."""

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """Return (largest epoch not above this one, its end); (-1, -1) if it has no later epoch."""


class Opened(NamedTuple):
    """The replica's log was opened."""

    #: As checkpointed; cut to what the log has.
    high_watermark: int
    #: As read from the quorum, or -1. It counts as decided in no generation.
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)


class LeaderAndIsr(NamedTuple):
    """The controller's decision about the partition; it has passed the gate."""

    #: This broker's present generation.
    generation: BrokerGeneration
    topic_id: Hashable | None
    state: PartitionStateRecord
    partition_version: PartitionVersion
    replicas: tuple[int, ...]


class StopReplica(NamedTuple):
    """The controller stops the replica, or this broker lets it go; it has passed the gate."""

    #: One of fences.ANY_EPOCH: whatever the replica's.
    leader_epoch: int = -1


class SessionLost(NamedTuple):
    """The session with the quorum is over, or another generation of this broker has begun."""

    #: The one that counts from now on; NO_GENERATION: none.
    generation: BrokerGeneration = NO_GENERATION


class SessionBegun(NamedTuple):
    """ISRs can be written again."""


class LogGrew(NamedTuple):
    """The leader has appended."""


class FollowerFetch(NamedTuple):
    """A follower asks for records, which says what it has."""

    replica_id: int
    #: Of the follower.
    generation: BrokerGeneration
    position: FetchPosition


class ConsumerFetch(NamedTuple):
    """A consumer asks for records."""

    position: FetchPosition
    #: "": it does not say.
    rack: str = ""
    #: {live broker: rack}, "" for none.
    racks: Mapping[int, str] | None = None


class LeaderAnswer(NamedTuple):
    """A leader has answered a fetch of this follower."""

    #: The leader epoch and the log end offset of the fetch.
    leader_epoch: int
    fetch_offset: int
    error_code: ErrorCode
    high_watermark: int = -1
    #: Of the leader.
    log_start_offset: int = -1
    #: (leader epoch, end offset) where the logs diverge.
    diverging_epoch: tuple[int, int] | None = None
    has_records: bool = False


class Copied(NamedTuple):
    """What a leader's answer held is in the log."""

    #: Of the answer.
    high_watermark: int
    log_start_offset: int


class WriteFailed(NamedTuple):
    """The log took the records of an answer not: they are no valid continuation."""


class Truncated(NamedTuple):
    """The log was cut, or begins elsewhere, as the last TruncateTo or StartAt said."""


class IsrWritten(NamedTuple):
    """The change of the ISR with this number is in the quorum."""

    number: int
    partition_version: PartitionVersion


class IsrRefused(NamedTuple):
    """The change was not written and will not be; the state is as before."""

    number: int


class IsrFound(NamedTuple):
    """What the quorum has after a conflict or an unknown outcome of the change."""

    number: int
    state: PartitionStateRecord
    partition_version: PartitionVersion


class SettingsChanged(NamedTuple):
    """The topic has other settings."""

    min_insync_replicas: int


class LogStartMoved(NamedTuple):
    """Records at the start of the log were deleted on request."""


class DamageFound(NamedTuple):
    """A reader has met bytes that no broker wrote."""


class LagTick(NamedTuple):
    """Time to look whether followers lag."""

    #: A follower that has not caught up for longer leaves the ISR.
    lag_max_ms: int


ReplicaInput = (
    Opened
    | LeaderAndIsr
    | StopReplica
    | SessionLost
    | SessionBegun
    | LogGrew
    | FollowerFetch
    | ConsumerFetch
    | LeaderAnswer
    | Copied
    | WriteFailed
    | Truncated
    | IsrWritten
    | IsrRefused
    | IsrFound
    | SettingsChanged
    | LogStartMoved
    | DamageFound
    | LagTick
)
