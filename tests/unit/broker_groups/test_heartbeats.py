"""What a member of a group whose coordinator assigns is answered, heartbeat by heartbeat."""

from __future__ import annotations

import uuid
from dataclasses import replace

from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import JOIN_EPOCH, Catalog, GroupLimits, HeartbeatRequest
from controller.wire.codes import ErrorCode

TOPIC_ID = uuid.UUID(int=7)
JOIN = HeartbeatRequest("m", JOIN_EPOCH, rebalance_timeout_ms=1_000, topics=("t",), owned={})
ALL = {TOPIC_ID: (0, 1)}


def joined() -> ConsumerGroup:
    group = ConsumerGroup("g", GroupLimits())
    group.update_catalog(Catalog({"t": (TOPIC_ID, 2)}), 0)
    answer = group.heartbeat(JOIN, 0)
    assert (answer.member_epoch, answer.assignment) == (1, ALL)
    return group


def test_a_member_that_says_what_it_owns_is_not_given_it_again() -> None:
    """Java's consumer takes each assignment for a new one: it would say at once what it owns, and so on."""
    group = joined()
    for owned in ({}, ALL, None):
        answer = group.heartbeat(HeartbeatRequest("m", 1, owned=owned), 10)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, None)


def test_a_member_that_says_everything_is_given_its_assignment_again() -> None:
    """So does one that has missed an answer, also of the epoch before."""
    group = joined()
    for member_epoch in (1, JOIN_EPOCH):
        answer = group.heartbeat(replace(JOIN, member_epoch=member_epoch), 10)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 1, ALL)


def test_what_changes_is_said_once() -> None:
    group = joined()
    group.update_catalog(Catalog({"t": (TOPIC_ID, 3)}), 5_000)
    answer = group.heartbeat(HeartbeatRequest("m", 1), 5_000)
    assert (answer.member_epoch, answer.assignment) == (2, {TOPIC_ID: (0, 1, 2)})
    answer = group.heartbeat(HeartbeatRequest("m", 2, owned={TOPIC_ID: (0, 1, 2)}), 5_000)
    assert (answer.member_epoch, answer.assignment) == (2, None)


def test_a_group_without_members_holds_no_topics() -> None:
    group = joined()
    size = group.size
    assert group.heartbeat(HeartbeatRequest("m", -1), 10).error_code is ErrorCode.NONE
    assert group.record().topics == {}
    assert group.size < size
