"""The machine of all groups of a term, step by step: what is written when, and when an answer leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.core.groups import group_fences, inputs
from broker.core.groups.machine import SWEEP_MS
from broker.core.groups.model import Catalog, GroupRefusal, GroupState, SyncRequest
from broker.core.groups.writing import CHUNK_BYTES
from controller.core.effects import Check, Resign, Write
from controller.core.inputs import Ended, MultiDone, ReadFailed, Rejected, Why
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.numbers import GenerationId
from tests.support.groups_world import LIMITS, NOBODY, OPTIONS, SESSION_MS, GroupsWorld

GROUP = "g"


def committed_by(generation_id: int, member_id: str = "m") -> tuple[str, None, GenerationId]:
    return member_id, None, GenerationId(generation_id)


# -- members -------------------------------------------------------------------------------------------------


def test_a_classic_group_joins_syncs_and_beats() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    assert world.beat(GROUP, GenerationId(generation_id + 1)) is ErrorCode.ILLEGAL_GENERATION
    assert world.done(world.committing(GROUP, {0: 5}, committed_by(generation_id))) is ErrorCode.NONE
    assert world.offsets(GROUP) == {0: 5}
    # A heartbeat writes nothing.
    multis = len(world.tree.multis)
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    assert len(world.tree.multis) == multis


def test_a_classic_member_that_is_silent_is_removed() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    world.tick(SESSION_MS - 1_000)
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    world.tick(SESSION_MS - 1_000)
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    world.tick(SESSION_MS + 1_000)
    world.finish()
    assert world.beat(GROUP, generation_id) is ErrorCode.UNKNOWN_MEMBER_ID
    stored = world.tree.group(GROUP)
    assert stored is not None and stored[0].record is not None
    assert stored[0].record.members == ()
    assert world.machine.status().counters.deadlines == 1


def test_a_consumer_group_joins_beats_and_leaves() -> None:
    world = GroupsWorld()
    world.look_up()
    joined = world.done(world.consumer(GROUP, "m"))
    assert joined.error_code is ErrorCode.NONE
    assert [len(each) for each in joined.assignment.values()] == [4]
    beaten = world.done(world.consumer(GROUP, "m", joined.member_epoch))
    assert (beaten.error_code, beaten.assignment) == (ErrorCode.NONE, None)
    stale = world.done(world.consumer(GROUP, "m", joined.member_epoch + 1))
    assert stale.error_code is ErrorCode.FENCED_MEMBER_EPOCH
    whose = committed_by(joined.member_epoch)
    assert world.done(world.committing(GROUP, {0: 5}, whose)) is ErrorCode.NONE
    assert world.done(world.consumer(GROUP, "m", -1)).error_code is ErrorCode.NONE
    assert world.done(world.committing(GROUP, {0: 6}, whose)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.offsets(GROUP) == {0: 5}


def test_a_consumer_that_is_silent_gives_its_partitions_to_the_others() -> None:
    world = GroupsWorld()
    world.look_up()
    first = world.done(world.consumer(GROUP, "m"))
    second = world.done(world.consumer(GROUP, "n"))
    for _ in range(LIMITS.consumer_session_timeout_ms // 10_000 + 1):
        world.tick(10_000)
        second = world.done(world.consumer(GROUP, "n", second.member_epoch, owned={}))
    assert [len(each) for each in second.assignment.values()] == [4]
    assert (
        world.done(world.consumer(GROUP, "m", first.member_epoch)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_topic_that_grows_leads_to_a_rebalance() -> None:
    world = GroupsWorld()
    world.look_up()
    joined = world.done(world.consumer(GROUP, "m"))
    world.tree.topics["t"] = world.tree.topics["t"][0], 9
    world.read_topics()
    world.finish()
    beaten = world.done(world.consumer(GROUP, "m", joined.member_epoch))
    assert [len(each) for each in beaten.assignment.values()] == [9]


def test_offsets_of_a_deleted_topic_go_but_not_those_that_come_while_topics_are_read() -> None:
    world = GroupsWorld()
    world.done(world.committing(GROUP, {0: 5}))
    del world.tree.topics["t"]
    world.step(inputs.TopicsChanged())
    wanted = world.take(inputs.ReadTopics)
    world.done(world.committing("other", {1: 7}))
    world.answer_topics(wanted)
    world.finish()
    assert (world.offsets(GROUP), world.offsets("other")) == ({}, {1: 7})


def test_a_commit_for_a_topic_that_came_again_stays() -> None:
    world = GroupsWorld()
    world.done(world.committing(GROUP, {0: 5}))
    kept = world.tree.topics.pop("t")
    world.step(inputs.TopicsChanged())
    wanted = world.take(inputs.ReadTopics)
    # What is looked up has no such topic yet.
    known = inputs.TopicsRead(Catalog(), frozenset(world.tree.topics))
    world.tree.topics["t"] = kept
    assert world.done(world.committing(GROUP, {0: 6})) is ErrorCode.NONE
    world.step(known)
    world.finish()
    assert world.offsets(GROUP) == {0: 6}
    assert wanted.names == frozenset()


# -- answers leave behind what holds them --------------------------------------------------------------------


def test_no_answer_leaves_before_its_multi_is_acknowledged() -> None:
    world = GroupsWorld()
    joining = world.ask(world.joining(GROUP))
    assert joining not in world.answers
    world.finish()
    generation_id = world.answers[joining].generation_id
    request = SyncRequest("m", None, generation_id, None, None, {"m": b"a"})
    syncing = world.ask(inputs.SyncGroup(GROUP, request))
    # It would say that the group is stable, which no successor knows yet.
    beating = world.ask(inputs.ClassicHeartbeat(GROUP, "m", None, generation_id))
    committing = world.ask(world.committing(GROUP, {0: 1}, committed_by(generation_id)))
    assert not {syncing, beating, committing} & world.answers.keys()
    effect = world.take(Write)
    world.step(MultiDone(effect.id, world.tree.multi(effect.operations)))
    assert {syncing, beating} <= world.answers.keys()
    assert committing not in world.answers
    world.finish()
    assert world.answers[committing] is ErrorCode.NONE


def test_the_fence_of_answers_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_fences, "may_answer", lambda **_: True)
    world = GroupsWorld()
    assert world.ask(world.joining(GROUP)) in world.answers


def test_commits_that_come_while_a_multi_is_under_way_are_one() -> None:
    world = GroupsWorld()
    first = world.ask(world.committing(GROUP, {0: 1}))
    others = [world.ask(world.committing(GROUP, {0: number, number: number})) for number in range(2, 9)]
    assert world.count(Write) == 1
    world.finish()
    assert [world.answers[each] for each in (first, *others)] == [ErrorCode.NONE] * 8
    assert len(world.tree.multis) == 2
    assert world.offsets(GROUP) == {0: 8, **{number: number for number in range(2, 9)}}


def test_every_multi_is_fenced_by_epoch_and_group() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    world.done(world.committing(GROUP, {0: 1}, committed_by(generation_id)))
    world.done(inputs.LeaveGroup(GROUP, [("m", None)]))
    world.done(inputs.DeleteGroup(GROUP))
    assert len(world.tree.multis) == 5
    for operations in world.tree.multis:
        assert operations[0] == Check(paths.COORDINATOR_EPOCH, 1)
        assert any(each.path == paths.group_path(GROUP) for each in operations[1:])
    assert world.tree.group(GROUP) is None


# -- refusals and lost replies -------------------------------------------------------------------------------


@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("lost", range(6))
def test_after_a_lost_reply_the_group_is_read_before_anything_else(took_effect: bool, lost: int) -> None:
    world = GroupsWorld()

    def ask_all() -> list[int]:
        asked = [world.ask(world.joining(GROUP)), world.ask(world.committing("other", {0: 1}))]
        return [*asked, world.ask(world.committing("other", {1: 2}))]

    asked = ask_all()
    for number in range(lost + 1):
        writes = [each for each in world.effects if isinstance(each, Write)]
        if not writes:
            break
        effect = writes[0]
        world.effects.remove(effect)
        if number < lost:
            world.step(MultiDone(effect.id, world.tree.multi(effect.operations)))
            continue
        world.effects, others = [effect], world.effects
        world.lose(took_effect=took_effect)
        reading = world.take(inputs.ReadGroup)
        assert world.count(Write) == 0
        world.read(reading)
        world.effects += others
    world.finish()
    assert world.answers[asked[0]].error_code is ErrorCode.NONE
    assert [world.answers[each] for each in asked[1:]] == [ErrorCode.NONE] * 2
    assert world.offsets("other") == {0: 1, 1: 2}
    assert world.machine.status().counters.writes_failed == 0


def test_a_write_without_an_outcome_is_given_up_and_the_group_goes_on_from_what_is_there() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    asked = world.ask(world.committing(GROUP, {0: 1}, committed_by(generation_id)))
    for _ in range(1 + OPTIONS.rebalance_retries_max):
        world.lose(took_effect=False)
        world.read(world.take(inputs.ReadGroup))
    assert world.answers[asked].error_code is ErrorCode.NOT_COORDINATOR
    assert GROUP in world.machine.status().unwritten
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    assert world.done(world.committing(GROUP, {0: 2}, committed_by(generation_id))) is ErrorCode.NONE
    assert world.machine.status().unwritten == {}


def test_a_foreign_hand_on_the_znode_undoes_what_was_decided() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    path = paths.group_path(GROUP)
    value, version = world.tree.nodes[path]
    asked = world.ask(world.committing(GROUP, {0: 1}, committed_by(generation_id)))
    waiting = world.ask(world.joining(GROUP, new_id="n"))
    world.tree.nodes[path] = value, version + 1
    world.finish()
    for each in (asked, waiting):
        assert world.answers[each].error_code is ErrorCode.NOT_COORDINATOR
    slot = world.machine.find(GROUP)
    assert slot is not None and not isinstance(slot, GroupRefusal)
    assert slot.machine.state is GroupState.STABLE
    assert world.beat(GROUP, generation_id) is ErrorCode.NONE
    assert world.offsets(GROUP) == {}


def test_offsets_that_a_foreign_hand_removed_are_written_again() -> None:
    world = GroupsWorld()
    world.done(world.committing(GROUP, {0: 1}))
    del world.tree.nodes[f"{paths.group_path(GROUP)}/offsets/t/0"]
    assert world.done(world.committing(GROUP, {0: 2})) is ErrorCode.NONE
    assert world.offsets(GROUP) == {0: 2}


def test_a_lost_fence_ends_the_term_and_nothing_is_answered() -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    asked = world.ask(world.committing(GROUP, {0: 1}, committed_by(generation_id)))
    world.elect_another()
    world.finish()
    assert world.resigned is not None and world.resigned.is_fenced
    assert asked not in world.answers
    assert world.offsets(GROUP) == {}
    assert world.ask(inputs.ClassicHeartbeat(GROUP, "m", None, generation_id)) not in world.answers


def test_without_the_fence_of_epochs_a_former_coordinator_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_fences, "coordinator_epoch", lambda _: -1)
    world = GroupsWorld()
    world.elect_another()
    assert world.done(world.committing(GROUP, {0: 1})) is ErrorCode.NONE


def test_a_group_that_cannot_be_read_ends_the_term() -> None:
    world = GroupsWorld()
    world.ask(world.committing(GROUP, {0: 1}))
    world.lose(took_effect=True)
    for _ in range(1 + OPTIONS.rebalance_retries_max):
        assert world.resigned is None
        world.step(ReadFailed(world.take(inputs.ReadGroup).id, "the value is no record"))
    assert world.resigned == Resign("the value is no record", is_fenced=False)


def test_what_the_quorum_never_takes_is_given_up_at_once() -> None:
    world = GroupsWorld()
    asked = world.ask(world.committing(GROUP, {0: 1}))
    world.step(
        MultiDone(world.take(Write).id, Rejected(1, Why.OTHER, "no access", ErrorCode.UNKNOWN_SERVER_ERROR))
    )
    world.read(world.take(inputs.ReadGroup))
    assert world.answers[asked] == GroupRefusal(ErrorCode.NOT_COORDINATOR, "no access")
    assert world.machine.find(GROUP) is None


# -- terms ---------------------------------------------------------------------------------------------------


def test_the_next_coordinator_goes_on_where_the_last_one_stopped() -> None:
    world = GroupsWorld()
    world.look_up()
    generation_id = world.settle(GROUP)
    joined = world.done(world.consumer("k", "m"))
    world.step(Ended("the broker stops", is_fenced=False))
    world.elect_another()
    after = GroupsWorld(world.tree, now_ms=world.now_ms)
    assert after.machine.status().held_bytes == world.machine.status().held_bytes
    assert after.beat(GROUP, generation_id) is ErrorCode.NONE
    beaten = after.done(after.consumer("k", "m", joined.member_epoch))
    assert (beaten.error_code, beaten.member_epoch) == (ErrorCode.NONE, joined.member_epoch)


@pytest.mark.parametrize("written", range(4))
def test_a_large_record_is_written_in_chunks_and_what_a_dead_coordinator_left_goes(written: int) -> None:
    world = GroupsWorld()
    world.done(world.committing(GROUP, {0: 1}))
    asked = world.ask(world.joining(GROUP, metadata=bytes(CHUNK_BYTES)))
    for _ in range(written):
        effect = world.take(Write)
        world.step(MultiDone(effect.id, world.tree.multi(effect.operations)))
    assert (asked in world.answers) is (written > 2)
    world.elect_another()
    after = GroupsWorld(world.tree, now_ms=world.now_ms)
    after.finish()
    found = after.tree.group(GROUP)
    assert found is not None
    assert found[0].strays == ()
    assert len(found[0].chunks) == (2 if written > 2 else 0)
    assert after.offsets(GROUP) == {0: 1}


# -- deletions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("took_effect", [True, False])
@pytest.mark.parametrize("lost", range(2))
def test_a_deletion_may_lose_any_reply(took_effect: bool, lost: int) -> None:
    world = GroupsWorld()
    world.done(world.committing(GROUP, dict.fromkeys(range(1_500), 1)))
    asked = world.ask(inputs.DeleteGroup(GROUP))
    for _ in range(lost):
        effect = world.take(Write)
        world.step(MultiDone(effect.id, world.tree.multi(effect.operations)))
    refused = world.ask(world.committing(GROUP, {0: 1}))
    assert world.answers[refused].error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.lose(took_effect=took_effect)
    world.finish()
    assert world.answers[asked] is ErrorCode.NONE
    assert world.tree.children(paths.GROUPS) == []
    assert world.machine.status().held_bytes == 0
    assert world.done(inputs.DeleteGroup(GROUP)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deletion_waits_for_writes_and_judges_anew() -> None:
    world = GroupsWorld()
    world.ask(world.committing(GROUP, {0: 1}))
    deleting = world.ask(inputs.DeleteGroup(GROUP))
    joining = world.ask(world.joining(GROUP))
    world.finish()
    assert world.answers[joining].error_code is ErrorCode.NONE
    assert world.answers[deleting] is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("age_ms", [0, OPTIONS.offsets_retention_ms + 1])
def test_offsets_of_a_group_that_was_empty_for_long_are_removed(age_ms: int) -> None:
    world = GroupsWorld(
        options=replace(OPTIONS, offsets_retention_ms=SWEEP_MS // 2 if age_ms else 10 * SWEEP_MS)
    )
    world.done(world.committing(GROUP, {0: 1}, NOBODY))
    world.tick(SWEEP_MS)
    world.finish()
    assert world.offsets(GROUP) == ({} if age_ms else {0: 1})
    assert (world.machine.find(GROUP) is None) is bool(age_ms)


# -- room ----------------------------------------------------------------------------------------------------


def test_what_makes_groups_larger_than_they_may_be_is_refused() -> None:
    world = GroupsWorld(options=replace(OPTIONS, groups_bytes_max=2_000, groups_max=2))
    assert world.done(world.committing(GROUP, {0: 1})) is ErrorCode.NONE
    refused = world.done(world.committing("other", dict.fromkeys(range(9), 1)))
    assert refused.error_code is ErrorCode.POLICY_VIOLATION
    assert world.machine.find("other") is None
    assert world.done(world.committing(GROUP, {0: 2})) is ErrorCode.NONE
    assert world.done(world.committing("other", {0: 1})) is ErrorCode.NONE
    assert world.done(world.committing("third", {0: 1})).error_code is ErrorCode.POLICY_VIOLATION
    assert world.machine.status().refused == 1


def test_who_makes_a_group_too_large_is_refused_and_the_others_go_on() -> None:
    world = GroupsWorld(options=replace(OPTIONS, limits=replace(LIMITS, group_bytes_max=4_000)))
    world.look_up()
    joined = world.done(world.consumer(GROUP, "m"))
    world.look_up(u=5_000)
    refused = world.done(world.consumer(GROUP, "n", topics=("u",)))
    assert refused.error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    beaten = world.done(world.consumer(GROUP, "m", joined.member_epoch))
    assert beaten.error_code is ErrorCode.NONE


# -- fences that are switched off ----------------------------------------------------------------------------


def test_without_the_fence_of_versions_a_foreign_write_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupsWorld()
    generation_id = world.settle(GROUP)
    path = paths.group_path(GROUP)
    value, version = world.tree.nodes[path]
    world.tree.nodes[path] = value, version + 1
    monkeypatch.setattr(group_fences, "group_version", lambda _: -1)
    assert world.done(world.committing(GROUP, {0: 1}, committed_by(generation_id))) is ErrorCode.NONE


def test_without_the_fence_of_generations_a_member_of_another_one_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupsWorld()
    stale = committed_by(world.settle(GROUP) - 1)
    assert world.done(world.committing(GROUP, {0: 1}, stale)) is ErrorCode.ILLEGAL_GENERATION
    monkeypatch.setattr(group_fences, "is_of_generation", lambda *_: True)
    assert world.done(world.committing(GROUP, {0: 1}, stale)) is ErrorCode.NONE


def test_without_the_fence_of_member_epochs_a_member_that_missed_one_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = GroupsWorld()
    world.look_up()
    stale = committed_by(world.done(world.consumer(GROUP, "m")).member_epoch - 1)
    assert world.done(world.committing(GROUP, {0: 1}, stale)) is ErrorCode.STALE_MEMBER_EPOCH
    monkeypatch.setattr(group_fences, "is_of_member_epoch", lambda *_: True)
    assert world.done(world.committing(GROUP, {0: 1}, stale)) is ErrorCode.NONE
