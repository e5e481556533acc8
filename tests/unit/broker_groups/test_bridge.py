"""Groups with members of both protocols: who goes over, what classic members are asked, and the way back."""

from __future__ import annotations

import struct
import uuid

import pytest

from broker.core.groups import bridge
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import (
    Catalog,
    GroupLimits,
    GroupState,
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    SyncRequest,
    Ticket,
)
from controller.wire.codes import ErrorCode
from controller.wire.consumer_protocol import read_assignment, write_assignment
from quorum.metadata.group_records import ConsumerGroupRecord, decode_group
from quorum.metadata.numbers import GenerationId

TOPIC = uuid.UUID(int=1)
CATALOG = Catalog({"t": (TOPIC, 4)})
LIMITS = GroupLimits(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
SESSION_MS, REBALANCE_MS = 10_000, 20_000
ALL = (0, 1, 2, 3)


def subscription(*owned: int) -> bytes:
    topic = struct.pack(">h", 1) + b"t"
    held = struct.pack(f">i{len(owned)}i", len(owned), *owned)
    return (
        struct.pack(">hi", 1, 1) + topic + struct.pack(">i", -1) + struct.pack(">i", 1 if owned else 0)
    ) + (topic + held if owned else b"")


def request(member_id: str, *owned: int, instance_id: str | None = None) -> JoinRequest:
    protocols = (("range", subscription(*owned)),)
    return JoinRequest(
        member_id,
        instance_id,
        "app",
        "/h",
        SESSION_MS,
        REBALANCE_MS,
        "consumer",
        protocols,
        needs_member_id=False,
    )


def stable(*assignments: bytes, instance_id: str | None = None) -> ClassicGroup:
    """A classic group whose members m0, m1 … have these assignments."""
    group = ClassicGroup("g", LIMITS)
    for number in range(len(assignments)):
        group.join(Ticket(number), request("", instance_id=instance_id), f"m{number}", 0)
        for earlier in range(number):
            group.join(Ticket(9), request(f"m{earlier}"), "", 0)
    given = {f"m{number}": assignment for number, assignment in enumerate(assignments)}
    assert group.leader is not None
    group.sync(Ticket(0), SyncRequest(group.leader, None, group.generation_id, None, None, given), 0)
    assert group.state is GroupState.STABLE
    return group


def mixed(instance_id: str | None = None) -> tuple[ConsumerGroup, HeartbeatAnswer]:
    """A group in which classic m0 owned all partitions when `new` came."""
    classic = stable(write_assignment({"t": ALL}), instance_id=instance_id)
    group = bridge.upgraded(classic, LIMITS, CATALOG, 0)
    assert group is not None
    return group, beat(group, "new", 0)


def beat(group: ConsumerGroup, member_id: str, epoch: int, instance_id: str | None = None) -> HeartbeatAnswer:
    answer = group.heartbeat(
        HeartbeatRequest(
            member_id, epoch, instance_id, rebalance_timeout_ms=REBALANCE_MS, topics=("t",), owned={}
        ),
        0,
    )
    group.check_invariants()
    return answer


def held(answer: HeartbeatAnswer) -> int:
    return sum(map(len, (answer.assignment or {}).values()))


def classic_beat(group: ConsumerGroup, generation_id: int, now_ms: int = 0) -> ErrorCode:
    return bridge.heartbeat(group, "m0", None, GenerationId(generation_id), now_ms)


def assigned(group: ConsumerGroup, joined: Joined) -> tuple[int, ...]:
    synced = bridge.sync(
        group, SyncRequest("m0", None, joined.generation_id, joined.protocol_type, joined.protocol)
    )
    assert synced.error_code is ErrorCode.NONE
    return (read_assignment(synced.assignment) or {}).get("t", ())


def test_nobody_gets_what_a_classic_member_still_owns() -> None:
    group, new = mixed()
    assert (new.error_code, held(new)) == (ErrorCode.NONE, 0)
    assert classic_beat(group, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert held(beat(group, "new", new.member_epoch)) == 0
    eager = bridge.join(group, request("m0"), "", 0)
    assert (eager.error_code, eager.generation_id) == (ErrorCode.NONE, 2)
    assert len(assigned(group, eager)) == 2
    assert held(beat(group, "new", new.member_epoch)) == 2
    assert classic_beat(group, 2) is ErrorCode.NONE
    assert group.state is GroupState.STABLE


def test_a_cooperative_member_gives_up_in_two_steps() -> None:
    group, new = mixed()
    assert classic_beat(group, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    first = bridge.join(group, request("m0", *ALL), "", 0)
    kept = assigned(group, first)
    assert (first.generation_id, len(kept)) == (1, 2)
    assert held(beat(group, "new", new.member_epoch)) == 0
    second = bridge.join(group, request("m0", *kept), "", 0)
    assert (second.generation_id, assigned(group, second)) == (2, kept)
    assert held(beat(group, "new", new.member_epoch)) == 2


def test_a_classic_member_that_does_not_join_again_in_time_is_evicted() -> None:
    group, new = mixed()
    classic_beat(group, 1)
    for now_ms in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert classic_beat(group, 1, now_ms) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group.deadline_ms("m0") == REBALANCE_MS
    group.expire("m0", REBALANCE_MS)
    assert classic_beat(group, 1, REBALANCE_MS) is ErrorCode.UNKNOWN_MEMBER_ID
    beat(group, "new", new.member_epoch)
    assert group.member_count == 1


def test_the_next_coordinator_goes_on_with_both_kinds() -> None:
    group, new = mixed()
    record = decode_group("g", group.record().encode())
    assert isinstance(record, ConsumerGroupRecord)
    assert record == group.record()
    again = ConsumerGroup.load("g", LIMITS, record)
    again.resume(0)
    again.update_catalog(CATALOG, 0)
    assert classic_beat(again, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.deadline_ms("m0") == SESSION_MS
    assert beat(again, "new", new.member_epoch).error_code is ErrorCode.NONE


def test_commits_are_fenced_as_a_classic_member_expects() -> None:
    group, _ = mixed()
    assert group.check_commit("m0", None, 1, 0) is ErrorCode.NONE
    bridge.join(group, request("m0"), "", 0)
    assert group.check_commit("m0", None, 1, 0) is ErrorCode.ILLEGAL_GENERATION
    assert group.check_commit("new", None, 9, 0) is ErrorCode.STALE_MEMBER_EPOCH


def test_a_static_member_goes_over_to_what_it_had() -> None:
    classic = stable(write_assignment({"t": ALL}), instance_id="i")
    group = bridge.upgraded(classic, LIMITS, CATALOG, 0)
    assert group is not None
    assert held(beat(group, "new", 0, "i")) == len(ALL)
    code = bridge.heartbeat(group, "m0", "i", GenerationId(1), 0)
    assert code is ErrorCode.FENCED_INSTANCE_ID


def test_the_last_member_that_goes_makes_the_group_classic_again() -> None:
    group, new = mixed()
    bridge.join(group, request("m0"), "", 0)
    kinds = [group.is_all_classic]
    beat(group, "new", -1)
    kinds.append(group.is_all_classic)
    assert kinds == [False, True]
    classic = bridge.downgraded(group, 0)
    assert classic is not None and classic.unsaved
    assert classic.state is GroupState.PREPARING
    code = classic.heartbeat("m0", None, GenerationId(new.member_epoch), 0)
    assert code is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    "assignments", [(b"x",), (write_assignment({"t": ALL}), write_assignment({"t": (3,)}))]
)
def test_a_group_whose_members_own_unclearly_stays_classic(assignments: tuple[bytes, ...]) -> None:
    assert bridge.upgraded(stable(*assignments), LIMITS, CATALOG, 0) is None
