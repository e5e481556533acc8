"""The typed records of consumer groups: the coordinator, groups with their members, committed offsets.

Pure: bytes in, frozen records out, and back. Decoding is strict (decode.py). A group's record is what the
next coordinator goes on from; which znode version it had, and waiting requests, are not part of it.
Source: ARCHITECTURE.md, "Life of a consumer group"; docs/internals/requirements.md, [4.x]; KIP-848 (consumer
groups).
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from quorum.metadata import paths
from quorum.metadata.decode import INT64_MAX, JsonFields
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey

TopicId = uuid.UUID
#: {topic id: partitions}
Assignment = Mapping[TopicId, tuple[int, ...]]
_NOTHING: Final[Assignment] = {}
#: what a znode with an offset takes, but for the metadata
OFFSET_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """The value of /consumers/coordinator."""

    broker_id: int

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json({"version": 1, "brokerid": self.broker_id})

    @classmethod
    def decode(cls, data: bytes | None, path: str = paths.COORDINATOR) -> CoordinatorRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(path, data)
        fields.integer("version", 1, 1)
        return cls(fields.integer("brokerid", -1))


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A committed offset: the value of /consumers/groups/G/offsets/T/P."""

    #: Below 0: the group has nothing to go on from, and its consumers go where their policy says.
    offset: int
    #: Leader epoch of the record before the offset; -1: not known.
    leader_epoch: int
    metadata: str
    #: Wall clock of the commit, milliseconds since 1970.
    commit_timestamp_ms: int

    @property
    def stored_bytes(self) -> int:
        """Bytes that it takes of a node's memory, roughly; the same metadata always takes the same."""
        return OFFSET_BYTES + (len(json.dumps(self.metadata)) if self.metadata else 0)

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 1,
                "offset": self.offset,
                "leader_epoch": self.leader_epoch,
                "metadata": self.metadata,
                "commit_timestamp": self.commit_timestamp_ms,
            }
        )

    @classmethod
    def decode(cls, group_id: str, key: PartitionKey, data: bytes | None) -> OffsetRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(paths.group_offset_path(group_id, key), data)
        fields.integer("version", 1, 1)
        return cls(
            offset=fields.integer("offset", -INT64_MAX - 1, INT64_MAX),
            leader_epoch=fields.integer("leader_epoch", -1),
            metadata=fields.string("metadata"),
            commit_timestamp_ms=fields.integer("commit_timestamp", 0, INT64_MAX),
        )


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member of a classic group."""

    member_id: str
    #: Of a static member.
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: (protocol, metadata), the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]
    #: What the group's leader has assigned to it.
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class ClassicGroupRecord:
    """The value of /consumers/groups/G while the group's members assign partitions among themselves.

    Invariants: the leader is a member; a group without members has no protocol and no leader.
    """

    generation_id: GenerationId
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    #: Whether the leader has assigned in this generation.
    assigned: bool
    #: Wall clock since when the group is empty or not, milliseconds since 1970.
    state_timestamp_ms: int
    members: tuple[MemberRecord, ...] = field(default=())

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 1,
                "type": "classic",
                "generation": self.generation_id,
                "protocol_type": self.protocol_type,
                "protocol": self.protocol,
                "leader": self.leader,
                "assigned": int(self.assigned),
                "state_timestamp": self.state_timestamp_ms,
                "members": {each.member_id: _member_json(each) for each in self.members},
            }
        )


@dataclass(frozen=True, slots=True)
class ClassicSupport:
    """What a member still needs that speaks the classic protocol while the coordinator assigns."""

    session_timeout_ms: int
    #: (protocol, metadata), the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberRecord:
    """A member of a group whose coordinator assigns (KIP-848)."""

    member_id: str
    #: Of a static member.
    instance_id: str | None
    rack: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topics: tuple[str, ...]
    #: A regular expression of topic names; None: topics alone.
    topic_pattern: str | None
    #: Wish for an assignor; None: the coordinator's default.
    assignor: str | None
    #: The epoch that the member has reached.
    member_epoch: int
    #: The one before, with which a lost answer is asked for again.
    previous_member_epoch: int
    #: What the member may own.
    assigned: Assignment
    #: What the member must give up before its epoch rises.
    revoking: Assignment = field(default_factory=lambda: _NOTHING)
    #: What the member shall own when all others have given up what it waits for.
    target: Assignment = field(default_factory=lambda: _NOTHING)
    #: None: it speaks the protocol of KIP-848.
    classic: ClassicSupport | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """The value of /consumers/groups/G while the coordinator assigns (KIP-848)."""

    #: Rises when a subscription or a subscribed topic changes.
    group_epoch: int
    #: The group epoch for which the targets were computed.
    assignment_epoch: int
    assignor: str
    state_timestamp_ms: int
    #: {topic: (topic id, partitions)} that the targets were computed for.
    topics: Mapping[str, tuple[uuid.UUID, int]]
    members: tuple[ConsumerMemberRecord, ...] = field(default=())

    def encode(self) -> bytes:
        """Return the JSON value."""
        return _json(
            {
                "version": 1,
                "type": "consumer",
                "group_epoch": self.group_epoch,
                "assignment_epoch": self.assignment_epoch,
                "assignor": self.assignor,
                "state_timestamp": self.state_timestamp_ms,
                "topics": {
                    name: {"topic_id": str(topic_id), "partitions": count}
                    for name, (topic_id, count) in self.topics.items()
                },
                "members": {each.member_id: _consumer_json(each) for each in self.members},
            }
        )


GroupRecord = ClassicGroupRecord | ConsumerGroupRecord
#: what a group's record takes, but for its members and topics
GROUP_BYTES: Final = 256
#: what one of its topics takes, but for the name
TOPIC_BYTES: Final = 80


def member_bytes(member: MemberRecord | ConsumerMemberRecord) -> int:
    """Return the bytes that a member takes of its group's record."""
    plain = _member_json(member) if isinstance(member, MemberRecord) else _consumer_json(member)
    return len(_json({member.member_id: plain}))


def assignment_bytes(assignment: bytes) -> int:
    """Return the bytes that a classic member's assignment takes of its group's record."""
    return 4 * (-(-len(assignment) // 3))


def encode_chunk_names(names: Sequence[str]) -> bytes:
    """Return the value of /consumers/groups/G where the record is in children of it, in this order."""
    return _json({"version": 1, "type": "chunks", "chunks": list(names)})


def chunk_names(group_id: str, data: bytes | None) -> tuple[str, ...]:
    """Return which children of /consumers/groups/G hold the record, in order; none: its value does.

    Raises:
        MetadataDecodeError: the value is malformed.
    """
    fields = JsonFields.parse(paths.group_path(group_id), data)
    return fields.strings("chunks") if fields.string("type") == "chunks" else ()


def decode_group(group_id: str, data: bytes | None) -> GroupRecord:
    """Read the record of a group: the value of /consumers/groups/G, or what its chunks hold together.

    Raises:
        MetadataDecodeError: the value is malformed.
    """
    fields = JsonFields.parse(paths.group_path(group_id), data)
    fields.integer("version", 1, 1)
    kind = fields.string("type")
    members = fields.nested("members")
    if kind == "consumer":
        return ConsumerGroupRecord(
            group_epoch=fields.integer("group_epoch", 0),
            assignment_epoch=fields.integer("assignment_epoch", 0),
            assignor=fields.string("assignor"),
            state_timestamp_ms=fields.integer("state_timestamp", 0, INT64_MAX),
            topics=_topics(fields.nested("topics")),
            members=tuple(_consumer(name, members.nested(name)) for name in members.names()),
        )
    if kind != "classic":
        fields.refuse("type", '"classic" or "consumer"')
    record = ClassicGroupRecord(
        generation_id=GenerationId(fields.integer("generation", 0)),
        protocol_type=fields.string_or_none("protocol_type"),
        protocol=fields.string_or_none("protocol"),
        leader=fields.string_or_none("leader"),
        assigned=fields.integer("assigned", 0, 1) == 1,
        state_timestamp_ms=fields.integer("state_timestamp", 0, INT64_MAX),
        members=tuple(_member(name, members.nested(name)) for name in members.names()),
    )
    if record.members and not any(each.member_id == record.leader for each in record.members):
        fields.refuse("leader", "a member of the group")
    return record


def _member_json(member: MemberRecord) -> dict[str, object]:
    return {
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "session_timeout_ms": member.session_timeout_ms,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "protocols": {name: _text(metadata) for name, metadata in member.protocols},
        "assignment": _text(member.assignment),
    }


def _member(member_id: str, fields: JsonFields) -> MemberRecord:
    protocols = fields.nested("protocols")
    return MemberRecord(
        member_id=member_id,
        instance_id=fields.string_or_none("instance_id"),
        client_id=fields.string("client_id"),
        client_host=fields.string("client_host"),
        session_timeout_ms=fields.integer("session_timeout_ms", 0),
        rebalance_timeout_ms=fields.integer("rebalance_timeout_ms", 0),
        protocols=tuple((name, _bytes(protocols, name)) for name in protocols.names()),
        assignment=_bytes(fields, "assignment"),
    )


def _consumer_json(member: ConsumerMemberRecord) -> dict[str, object]:
    support = member.classic
    classic: dict[str, object] = {}
    if support is not None:
        protocols = {name: _text(metadata) for name, metadata in support.protocols}
        classic["classic"] = {"session_timeout_ms": support.session_timeout_ms, "protocols": protocols}
    return {
        "instance_id": member.instance_id,
        "rack": member.rack,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "topics": list(member.topics),
        "topic_pattern": member.topic_pattern,
        "assignor": member.assignor,
        "member_epoch": member.member_epoch,
        "previous_member_epoch": member.previous_member_epoch,
        "assigned": _assignment_json(member.assigned),
        "revoking": _assignment_json(member.revoking),
        "target": _assignment_json(member.target),
        **classic,
    }


def _consumer(member_id: str, fields: JsonFields) -> ConsumerMemberRecord:
    return ConsumerMemberRecord(
        member_id=member_id,
        instance_id=fields.string_or_none("instance_id"),
        rack=fields.string_or_none("rack"),
        client_id=fields.string("client_id"),
        client_host=fields.string("client_host"),
        rebalance_timeout_ms=fields.integer("rebalance_timeout_ms", 0),
        topics=fields.strings("topics"),
        topic_pattern=fields.string_or_none("topic_pattern"),
        assignor=fields.string_or_none("assignor"),
        member_epoch=fields.integer("member_epoch", -2),
        previous_member_epoch=fields.integer("previous_member_epoch", -2),
        assigned=_assignment(fields.nested("assigned")),
        revoking=_assignment(fields.nested("revoking")),
        target=_assignment(fields.nested("target")),
        classic=_classic(fields.nested("classic")) if fields.has("classic") else None,
    )


def _classic(fields: JsonFields) -> ClassicSupport:
    protocols = fields.nested("protocols")
    return ClassicSupport(
        fields.integer("session_timeout_ms", 0),
        tuple((name, _bytes(protocols, name)) for name in protocols.names()),
    )


def _assignment_json(assignment: Assignment) -> dict[str, list[int]]:
    return {str(topic_id): list(partitions) for topic_id, partitions in assignment.items()}


def _assignment(fields: JsonFields) -> Assignment:
    # A list of partitions has the form of a list of broker ids: different integers from 0.
    return {_topic_id(fields, name): fields.broker_ids(name) for name in fields.names()}


def _topics(fields: JsonFields) -> dict[str, tuple[uuid.UUID, int]]:
    topics: dict[str, tuple[uuid.UUID, int]] = {}
    for name in fields.names():
        row = fields.nested(name)
        topics[name] = (_topic_id(row, row.string("topic_id")), row.integer("partitions", 0))
    return topics


def _topic_id(fields: JsonFields, text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        fields.refuse(text, "a topic id")


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _bytes(fields: JsonFields, name: str) -> bytes:
    try:
        return base64.b64decode(fields.string(name).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        fields.refuse(name, "base64")


def _json(value: Mapping[str, object]) -> bytes:
    # Escaped, so that a lone surrogate that was read (JSON can spell one) can be written again.
    return json.dumps(value, separators=(",", ":")).encode("ascii")
