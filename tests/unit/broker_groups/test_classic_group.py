"""The classic protocol, case by case, as Kafka answers it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from broker.core.groups.classic import ClassicGroup
from broker.core.groups.model import (
    WHOLE_GROUP,
    GroupLimits,
    GroupState,
    Joined,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import ClassicGroupRecord, decode_group
from quorum.metadata.numbers import GenerationId

SESSION_MS = 10_000
REBALANCE_MS = 30_000
CURRENT = GenerationId(-99)


class Desk:
    """A group, and what its members are answered."""

    def __init__(self, **limits: int) -> None:
        self.limits = GroupLimits(**{"initial_rebalance_delay_ms": 0, **limits})
        self.group = ClassicGroup("g", self.limits)
        self.now_ms = 0
        self.answers: dict[Ticket, Joined | SyncAnswer] = {}
        self._tickets = itertools.count()
        self._names = itertools.count(1)

    def _collect(self) -> None:
        self.answers.update(self.group.take_answers())
        self.group.check_invariants()

    def join(self, member_id: str = "", metadata: bytes = b"m", **changed: Any) -> Ticket:
        given = {
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("range", metadata),),
            "needs_member_id": False,
            **changed,
        }
        ticket = Ticket(next(self._tickets))
        self.group.join(ticket, JoinRequest(member_id, **given), f"m{next(self._names)}", self.now_ms)
        self._collect()
        return ticket

    def joined(self, ticket: Ticket) -> Joined:
        answer = self.answers[ticket]
        assert isinstance(answer, Joined)
        return answer

    def sync(
        self,
        member_id: str,
        given: dict[str, bytes] | None = None,
        generation_id: GenerationId = CURRENT,
        **changed: Any,
    ) -> Ticket:
        fields = {"instance_id": None, "protocol_type": "consumer", "protocol": "range", **changed}
        generation_id = self.group.generation_id if generation_id == CURRENT else generation_id
        ticket = Ticket(next(self._tickets))
        request = SyncRequest(member_id, generation_id=generation_id, assignments=given or {}, **fields)
        self.group.sync(ticket, request, self.now_ms)
        self._collect()
        return ticket

    def beat(self, member_id: str, generation_id: GenerationId = CURRENT) -> ErrorCode:
        generation_id = self.group.generation_id if generation_id == CURRENT else generation_id
        return self.group.heartbeat(member_id, None, generation_id, self.now_ms)

    def expire(self, key: str, at_ms: int) -> None:
        self.now_ms = at_ms
        deadline_ms = self.group.deadline_ms(key)
        assert deadline_ms is not None and deadline_ms <= at_ms
        self.group.expire(key, at_ms)
        self._collect()

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        code, _ = self.group.leave(member_id, instance_id, self.now_ms)
        self._collect()
        return code

    def stable(self, count: int) -> list[str]:
        """Bring the group to a generation of so many members, m1 leading; each is assigned its own name."""
        first = self.joined(self.join()).member_id
        self.sync(first, {first: b""})
        others = [self.join() for _ in range(count - 1)]
        if others:
            self.join(first)
        members = [first, *(self.joined(each).member_id for each in others)]
        assert self.group.leader == first
        tickets = [self.sync(each) for each in members[1:]]
        tickets.insert(0, self.sync(first, {each: each.encode() for each in members}))
        assert [self.answers[each].error_code for each in tickets] == [ErrorCode.NONE] * count
        assert self.group.state is GroupState.STABLE
        return members

    def restarted(self) -> Desk:
        """Return the desk of the next coordinator."""
        record = decode_group("g", self.group.record().encode())
        assert isinstance(record, ClassicGroupRecord)
        desk = Desk()
        desk.group = ClassicGroup("g", self.limits, record)
        desk.now_ms = self.now_ms
        desk.group.resume(self.now_ms)
        return desk


def test_a_new_member_comes_again_with_the_id_that_it_got() -> None:
    desk = Desk()
    asked = desk.joined(desk.join(needs_member_id=True))
    assert (asked.error_code, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "m1")
    assert desk.joined(desk.join("m1", needs_member_id=True)).error_code is ErrorCode.NONE
    assert desk.group.generation_id == 1


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    desk = Desk()
    desk.join(needs_member_id=True)
    desk.expire("m1", SESSION_MS)
    assert desk.joined(desk.join("m1")).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.group.is_empty


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"session_timeout_ms": 999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("sticky", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": bytes(7 * 1024 * 1024)}, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_what_cannot_join_is_refused(changed: dict[str, Any], code: ErrorCode) -> None:
    desk = Desk()
    desk.stable(1)
    assert desk.joined(desk.join(**changed)).error_code is code
    assert desk.group.state is GroupState.STABLE


def test_a_full_group_takes_nobody_in() -> None:
    desk = Desk(members_max=2)
    desk.stable(1)
    desk.join(needs_member_id=True)
    assert desk.joined(desk.join()).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_the_leader_learns_of_all_and_others_of_nobody() -> None:
    desk = Desk()
    first = desk.joined(desk.join()).member_id
    other, again = desk.join(metadata=b"n"), desk.join(first)
    assert [(each.member_id, each.metadata) for each in desk.joined(again).members] == [
        ("m1", b"m"),
        ("m2", b"n"),
    ]
    assert desk.joined(other).members == ()
    assert desk.joined(other).leader == first


def test_members_vote_for_a_protocol_that_all_support() -> None:
    desk = Desk()
    desk.join(protocols=(("a", b""), ("b", b"")))
    for preferred in ("bc", "bc"):
        desk.join(protocols=tuple((each, b"") for each in (*preferred, "a")))
    desk.join("m1", protocols=(("a", b""), ("b", b"")))
    assert desk.group.protocol == "b"


def test_a_join_asks_the_others_to_come_again() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    new = desk.join()
    assert desk.beat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert new not in desk.answers
    desk.join(first)
    assert desk.joined(new).generation_id == 2
    assert desk.beat(first) is ErrorCode.NONE


def test_a_follower_that_joins_again_changes_nothing() -> None:
    desk = Desk()
    _, other = desk.stable(2)
    generation_id = desk.group.generation_id
    assert desk.joined(desk.join(other)).generation_id == generation_id
    assert desk.answers[desk.sync(other)] == SyncAnswer(ErrorCode.NONE, "consumer", "range", other.encode())
    assert desk.group.state is GroupState.STABLE


@pytest.mark.parametrize("number", [0, 1])
def test_a_leader_or_new_metadata_begins_a_rebalance(number: int) -> None:
    desk = Desk()
    members = desk.stable(2)
    desk.join(members[number], metadata=b"m" if number == 0 else b"changed")
    assert desk.group.state is GroupState.PREPARING


def test_members_that_do_not_come_in_time_are_out() -> None:
    desk = Desk()
    first, other = desk.stable(2)
    new = desk.join()
    desk.join(first)
    desk.expire(WHOLE_GROUP, REBALANCE_MS)
    assert [each.member_id for each in desk.joined(new).members] == []
    assert desk.joined(new).leader == first
    assert desk.beat(other) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_fetch_their_assignment_are_out() -> None:
    desk = Desk()
    first = desk.joined(desk.join()).member_id
    desk.join()
    desk.join(first)
    desk.sync(first, {})
    desk.expire(WHOLE_GROUP, REBALANCE_MS)
    assert [each.member_id for each in desk.group.members] == [first]
    assert desk.group.state is GroupState.PREPARING


def test_a_leader_that_does_not_assign_is_replaced() -> None:
    desk = Desk()
    first = desk.joined(desk.join()).member_id
    second = desk.join()
    desk.join(first)
    waits = desk.sync(desk.joined(second).member_id)
    desk.expire(first, SESSION_MS)
    assert desk.answers[waits].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.group.leader == desk.joined(second).member_id


def test_a_silent_member_is_found_dead() -> None:
    desk = Desk()
    first, other = desk.stable(2)
    desk.now_ms = SESSION_MS - 1
    assert desk.beat(first) is ErrorCode.NONE
    desk.expire(other, SESSION_MS)
    assert desk.group.state is GroupState.PREPARING
    desk.join(first)
    assert [each.member_id for each in desk.group.members] == [first]


def test_a_member_that_waits_is_not_found_dead() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join()
    assert desk.group.deadline_ms("m2") is None


def test_the_last_member_leaves_an_empty_group() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    desk.group.unsaved = False
    assert desk.leave(first) is ErrorCode.NONE
    assert desk.group.state is GroupState.EMPTY
    assert desk.group.unsaved
    assert desk.leave(first) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "changed", "code"),
    [
        ("stranger", {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m1", {"generation_id": GenerationId(7)}, ErrorCode.ILLEGAL_GENERATION),
        ("m1", {"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("m1", {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_who_may_not_sync_is_told_why(member_id: str, changed: dict[str, Any], code: ErrorCode) -> None:
    desk = Desk()
    desk.stable(1)
    assert desk.answers[desk.sync(member_id, **changed)].error_code is code


def test_nobody_syncs_while_members_join() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    desk.join()
    assert desk.answers[desk.sync(first)].error_code is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_too_large_begins_a_rebalance() -> None:
    desk = Desk(group_bytes_max=1000)
    first = desk.joined(desk.join()).member_id
    answer = desk.answers[desk.sync(first, {first: bytes(1000)})]
    assert answer.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.group.state is GroupState.PREPARING


def test_the_first_members_wait_for_each_other() -> None:
    desk = Desk(initial_rebalance_delay_ms=3_000)
    first = desk.join()
    desk.now_ms = 2_000
    second = desk.join()
    assert first not in desk.answers
    desk.expire(WHOLE_GROUP, 5_000)
    assert desk.joined(first).generation_id == desk.joined(second).generation_id == 1


# -- static members ------------------------------------------------------------------------------------------


def test_a_static_member_returns_without_a_rebalance() -> None:
    desk = Desk()
    first = desk.joined(desk.join(instance_id="i")).member_id
    desk.sync(first, {first: b"mine"}, instance_id="i")
    desk.group.unsaved = False
    again = desk.joined(desk.join(instance_id="i"))
    assert again.error_code is ErrorCode.NONE
    assert (again.generation_id, again.skip_assignment) == (1, True)
    assert again.member_id != first
    assert desk.group.unsaved
    synced = desk.answers[desk.sync(again.member_id, instance_id="i")]
    assert isinstance(synced, SyncAnswer)
    assert synced.assignment == b"mine"
    assert desk.answers[desk.sync(first, instance_id="i")].error_code is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_keeps_its_place_while_it_is_away() -> None:
    desk = Desk()
    first = desk.joined(desk.join(instance_id="i")).member_id
    new = desk.join()
    desk.expire(WHOLE_GROUP, REBALANCE_MS)
    assert {each.member_id for each in desk.group.members} == {first, desk.joined(new).member_id}
    assert desk.joined(new).leader == desk.joined(new).member_id


def test_a_static_member_leaves_by_its_instance() -> None:
    desk = Desk()
    desk.join(instance_id="i")
    assert desk.leave("", "other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.leave("stranger", "i") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.leave("", "i") is ErrorCode.NONE
    assert desk.group.state is GroupState.EMPTY


# -- commits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member_id", "generation_id", "code"),
    [
        ("m1", 1, ErrorCode.NONE),
        ("m1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_generation_commit(member_id: str, generation_id: int, code: ErrorCode) -> None:
    desk = Desk()
    desk.stable(1)
    assert desk.group.check_commit(member_id, None, GenerationId(generation_id), 0) is code


def test_anybody_commits_to_an_empty_group_and_members_while_others_join() -> None:
    desk = Desk()
    assert desk.group.check_commit("", None, GenerationId(-1), 0) is ErrorCode.NONE
    (first,) = desk.stable(1)
    desk.join()
    assert desk.group.check_commit(first, None, desk.group.generation_id, 0) is ErrorCode.NONE
    desk.join(first)
    code = desk.group.check_commit(first, None, desk.group.generation_id, 0)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


# -- the next coordinator ------------------------------------------------------------------------------------


def test_a_new_coordinator_goes_on_with_the_generation() -> None:
    desk = Desk()
    members = desk.stable(3)
    desk.now_ms = 50_000
    after = desk.restarted()
    assert after.group.generation_id == desk.group.generation_id
    assert [after.beat(each) for each in members] == [ErrorCode.NONE] * 3
    assert [after.group.deadline_ms(each) for each in members] == [60_000] * 3
    assert after.answers[after.sync(members[2])] == desk.answers[desk.sync(members[2])]


def test_a_new_coordinator_waits_for_the_assignment_that_was_on_its_way() -> None:
    desk = Desk()
    first = desk.joined(desk.join()).member_id
    after = desk.restarted()
    assert after.group.state is GroupState.COMPLETING
    synced = after.answers[after.sync(first, {first: b"all"})]
    assert isinstance(synced, SyncAnswer)
    assert synced.assignment == b"all"


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": "\x01" * 200},
        {"instance_id": "é" * 200},
        {"protocols": (("range" + "\x7f" * 300, b"m"), ("range", b""))},
        {"metadata": bytes(900)},
    ],
)
def test_what_counts_for_a_groups_limit_is_what_is_written(changed: dict[str, Any]) -> None:
    desk = Desk(group_bytes_max=1_500)
    desk.stable(1)
    assert desk.joined(desk.join(**changed)).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.joined(desk.join("m1")).error_code is ErrorCode.NONE
    assert len(desk.group.record().encode()) < 1_500


def test_a_member_that_sends_no_more_than_before_joins_again_in_a_full_group() -> None:
    desk = Desk(group_bytes_max=1_500)
    (first,) = desk.stable(1)
    desk.group._limits = GroupLimits(group_bytes_max=100)
    assert desk.joined(desk.join(first, b"n")).error_code is ErrorCode.NONE
    assert desk.joined(desk.join(first, b"longer")).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
