"""Every checker accepts a good history and finds a planted violation, and says which promise was broken.

Histories are written by hand, as clients would have recorded them. `Story` keeps the boring parts.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.checkers.verdict import judge
from tests.simulation.history import (
    History,
    Operation,
    Outcome,
    Process,
    Recorder,
    SessionEvent,
    SessionStep,
    WatchEvent,
)
from tests.simulation.stories import (
    BAD_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    NO_NODE,
    NODE_EXISTS,
    TIMEOUT_MS,
    Client,
    Story,
    stat,
)


def good_story() -> Story:
    """Everything happens that may happen."""
    story = Story()
    one, two = story.clients
    one.create("/a", "a0", 3)
    one.get("/a", 3, "a0", stat(3), watch=True)
    two.put("/a", "a1", 4, stat(3, 4, 1))
    one.event(CHANGED, "/a", 4)
    one.get("/a", 4, "a1", stat(3, 4, 1))
    two.put("/a", "a?", 5, None, expected=7, err=BAD_VERSION)
    unknown = two.ask("set", "/a", ("a2", 1))
    two.step(SessionStep.LOST)
    two.step(SessionStep.RESUMED)
    one.get("/a", 6, "a2", stat(3, 6, 2))
    assert unknown.outcome is Outcome.UNKNOWN
    two.create("/a/e", "e0", 7, flags=1)
    names = (("e",), stat(3, 6, 2, cversion=1, children=1, pzxid=7))
    one.do("children", "/a", True, 7, names)
    parts = (("check", "/a", 2), ("set", "/a", ("a3", -1)), ("create", "/b", ("b0", 0)))
    two.do("multi", "", parts, 8, ((None, None), (None, stat(3, 8, 3)), ("/b", None)))
    failing = (("check", "/a", 2), ("set", "/a", ("a4", -1)))
    two.do("multi", "", failing, 9, (BAD_VERSION, -2), BAD_VERSION)
    two.do("close", "", None, 10)
    one.event(CHILDREN, "/a", 10)
    one.do("sync", "/a", None, 10)
    final = stat(3, 8, 3, cversion=2, pzxid=10)
    one.get("/a", 10, "a3", final)
    story.end(10, {"/a": ("a3", final), "/b": ("b0", stat(8))}, 1)
    return story


def test_a_good_history_is_accepted() -> None:
    story = good_story()
    assert judge(story.history(), story.finals) == []


def test_a_history_survives_its_lines(tmp_path: Path) -> None:
    story = good_story()
    files = []
    for process in story.history().processes:
        sink = io.StringIO()
        rewrite(process, Recorder(process.process, sink))
        files.append(tmp_path / f"{process.process}.jsonl")
        files[-1].write_text(sink.getvalue() + '["c",3,', encoding="utf-8")
    again = History.read(files)
    assert [repr(each) for each in again.operations] == [repr(each) for each in story.history().operations]
    assert judge(again, story.finals) == []
    files[0].write_text('["x"]\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"1\.jsonl:1: "):
        History.read(files)


def rewrite(process: Process, recorder: Recorder) -> None:
    """Write a history again, as if it happened now."""
    operations = iter(process.operations)
    written: list[Operation] = []
    for record in process.received:
        until = record.number if isinstance(record, Operation) else -1
        while len(written) <= until:
            written.append(invoke_again(next(operations), recorder))
        if isinstance(record, WatchEvent):
            recorder.watch(record)
        elif isinstance(record, SessionEvent):
            recorder.session(record)
        else:
            recorder.complete(
                written[record.number],
                record.completed_ms,
                record.outcome,
                record.err,
                record.zxid,
                record.result,
            )
    for operation in operations:
        invoke_again(operation, recorder)


def invoke_again(operation: Operation, recorder: Recorder) -> Operation:
    return recorder.invoke(
        operation.invoked_ms,
        operation.session_id,
        operation.connection,
        operation.node_id,
        operation.kind,
        operation.path,
        operation.argument,
    )


# --- planted violations: (name, promise, how) ---------------------------------------------------------------

Plant = Callable[[Story, Client, Client], None]
PLANTS: list[tuple[str, Plant]] = []


def plant(invariant: str) -> Callable[[Plant], Plant]:
    def register(planted: Plant) -> Plant:
        PLANTS.append((invariant, planted))
        return planted

    return register


@plant("I5")
def an_acknowledged_create_is_gone(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    story.end(3, {}, 1, 2)


@plant("I5")
def an_acknowledged_create_is_gone_for_a_reader(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.gone("/a", 3)


@plant("I8")
def an_acknowledged_set_is_undone(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    story.end(4, {"/a": ("a0", stat(3))}, 1, 2)


@plant("I5")
def a_write_took_effect_with_another_zxid_than_it_was_told(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    two.do("delete", "/none", -1, 5, None, NO_NODE)
    two.get("/a", 5, "a1", stat(3, 5, 1))


@plant("I6")
def a_failed_write_appears(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, None, expected=5, err=BAD_VERSION)
    two.get("/a", 4, "a1", stat(3, 4, 1))


@plant("I6")
def a_value_appears_that_nobody_wrote(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "what", stat(3))


@plant("I6")
def an_unknown_write_takes_effect_twice(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.ask("set", "/a", ("a1", -1))
    one.get("/a", 4, "a1", stat(3, 4, 1))
    one.put("/a", "a2", 5, stat(3, 5, 2))
    one.get("/a", 6, "a1", stat(3, 6, 3))


@plant("I6")
def an_unknown_write_counts_twice_without_being_seen(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.ask("set", "/a", ("a1", -1))
    one.put("/a", "a2", 6, stat(3, 6, 3))


@plant("I6")
def an_unknown_compare_and_set_takes_effect_on_another_version(
    story: Story, one: Client, two: Client
) -> None:
    one.create("/a", "a0", 3)
    two.ask("set", "/a", ("a1", 4))
    one.put("/a", "a2", 5, stat(3, 5, 2))


@plant("I6")
def more_transactions_than_were_asked_for(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 9)


@plant("I5")
def a_node_is_deleted_by_nobody(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.ask("create", "/a", ("a1", 0))
    two.ask("set", "/b", ("b", -1))
    one.gone("/a", 4, kind="exists")


@plant("I8")
def a_zxid_is_given_twice(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.create("/b", "b0", 3)


@plant("I8")
def a_later_write_is_an_earlier_transaction(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 4)
    two.create("/b", "b0", 3)


@plant("I8")
def a_sync_does_not_see_what_was_acknowledged(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.do("sync", "/a", None, 2)


@plant("I8")
def a_session_does_not_read_its_own_write(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.gone("/a", 2)


@plant("I8")
def a_session_goes_back_in_time_on_another_connection(story: Story, one: Client, two: Client) -> None:
    two.create("/a", "a0", 3)
    one.get("/a", 3, "a0", stat(3))
    one.step(SessionStep.LOST)
    one.step(SessionStep.RESUMED)
    one.gone("/a", 2, kind="exists")


@plant("I8")
def two_reads_of_one_moment_differ(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    two.get("/a", 4, "a1", stat(3, 4, 1))
    one.get("/a", 4, "a0", stat(3))


@plant("I8")
def a_compare_and_set_succeeds_on_another_version(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, stat(3, 4, 1), expected=5)


@plant("I6")
def a_compare_and_set_fails_on_its_version(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.put("/a", "a1", 4, None, expected=0, err=BAD_VERSION)


@plant("I6")
def a_create_fails_where_nothing_is(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3, err=NODE_EXISTS)


@plant("I6")
def a_create_fails_for_a_version(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3, err=BAD_VERSION)


@plant("I6")
def a_part_of_a_multi_fails_for_a_reason_of_another(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.do("multi", "", [("set", "/a", ("a1", -1)), ("delete", "/a", -1)], 4, (NODE_EXISTS, 0), NODE_EXISTS)


@plant("I6")
def a_multi_of_nothing_fails(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.do("multi", "", [], 4, None, BAD_VERSION)


@plant("I8")
def a_value_is_seen_before_it_was_written(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 4, "a1", stat(3, 4, 1))
    one.put("/a", "a1", 4, stat(3, 4, 1))


@plant("I9")
def a_set_raises_the_version_by_two(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.put("/a", "a1", 4, stat(3, 4, 2))


@plant("I9")
def a_stat_is_from_the_future(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.get("/a", 3, "a0", stat(3, pzxid=9))


@plant("I5")
def half_of_a_multi_is_missing(story: Story, one: Client, two: Client) -> None:
    parts = (("create", "/a", ("a0", 0)), ("create", "/b", ("b0", 0)))
    one.do("multi", "", parts, 3, (("/a", None), ("/b", None)))
    two.get("/a", 3, "a0", stat(3))
    two.gone("/b", 3)


@plant("I5")
def half_of_an_unknown_multi_is_missing(story: Story, one: Client, two: Client) -> None:
    one.ask("multi", "", (("create", "/a", ("a0", 0)), ("create", "/b", ("b0", 0))))
    two.get("/a", 3, "a0", stat(3))
    two.gone("/b", 3)


@plant("I6")
def an_unknown_multi_has_two_zxids(story: Story, one: Client, two: Client) -> None:
    one.ask("multi", "", (("create", "/a", ("a0", 0)), ("create", "/b", ("b0", 0))))
    two.get("/a", 3, "a0", stat(3))
    two.get("/b", 4, "b0", stat(4))


@plant("I6")
def a_list_shows_a_child_that_nobody_created(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.do("children", "/a", False, 3, (("x",), stat(3, cversion=1, children=1)))


@plant("I5")
def a_list_lacks_a_child(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.create("/a/x", "x0", 4)
    two.do("children", "/a", False, 4, ((), stat(3)))


@plant("I9")
def num_children_does_not_count(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.create("/a/x", "x0", 4)
    two.do("children", "/a", False, 4, (("x",), stat(3, cversion=2, children=2, pzxid=4)))


@plant("I9")
def cversion_misses_a_child(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3))
    one.create("/a/x", "x0", 4)
    one.do("delete", "/a/x", -1, 5)
    two.get("/a", 5, "a0", stat(3))


@plant("I9")
def cversion_counts_too_much(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3))
    one.create("/a/x", "x0", 4)
    two.get("/a", 4, "a0", stat(3, cversion=3, children=1, pzxid=4))


@plant("I9")
def pzxid_is_not_that_of_the_last_child(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3))
    one.create("/a/x", "x0", 4)
    two.get("/a", 4, "a0", stat(3, cversion=1, children=1, pzxid=3))


@plant("I9")
def a_node_has_no_parent_in_the_end(story: Story, one: Client, two: Client) -> None:
    one.create("/a/x", "x0", 3)
    story.end(3, {"/a/x": ("x0", stat(3))}, 1, 2)


@plant("I4")
def members_differ_in_the_end(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    story.end(3, {"/a": ("a0", stat(3))}, 1, 2)
    story.finals[1] = story.finals[1]._replace(sessions={1: TIMEOUT_MS})


@plant("I10")
def an_ephemeral_outlives_its_close(story: Story, one: Client, two: Client) -> None:
    one.create("/e", "e0", 3, flags=1)
    one.do("close", "", None, 4)
    two.get("/e", 4, "e0", stat(3, owner=1))


@plant("I10")
def an_ephemeral_outlives_its_session_in_the_end(story: Story, one: Client, two: Client) -> None:
    one.create("/e", "e0", 3, flags=1)
    story.end(3, {"/e": ("e0", stat(3, owner=1))}, 2)


@plant("I10")
def an_ephemeral_vanishes_while_its_session_lives(story: Story, one: Client, two: Client) -> None:
    one.create("/e", "e0", 3, flags=1)
    two.gone("/e", 4, kind="exists")
    one.create("/a", "a0", 5)


@plant("I10")
def ephemerals_of_one_session_vanish_one_after_the_other(story: Story, one: Client, two: Client) -> None:
    one.create("/e", "e0", 3, flags=1)
    one.create("/f", "f0", 4, flags=1)
    two.create("/a", "a0", 5)
    two.gone("/e", 6)
    two.create("/b", "b0", 7)
    two.get("/f", 7, "f0", stat(4, owner=1))
    two.gone("/f", 8)


@plant("I11")
def a_session_is_expired_while_it_talks(story: Story, one: Client, two: Client) -> None:
    for _ in range(8):
        story.pass_time(1000.0)
        one.do("ping", "", None, 2)
    one.step(SessionStep.REFUSED)


@plant("I11")
def an_expired_session_lives_again(story: Story, one: Client, two: Client) -> None:
    story.pass_time(2 * TIMEOUT_MS)
    one.step(SessionStep.REFUSED)
    one.step(SessionStep.RESUMED)


@plant("I11")
def an_expired_session_writes(story: Story, one: Client, two: Client) -> None:
    story.pass_time(2 * TIMEOUT_MS)
    one.step(SessionStep.REFUSED)
    one.create("/a", "a0", 4)


@plant("I12")
def a_wrong_password_is_taken(story: Story, one: Client, two: Client) -> None:
    one.step(SessionStep.RESUMED, right=False)


@plant("I12")
def a_closed_session_is_resumed(story: Story, one: Client, two: Client) -> None:
    one.do("close", "", None, 3)
    one.step(SessionStep.RESUMED)


@plant("I13")
def a_write_takes_effect_behind_the_close(story: Story, one: Client, two: Client) -> None:
    close = one.ask("close")
    write = one.ask("create", "/a", ("a0", 0))
    one.answer(close, 3)
    one.answer(write, 4, ("/a", stat(4)))


@plant("I13")
def an_unknown_write_takes_effect_behind_the_close(story: Story, one: Client, two: Client) -> None:
    one.ask("create", "/a", ("a0", 0))
    one.do("close", "", None, 3)
    two.get("/a", 4, "a0", stat(4))


@plant("I13")
def a_late_write_of_the_old_connection_takes_effect(story: Story, one: Client, two: Client) -> None:
    two.create("/a", "a0", 3)
    one.ask("set", "/a", ("a1", -1))
    one.step(SessionStep.LOST)
    one.step(SessionStep.RESUMED)
    one.create("/b", "b0", 4)
    two.get("/a", 5, "a1", stat(3, 5, 1))


@plant("I13")
def a_closed_session_is_there_in_the_end(story: Story, one: Client, two: Client) -> None:
    one.do("close", "", None, 3)
    story.end(3, {}, 1, 2)


@plant("I14")
def an_event_without_a_watch(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.event(CREATED, "/a", 3)


@plant("I14")
def a_one_shot_watch_fires_twice(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    two.event(CHANGED, "/a", 4)
    one.put("/a", "a2", 5, stat(3, 5, 2))
    two.event(CHANGED, "/a", 5)


@plant("I14")
def an_event_of_a_change_before_the_registration(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    two.event(CREATED, "/a", 3)


@plant("I14")
def an_event_is_lost(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    two.do("ping", "", None, 4)


@plant("I14")
def an_event_of_a_child_is_lost(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.do("children", "/a", True, 3, ((), stat(3)))
    one.create("/a/x", "x0", 4)
    two.do("sync", "/a", None, 4)


@plant("I14")
def an_exists_watch_does_not_tell_of_the_creation(story: Story, one: Client, two: Client) -> None:
    two.gone("/a", 2, kind="exists", watch=True)
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3))


@plant("I14")
def the_second_change_is_told_instead_of_the_first(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    one.put("/a", "a2", 5, stat(3, 5, 2))
    two.event(CHANGED, "/a", 5)


@plant("I14")
def an_event_comes_after_the_data_that_it_announces(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    one.put("/a", "a1", 4, stat(3, 4, 1))
    two.get("/a", 4, "a1", stat(3, 4, 1))
    two.event(CHANGED, "/a", 4)


@plant("I14")
def an_event_tells_what_its_transaction_did_not_do(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3), watch=True)
    one.create("/b", "b0", 4)
    two.event(CHANGED, "/a", 4)


@plant("I14")
def events_are_out_of_order(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.create("/b", "b0", 4)
    two.get("/a", 4, "a0", stat(3), watch=True)
    two.get("/b", 4, "b0", stat(4), watch=True)
    one.put("/a", "a1", 5, stat(3, 5, 1))
    one.put("/b", "b1", 6, stat(4, 6, 1))
    two.event(CHANGED, "/b", 6)
    two.event(CHANGED, "/a", 5)


def come_back(client: Client, relative: int, zxid: int, *events: tuple[int, str]) -> None:
    """Reconnect with a data watch on /a, an exists watch on /x and a child watch on /d."""
    client.step(SessionStep.LOST)
    client.step(SessionStep.RESUMED)
    operation = client.ask("set_watches", "", (relative, ("/a",), ("/x",), ("/d",)))
    for event_type, path in events:
        client.event(event_type, path, -1)
    client.answer(operation, zxid)


def watching(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    one.create("/d", "d0", 4)
    two.get("/a", 4, "a0", stat(3), watch=True)
    two.gone("/x", 4, kind="exists", watch=True)
    two.do("children", "/d", True, 4, ((), stat(4)))


def test_watches_that_are_left_again_tell_what_was_missed_and_go_on() -> None:
    story = Story()
    one, two = story.clients
    watching(story, one, two)
    one.put("/a", "a1", 5, stat(3, 5, 1))
    come_back(two, 4, 5, (CHANGED, "/a"))
    one.create("/x", "x0", 6)
    two.event(CREATED, "/x", 6)
    one.create("/d/c", "c0", 7)
    two.event(CHILDREN, "/d", 7)
    two.do("ping", "", None, 7)
    assert judge(story.history()) == []


def come_back_in_parts(two: Client, *, answered: bool) -> None:
    """Reconnect with two parts, the second of which is perhaps not answered, and once more with one."""
    two.step(SessionStep.LOST)
    two.step(SessionStep.RESUMED)
    first = two.ask("set_watches", "", (4, (), ("/x",), ("/d",)))
    second = two.ask("set_watches", "", (4, ("/a",), (), ()))
    two.answer(first, 5)
    if answered:
        two.event(DELETED, "/a", -1)
        two.answer(second, 5)
    come_back(two, 5, 5, (DELETED, "/a"))


def test_watches_whose_part_was_not_answered_may_tell_what_came_before() -> None:
    story = Story()
    one, two = story.clients
    watching(story, one, two)
    one.do("delete", "/a", -1, 5)
    come_back_in_parts(two, answered=False)
    assert judge(story.history()) == []


@plant("I15")
def what_a_part_has_told_is_told_again(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    one.do("delete", "/a", -1, 5)
    come_back_in_parts(two, answered=True)


@plant("I15")
def a_change_while_away_is_not_told(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    one.put("/a", "a1", 5, stat(3, 5, 1))
    come_back(two, 4, 5)


@plant("I15")
def a_child_while_away_is_not_told(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    one.create("/d/c", "c0", 5)
    come_back(two, 4, 5)


@plant("I15")
def a_change_is_told_that_never_was(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    come_back(two, 4, 4, (CHANGED, "/a"))


@plant("I5")
def a_node_that_exists_while_away_is_not_told(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    one.create("/x", "x0", 5)
    come_back(two, 4, 5)


@plant("I14")
def a_watch_that_was_left_again_does_not_fire(story: Story, one: Client, two: Client) -> None:
    watching(story, one, two)
    come_back(two, 4, 4)
    one.put("/a", "a1", 5, stat(3, 5, 1))
    two.do("ping", "", None, 5)


def test_creation_and_deletion_while_away_are_no_change_for_an_exists_watch() -> None:
    story = Story()
    one, two = story.clients
    watching(story, one, two)
    one.create("/x", "x0", 5)
    one.do("delete", "/x", -1, 6)
    come_back(two, 4, 6)
    assert judge(story.history()) == []


def test_a_silent_session_may_expire_and_takes_its_ephemerals_with_it() -> None:
    story = Story()
    one, two = story.clients
    one.create("/e", "e0", 3, flags=1)
    one.create("/f", "f0", 4, flags=1)
    story.pass_time(2 * TIMEOUT_MS)
    two.gone("/e", 5)
    two.gone("/f", 5)
    one.step(SessionStep.REFUSED)
    story.end(5, {}, 2)
    assert judge(story.history(), story.finals) == []


def test_an_unknown_write_may_take_effect_unseen_and_once() -> None:
    story = Story()
    one, two = story.clients
    one.create("/a", "a0", 3)
    two.ask("set", "/a", ("a1", 0))
    one.do("set", "/a", ("a?", 0), 5, None, BAD_VERSION)
    one.put("/a", "a2", 6, stat(3, 6, 2))
    assert judge(story.history()) == []


def replaced_behind_the_back(story: Story, heir: Client, two: Client) -> None:
    """Session 1 makes an ephemeral that others may have replaced by the heir's, unseen; then /e is there."""
    story.clients[0].create("/e", "e0", 4, flags=1)
    heir.ask("create", "/e", ("e1", 1))
    two.ask("delete", "/e", -1)
    two.step(SessionStep.LOST)
    two.step(SessionStep.RESUMED)
    two.create("/e", "e?", 7, err=NODE_EXISTS)


def test_an_ephemeral_may_have_become_that_of_a_session_that_ends() -> None:
    story = Story(3)
    one, two, heir = story.clients
    replaced_behind_the_back(story, heir, two)
    two.gone("/e", 8, kind="exists")
    one.create("/a", "a0", 9)
    assert judge(story.history()) == []


def test_an_ephemeral_may_have_become_that_of_another_before_its_session_closed() -> None:
    story = Story(3)
    one, two, heir = story.clients
    replaced_behind_the_back(story, heir, two)
    one.do("close", "", None, 8)
    two.do("delete", "/e", -1, 9)
    assert judge(story.history()) == []


@plant("I10")
def an_ephemeral_vanishes_that_nobody_can_have_inherited(story: Story, one: Client, two: Client) -> None:
    replaced_behind_the_back(story, one, two)
    two.gone("/e", 8, kind="exists")
    one.create("/a", "a0", 9)


@plant("I10")
def ephemerals_vanish_one_after_the_other_and_no_stat_tells(story: Story, one: Client, two: Client) -> None:
    one.create("/e", "e0", 3, flags=1)
    one.create("/f", "f0", 4, flags=1)
    two.gone("/e", 6)
    two.create("/f", "f?", 7, err=NODE_EXISTS)
    two.gone("/f", 8)


SEQUENCE = (("set", "/a", ("a1", -1)), ("create", "/a/s-", ("s0", 2)))


def sequence_below(two: Client, zxid: int, *names: str) -> None:
    """An unknown multi is located with zxid 4, where the list has these names."""
    two.ask("multi", "", SEQUENCE)
    below = stat(3, 4, 1, cversion=len(names), children=len(names), pzxid=4)
    two.do("children", "/a", False, zxid, (names, below))


def test_a_located_multi_made_a_sequential_node_that_nobody_read() -> None:
    story = Story()
    one, two = story.clients
    one.create("/a", "a0", 3)
    sequence_below(two, 4, "s-0000000000")
    one.get("/a", 4, "a1", stat(3, 4, 1, cversion=1, children=1, pzxid=4))
    one.do("exists", "/a/s-0000000000", False, 4, stat(4))
    assert judge(story.history()) == []


@plant("I6")
def a_sequential_node_is_there_before_its_multi(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    two.get("/a", 3, "a0", stat(3))
    sequence_below(two, 4)
    one.get("/a", 4, "a1", stat(3, 4, 1))
    one.do("exists", "/a/s-0000000000", False, 5, stat(5))


@plant("I6")
def one_creation_makes_two_sequential_nodes(story: Story, one: Client, two: Client) -> None:
    one.create("/a", "a0", 3)
    sequence_below(two, 4, "s-0000000000", "s-0000000001")
    one.get("/a/s-0000000000", 4, "s0", stat(4))
    one.get("/a/s-0000000001", 4, "s0", stat(4))


@pytest.mark.parametrize(("invariant", "planted"), PLANTS, ids=[each.__name__ for _, each in PLANTS])
def test_a_planted_violation_is_found(invariant: str, planted: Plant) -> None:
    story = Story()
    planted(story, *story.clients)
    assert invariant in story.verdict()
