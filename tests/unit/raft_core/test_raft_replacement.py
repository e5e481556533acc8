"""Replacement of a lost disk: what is retired, what a repetition does, and what never counts again."""

from __future__ import annotations

import pytest

from quorum.raft.core.configuration import Member
from quorum.raft.core.errors import MembershipError
from quorum.raft.core.membership import (
    RemoveMember,
    ReplaceMember,
)
from quorum.raft.core.messages import (
    PeerDown,
    Role,
    Vote,
    VoteReply,
)
from tests.unit.raft_core.disk import incarnation_of
from tests.unit.raft_core.members import (
    ADD_4,
    OTHER,
    TIMEOUT_MIN_MS,
    ack,
    acked,
    beat,
    change,
    latest,
    leader,
    peer_of,
)


def test_a_replaced_member_is_a_learner_whose_old_incarnation_never_counts_again() -> None:
    solo = leader()
    beat(solo, 3)
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    assert (sorted(latest(solo).voters), latest(solo).retired) == ([1, 2], (incarnation_of(3),))
    assert latest(solo).learners == {3: Member("127.0.0.1:7003", "")}
    solo.sync()
    solo.hear(ack(3, 3))
    assert (peer_of(solo, 3).incarnation, peer_of(solo, 3).match_index) == ("", 0)
    assert solo.raft.status().commit_index == 2
    acked(solo, 2)
    for _ in range(3):
        beat(solo, 3)
    assert solo.raft.status().last_index == 3
    beat(solo, 3, 0, OTHER)
    assert peer_of(solo, 3).incarnation == OTHER
    for _ in range(2):
        beat(solo, 3, 3, OTHER)
    assert latest(solo).voters[3].incarnation == OTHER


def test_a_disk_that_was_heard_within_a_second_is_retired_by_force_and_by_its_name_alone() -> None:
    solo = leader()
    beat(solo, 3)
    for wanted in (
        ReplaceMember(3),
        ReplaceMember(3, incarnation_of(3)),
        ReplaceMember(3, force=True),
    ):
        with pytest.raises(MembershipError, match=rf"in use and was heard 0 ms ago; .*{incarnation_of(3)}"):
            solo.raft.change_members(wanted)
    for _ in range(20):
        solo.tick(50)
        beat(solo, 2)
    with pytest.raises(MembershipError, match=r"in use and was heard 1000 ms ago"):
        solo.raft.change_members(ReplaceMember(3, incarnation_of(3)))
    solo.tick(50)
    beat(solo, 2)
    change(solo, ReplaceMember(3, incarnation_of(3)))
    assert latest(solo).retired == (incarnation_of(3),)


def test_the_last_but_one_voter_is_retired_by_force_alone() -> None:
    solo = leader()
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    acked(solo, 2)
    solo.step(PeerDown(3))
    with pytest.raises(MembershipError, match=r"of the voters \[1, 2\] a single one would be left"):
        solo.raft.change_members(ReplaceMember(2, incarnation_of(2)))
    change(solo, ReplaceMember(2, incarnation_of(2), force=True))
    assert sorted(latest(solo).voters) == [1]


def test_a_repeated_replacement_of_a_member_that_is_still_awaited_changes_nothing() -> None:
    solo = leader()
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    acked(solo, 2)
    wanted = latest(solo)
    change(solo, ReplaceMember(3))
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    assert solo.raft.status().last_index == 5
    assert solo.raft.status().commit_index == 3, "without a majority it is not known to be so"
    assert latest(solo) == wanted


def test_a_repeated_replacement_never_retires_the_new_disk() -> None:
    solo = leader()
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    acked(solo, 2)
    for _ in range(3):
        beat(solo, 3, None, OTHER)
    acked(solo, 2)
    assert latest(solo).voters[3].incarnation == OTHER
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    assert latest(solo).voters[3].incarnation == OTHER
    before = solo.raft.status().last_index
    with pytest.raises(MembershipError, match=rf"its disk is in use and was heard 0 ms ago; .* {OTHER}"):
        solo.raft.change_members(ReplaceMember(3, force=True))
    with pytest.raises(MembershipError, match=rf"its disk has the incarnation {OTHER}, not {'a' * 32}"):
        solo.raft.change_members(ReplaceMember(3, "a" * 32))
    assert solo.raft.status().last_index == before
    acked(solo, 2)
    solo.step(PeerDown(3))
    change(solo, ReplaceMember(3, force=True))


def test_a_repeated_replacement_is_done_whoever_leads_by_now() -> None:
    solo = leader()
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    acked(solo, 2)
    wanted = latest(solo)
    change(solo, ReplaceMember(1, incarnation_of(3), force=True))
    acked(solo, 2)
    assert (solo.raft.status().last_index, solo.raft.status().commit_index) == (4, 4)
    assert latest(solo) == wanted
    with pytest.raises(MembershipError, match="node 9 cannot be replaced: it is not a member"):
        solo.raft.change_members(ReplaceMember(9, incarnation_of(3)))


def test_a_named_disk_that_was_never_recorded_is_retired_too() -> None:
    solo = leader()
    change(solo, ADD_4)
    acked(solo, 2, 3)
    change(solo, ReplaceMember(4, OTHER))
    acked(solo, 2, 3)
    assert latest(solo).retired == (OTHER,)
    beat(solo, 4, 0, OTHER)
    acked(solo, 2, 3)
    assert latest(solo).learners == {4: Member("h:4", "")}
    assert peer_of(solo, 4).incarnation == ""


def test_a_named_disk_of_another_voter_is_not_retired() -> None:
    solo = leader()
    change(solo, ADD_4)
    acked(solo, 2, 3)
    before = solo.raft.status().last_index
    with pytest.raises(MembershipError, match=rf"{incarnation_of(3)} is the disk of node 3; nothing was ret"):
        solo.raft.change_members(ReplaceMember(4, incarnation_of(3)))
    assert latest(solo).retired == ()
    assert solo.raft.status().last_index == before


def test_the_remedy_of_a_change_that_would_leave_no_majority_names_who_is_gone() -> None:
    solo = leader()
    solo.step(PeerDown(3))
    with pytest.raises(MembershipError, match="bring node 3 back first, or remove what is gone") as caught:
        solo.raft.change_members(RemoveMember(2))
    assert "force" not in str(caught.value)
    change(solo, RemoveMember(3))


def test_an_incarnation_counts_for_one_member_only() -> None:
    solo = leader()
    change(solo, ADD_4)
    acked(solo, 2, 3)
    beat(solo, 4, 0, incarnation_of(3))
    assert solo.raft.status().last_index == 3
    assert peer_of(solo, 4).incarnation == ""


def test_a_retired_incarnation_gets_no_votes() -> None:
    solo = leader()
    change(solo, ReplaceMember(3, incarnation_of(3), force=True))
    acked(solo, 2)
    solo.tick(TIMEOUT_MIN_MS + 50)
    assert solo.role() is Role.FOLLOWER
    for pre in (True, False):
        for incarnation, granted in ((incarnation_of(3), False), (OTHER, True)):
            vote = Vote(9, 3, 1, pre, False, 9, 8)
            replies = solo.hear(vote, incarnation) + solo.sync()
            (reply,) = [reply for reply in replies if isinstance(reply, VoteReply)]
            assert reply.granted is granted
            assert (solo.raft.status().term == 9) is (granted and not pre)
