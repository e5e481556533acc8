"""Requests about consumer groups, and what is answered.

Source: Kafka's ListGroups, DescribeGroups, ConsumerGroupDescribe, OffsetFetch, OffsetCommit and DeleteGroups
requests; ConsumerProtocolAssignment.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.client.errors import BrokerRequestError
from broker.client.partitions import by_topic
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from controller.wire.consumer_protocol import read_assignment
from quorum.metadata.paths import PartitionKey


class GroupListing(NamedTuple):
    """A group, in short."""

    group_id: str
    protocol_type: str
    state: str
    #: "classic" or "consumer"; "" where the broker does not say.
    group_type: str


class GroupMember(NamedTuple):
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    #: None: assigned by a protocol of which we know nothing.
    partitions: tuple[PartitionKey, ...] | None


class GroupDescription(NamedTuple):
    """A group and its members."""

    group_id: str
    state: str
    #: The assignor.
    protocol: str
    members: tuple[GroupMember, ...]
    #: Why the coordinator could not write it the last time; None: it could.
    problem: str | None


class CommittedOffset(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str


def read_listings(response: Any) -> list[GroupListing]:
    """Return the content of a ListGroups response."""
    if response.error_code:
        raise BrokerRequestError("the groups", response.error_code)
    return [
        GroupListing(
            each.group_id,
            each.protocol_type,
            getattr(each, "group_state", ""),
            getattr(each, "group_type", ""),
        )
        for each in response.groups
    ]


def read_description(group: Any) -> GroupDescription:
    """Return one group of a DescribeGroups response; one that does not exist is "Dead"."""
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group.group_id, "Dead", "", (), None)
    if group.error_code:
        raise BrokerRequestError(f"group {group.group_id}", group.error_code)
    members = tuple(
        GroupMember(
            each.member_id,
            getattr(each, "group_instance_id", None),
            each.client_id,
            each.client_host,
            assigned_partitions(bytes(each.member_assignment))
            if group.protocol_type in ("", "consumer")
            else None,
        )
        for each in group.members
    )
    problem: str | None = getattr(group, "error_message", None)
    return GroupDescription(group.group_id, group.group_state, group.protocol_data, members, problem)


def read_assigned_by_coordinator(group: Any) -> GroupDescription:
    """Return one group of a ConsumerGroupDescribe response; GROUP_ID_NOT_FOUND: its members assign."""
    if group.error_code:
        raise BrokerRequestError(f"group {group.group_id}", group.error_code, group.error_message)
    members = tuple(
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(
                PartitionKey(topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in group.members
    )
    return GroupDescription(
        group.group_id, group.group_state, group.assignor_name, members, group.error_message
    )


def read_fetched(response: Any) -> dict[PartitionKey, CommittedOffset]:
    """Return the committed offsets of an OffsetFetch response; a partition without one is left out."""
    found: dict[PartitionKey, CommittedOffset] = {}
    for group in response.groups:
        if group.error_code:
            raise BrokerRequestError(f"offsets of group {group.group_id}", group.error_code)
        for topic in group.topics:
            for each in topic.partitions:
                if each.committed_offset >= 0:
                    found[PartitionKey(topic.name, each.partition_index)] = CommittedOffset(
                        each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                    )
    return found


def commit_values(group_id: str, offsets: Mapping[PartitionKey, int]) -> Values:
    """Return the body of an OffsetCommit request in the name of no member."""

    def row(index: int, offset: int) -> Values:
        return {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }

    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "generation_id": -1,
        "member_id": "",
        "topics": by_topic(offsets, "name", row),
    }


def check_committed(group_id: str, response: Any) -> None:
    """Return if every offset was committed."""
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                where = f"offset of group {group_id} for {topic.name}-{each.partition_index}"
                raise BrokerRequestError(where, each.error_code)


def assigned_partitions(assignment: bytes) -> tuple[PartitionKey, ...] | None:
    """Return the partitions of a ConsumerProtocolAssignment of any version; None if it cannot be read."""
    found = read_assignment(assignment)
    if found is None:
        return None
    return tuple(PartitionKey(topic, index) for topic, indexes in found.items() for index in indexes)
