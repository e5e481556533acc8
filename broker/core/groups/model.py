"""What goes in and out of the machines of groups.

Shapes only. A ticket names a request that waits for its answer.
Source: Kafka's JoinGroup, SyncGroup and LeaveGroup requests; KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NewType

from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import Assignment, ClassicSupport, TopicId
from quorum.metadata.numbers import GenerationId

Ticket = NewType("Ticket", int)
NO_GENERATION_ID: Final = GenerationId(-1)
#: In place of a member's id: the deadline of the whole group.
WHOLE_GROUP: Final = ""


class GroupState(StrEnum):
    """What a group is doing, in Kafka's words."""

    EMPTY = "Empty"
    #: Members are asked to join again.
    PREPARING = "PreparingRebalance"
    #: The generation has begun, its leader has not assigned yet.
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    #: KIP-848: targets are to be computed.
    ASSIGNING = "Assigning"
    #: KIP-848: members move to their targets.
    RECONCILING = "Reconciling"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What a group and its members may ask for."""

    session_timeout_min_ms: int = 1_000
    session_timeout_max_ms: int = 1_800_000
    #: A group that was empty waits so long for further members before its first generation.
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = 1_000
    #: Of a group's record: names, metadata, assignments of all its members.
    group_bytes_max: int = 8 * 1024 * 1024
    #: Of groups whose coordinator assigns: when a silent member is dead.
    consumer_session_timeout_ms: int = 45_000
    #: Assignments of one group are at least so far apart; what happens between them is one change.
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Options of one coordinator."""

    limits: GroupLimits = field(default_factory=GroupLimits)
    groups_max: int = 10_000
    #: Of what all groups hold together.
    groups_bytes_max: int = 128 * 1024 * 1024
    #: How often a write of a group is repeated.
    rebalance_retries_max: int = 7
    #: Whether a classic group becomes one whose coordinator assigns when such a member joins, and back.
    may_upgrade: bool = True
    may_downgrade: bool = True
    #: An empty group's offsets are removed when they are older.
    offsets_retention_ms: int = 10_080 * 60_000


class GroupRefusal(NamedTuple):
    """An error in place of an answer of the group's."""

    error_code: ErrorCode
    problem: str
    remedy: str = "ask the coordinator again"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A wish to be a member of the next generation."""

    #: "": a new member.
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    #: (protocol, metadata), the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]
    #: Whether a new member must come again with the id that it got (JoinGroup 4 and above).
    needs_member_id: bool = True
    #: Whether a leader may be asked to assign nothing (JoinGroup 9 and above).
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as the leader of the group learns of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a JoinRequest."""

    error_code: ErrorCode
    member_id: str
    generation_id: GenerationId = NO_GENERATION_ID
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    #: For the leader only.
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings those of all."""

    member_id: str
    instance_id: str | None
    generation_id: GenerationId
    protocol_type: str | None
    protocol: str | None
    #: {member id: assignment}
    assignments: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to a SyncRequest."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


ClassicAnswer = Joined | SyncAnswer


# -- groups whose coordinator assigns (KIP-848) --------------------------------------------------------------

#: As member epoch of a heartbeat: the member joins, leaves, or (static) leaves for a while.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """What a member says of itself; None: as before."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: -1: as before
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    #: A regular expression of topic names; "": none.
    topic_pattern: str | None = None
    assignor: str | None = None
    #: What the member owns.
    owned: Assignment | None = None
    #: None: it speaks the protocol of KIP-848.
    classic: ClassicSupport | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as one does that has missed an answer.

        One that only says what it owns knows its assignment, and Java's takes it for a new one each time.
        """
        subscribes = self.topics is not None or self.topic_pattern is not None
        return subscribes and self.owned is not None and self.rebalance_timeout_ms >= 0


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What a member is answered."""

    error_code: ErrorCode
    member_id: str
    member_epoch: int = 0
    #: None: as before.
    assignment: Assignment | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The topics that exist, as far as groups subscribe to them."""

    #: {topic: (topic id, number of partitions)}
    topics: Mapping[str, tuple[TopicId, int]] = field(default_factory=dict)
    #: {pattern: topics that match it}
    matched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# -- what a term holds ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class GroupCounters:
    """What has happened in a term."""

    rebalances: int = 0
    #: deadlines of members and phases that have passed
    deadlines: int = 0
    #: writes that the quorum did not take; their groups were left as they were
    writes_failed: int = 0


class GroupStatus(NamedTuple):
    """What a term holds."""

    #: {state: number of groups}
    groups: Mapping[str, int]
    members: int
    #: Groups whose records are malformed.
    left_alone: tuple[str, ...]
    #: {group: why its last write was given up}
    unwritten: Mapping[str, str]
    counters: GroupCounters
    #: Bytes that groups hold in the quorum, roughly, and requests for which there was no room.
    held_bytes: int
    refused: int
