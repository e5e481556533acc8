"""The members of a classic group: who they are, what they support, which ids are theirs.

Knows no phase and no time; whether a member may do something is the group's affair. Each instance id is of
one member (`check_invariants`).
Source: Kafka's GroupMetadata (3.9); KIP-345, KIP-394.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from broker.core.groups.model import JoinRequest, Ticket
from controller.wire.codes import ErrorCode
from controller.wire.consumer_protocol import read_subscription
from quorum.metadata.group_records import GROUP_BYTES, MemberRecord, assignment_bytes, member_bytes


@dataclass(slots=True, eq=False)
class ClassicMember:
    """A member and what it waits for."""

    #: What it says of itself, without an assignment.
    said: MemberRecord
    assignment: bytes = b""
    #: When it is found dead; None while it waits for an answer of ours.
    deadline_ms: int | None = None
    joining: Ticket | None = None
    syncing: Ticket | None = None
    #: Whether it has asked for the assignment of this generation.
    synced: bool = True
    #: Bytes that it takes of the group's record, but for its assignment.
    own_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Measure what was sent."""
        self.own_bytes = member_bytes(self.said)

    @property
    def member_id(self) -> str:
        """Its id."""
        return self.said.member_id

    @property
    def instance_id(self) -> str | None:
        """Of a static member."""
        return self.said.instance_id

    @property
    def size(self) -> int:
        """Bytes that it takes of the group's record."""
        return self.own_bytes + assignment_bytes(self.assignment)

    def metadata(self, protocol: str) -> bytes:
        """Return what it has sent for a protocol."""
        return next((data for name, data in self.said.protocols if name == protocol), b"")

    def update(self, request: JoinRequest) -> None:
        """Take over what a member that joins again says of itself."""
        self.said = replace(said_by(self.member_id, request), instance_id=self.instance_id)
        self.__post_init__()

    def record(self) -> MemberRecord:
        """Return its hard state."""
        return replace(self.said, assignment=self.assignment)


def said_by(member_id: str, request: JoinRequest) -> MemberRecord:
    """Return what a request says of a member."""
    timeouts = request.session_timeout_ms, request.rebalance_timeout_ms
    client = request.client_id, request.client_host
    return MemberRecord(member_id, request.instance_id, *client, *timeouts, request.protocols)


class Roster:
    """The members by their ids, in the order in which they came."""

    def __init__(self) -> None:
        """Begin empty."""
        self._members: dict[str, ClassicMember] = {}
        #: {instance id: member id}
        self._instances: dict[str, str] = {}
        #: {member id that was given out: when it is forgotten}
        self.pending: dict[str, int] = {}

    def __len__(self) -> int:
        """Count the members, without ids that were only given out."""
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """Go through a copy of the members."""
        return iter(list(self._members.values()))

    def __contains__(self, member_id: object) -> bool:
        """Say whether it is a member's id."""
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        """Return a member."""
        return self._members[member_id]

    def get(self, member_id: str) -> ClassicMember | None:
        """Return a member, or None."""
        return self._members.get(member_id)

    def of_instance(self, instance_id: str | None) -> ClassicMember | None:
        """Return the static member of an instance id, or None."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def add(self, member: ClassicMember) -> None:
        """Take a member in."""
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def remove(self, member: ClassicMember) -> None:
        """Take a member out."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]

    def replace(self, before: ClassicMember, member: ClassicMember) -> None:
        """Put the new life of a static member in its old place."""
        assert member.instance_id is not None
        self._members = {each.member_id: each for each in (member if it is before else it for it in self)}
        self._instances[member.instance_id] = member.member_id

    def refusal(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Say whether somebody is a member, or fenced by a newer life of the same instance."""
        static = self.of_instance(instance_id)
        if static is not None:
            return ErrorCode.NONE if static.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID
        known = instance_id is None and member_id in self._members
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    def size(self) -> int:
        """Return the bytes of the group's record."""
        return GROUP_BYTES + sum(each.size for each in self._members.values())

    def growth(self, request: JoinRequest | Mapping[str, bytes]) -> int:
        """Return how many bytes the record takes more with a member that joins, or with assignments."""
        if not isinstance(request, JoinRequest):
            held = sum(assignment_bytes(each.assignment) for each in self._members.values())
            return sum(assignment_bytes(request.get(each, b"")) for each in self._members) - held
        before = self._members.get(request.member_id) or self.of_instance(request.instance_id)
        if request.member_id and before is None and request.member_id not in self.pending:
            return 0
        # A new member's id is its instance's or client's name and 37 characters.
        member_id = request.member_id or f"{request.instance_id or request.client_id}-{'0' * 36}"
        return member_bytes(said_by(member_id, request)) - (0 if before is None else before.own_bytes)

    def rebalance_timeout_ms(self) -> int:
        """Return how long the slowest member may take to join again."""
        return max((each.said.rebalance_timeout_ms for each in self._members.values()), default=0)

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that consumers subscribe to; None if what one has sent cannot be read."""
        topics: set[str] = set()
        for member in self._members.values():
            for _, metadata in member.said.protocols:
                found = read_subscription(metadata)
                if found is None:
                    return None
                topics.update(found.topics)
        return topics

    def common_protocols(self, *, without: str = "") -> set[str] | None:
        """Return what all members support; None without members."""
        common: set[str] | None = None
        for member in self._members.values():
            if member.member_id != without:
                names = {name for name, _ in member.said.protocols}
                common = names if common is None else common & names
        return common

    def select_protocol(self) -> str:
        """Let every member vote for its first protocol that all support; the first with most votes wins."""
        common = self.common_protocols() or set()
        votes: dict[str, int] = {}
        for member in self._members.values():
            choice = next(name for name, _ in member.said.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        static = {each.instance_id: each.member_id for each in self if each.instance_id is not None}
        assert static == self._instances
        assert all(member_id == each.member_id for member_id, each in self._members.items())
        assert not self.pending.keys() & self._members.keys()
        for member in self:
            waits = member.joining is not None or member.syncing is not None
            assert (member.deadline_ms is None) == waits
