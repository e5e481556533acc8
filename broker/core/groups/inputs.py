"""What happens to the machine of all groups, and what it wants done: values, to be recorded and replayed.

Multis, what became of them, answers and lines for the log are those of the controller's machine.
Source: ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.core.groups.model import Catalog, HeartbeatRequest, JoinRequest, SyncRequest
from broker.core.groups.writing import StoredGroup
from controller.core.effects import Answer, Operation, Resign, Trace, Write
from controller.core.inputs import Ended, MultiDone, ReadFailed
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey

# -- what members and administrators ask ---------------------------------------------------------------------


class JoinGroup(NamedTuple):
    """Take a member into the next generation; the outcome is a Joined."""

    group_id: str
    request: JoinRequest
    #: The id that a new member gets.
    new_member_id: str


class SyncGroup(NamedTuple):
    """Return a member's assignment, once there is one; the outcome is a SyncAnswer."""

    group_id: str
    request: SyncRequest


class ClassicHeartbeat(NamedTuple):
    """Keep a member alive; the outcome is a code."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: GenerationId


class LeaveGroup(NamedTuple):
    """Remove members; the outcome is the error and the member id of each."""

    group_id: str
    #: (member id or "", instance id)
    members: Sequence[tuple[str, str | None]]


class ConsumerHeartbeat(NamedTuple):
    """Take in what a member says of itself (KIP-848); the outcome is a HeartbeatAnswer."""

    group_id: str
    request: HeartbeatRequest


class CommitOffsets(NamedTuple):
    """Commit offsets in the name of a member, or of nobody to an empty group; the outcome is a code."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: GenerationId
    offsets: Mapping[PartitionKey, OffsetRecord]


class RemoveOffsets(NamedTuple):
    """Remove committed offsets; the outcome is a code."""

    group_id: str
    keys: Sequence[PartitionKey]


class DeleteGroup(NamedTuple):
    """Remove a group without members, and its offsets; the outcome is a code."""

    group_id: str


class CheckCommit(NamedTuple):
    """Say whether a member may commit in a transaction, at once; the outcome is a code."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: GenerationId


MemberRequest = JoinGroup | SyncGroup | ClassicHeartbeat | LeaveGroup | ConsumerHeartbeat
GroupRequest = MemberRequest | CommitOffsets | RemoveOffsets | DeleteGroup | CheckCommit

# -- inputs --------------------------------------------------------------------------------------------------


class GroupAsked(NamedTuple):
    """A request, answered by one Answer; its outcome may be a GroupRefusal."""

    id: int
    request: GroupRequest


class GroupsLoaded(NamedTuple):
    """A term begins with what the quorum holds."""

    groups: Sequence[StoredGroup]
    #: {group: what is wrong with its record}
    problems: Mapping[str, str]


class GroupRead(NamedTuple):
    """A group as it was read; None: there is none."""

    id: int
    stored: StoredGroup | None
    #: Of its znode.
    value: bytes | None


class TopicsChanged(NamedTuple):
    """Topics may have come, grown or gone; answered by ReadTopics."""


class TopicsLookedUp(NamedTuple):
    """More topics are known by now, which a member names."""

    catalog: Catalog


class TopicsRead(NamedTuple):
    """All that groups subscribe to was read after ReadTopics."""

    catalog: Catalog
    #: Every topic that exists.
    existing: frozenset[str]


class ClockTick(NamedTuple):
    """A tick of the timer wheel has passed."""

    #: What milliseconds since 1970 are ahead of monotonic ones.
    wall_offset_ms: int
    #: Whether that may be believed; if not, nothing goes for its age.
    is_believed: bool


class BorrowGroup(NamedTuple):
    """Write nothing of a group from now on, and say what writes offsets into it; answered by GroupLent."""

    id: int
    group_id: str
    offsets: Mapping[PartitionKey, OffsetRecord]


class ReturnGroup(NamedTuple):
    """The multi with the operations of a lent group has taken effect, or it has not."""

    id: int
    group_id: str
    is_written: bool


GroupsWorkDone = MultiDone | GroupRead | ReadFailed
Loan = BorrowGroup | ReturnGroup
TopicsSeen = TopicsChanged | TopicsLookedUp | TopicsRead
GroupInput = GroupsLoaded | GroupAsked | GroupsWorkDone | TopicsSeen | ClockTick | Loan | Ended

# -- effects -------------------------------------------------------------------------------------------------


class ReadGroup(NamedTuple):
    """Read a group, behind all writes that this session has sent; answered by GroupRead or ReadFailed."""

    id: int
    group_id: str


class ReadTopics(NamedTuple):
    """Look up which topics exist, and those that groups subscribe to; answered by TopicsRead."""

    names: frozenset[str]
    patterns: frozenset[str]


class GroupLent(NamedTuple):
    """What writes the offsets of BorrowGroup; None: the group cannot be written now."""

    id: int
    operations: tuple[Operation, ...] | None


GroupEffect = GroupLent | Write | ReadGroup | ReadTopics | Answer | Resign | Trace
