"""Consumer groups: planted second owners, offsets that go back, and records that nobody read are found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.checks.groups import CHECK_OFFSETS, CHECK_OWNERS, CHECK_READ, check_groups
from pipeline.checks.history import FAIL, OK, UNKNOWN, Operation
from tests.unit.pipeline_checks.histories import op


def own(process: str, start: int, end: int) -> Operation:
    return op("own", 1, None, start, end, process=process)


def commit(process: str, offset: int, start: int, outcome: str = OK) -> Operation:
    return op("commit", offset, None, start, start + 1, process=process, outcome=outcome)


def read(process: str, first: int, last: int, start: int) -> Operation:
    return op("read", [first, last], None, start, start, process=process)


def told(offset: int, start: int) -> Operation:
    return op("committed", None, offset, start, start + 1, process="observer")


def bad(history: list[Operation], final: int | None = None) -> dict[str, str]:
    """{check that finds something: its first problem}."""
    history.sort(key=lambda each: each.invoked_ns)
    lines: list[dict[str, Any]] = [] if final is None else [{"key": "k", "committed": final}]
    verdicts = check_groups(history, lines)
    assert [each.check for each in verdicts] == [CHECK_OWNERS, CHECK_OFFSETS, CHECK_READ]
    return {each.check: each.problems[0] for each in verdicts if each.state != "ok"}


def test_a_handover_is_right() -> None:
    history = [own("a", 0, 50), read("a", 0, 4, 5), commit("a", 5, 10)]
    history += [own("b", 60, 90), read("b", 5, 9, 65), told(5, 66), commit("b", 10, 70), told(10, 80)]
    assert bad(history, final=10) == {}


def test_a_member_that_was_cut_off_may_believe_that_it_owns() -> None:
    late = commit("a", 9, 65, outcome=UNKNOWN)
    refused = commit("a", 9, 68, outcome=FAIL)
    history = [own("a", 0, 100), read("a", 0, 9, 5), commit("a", 5, 10), late, refused, own("b", 60, 90)]
    assert bad(history, final=5) == {}


def test_a_commit_after_another_member_got_the_partition_is_found() -> None:
    history = [own("a", 0, 100), read("a", 0, 9, 5), own("b", 60, 90), commit("a", 10, 65)]
    assert "a committed" in bad(history)[CHECK_OWNERS]


def test_a_second_owner_inside_of_a_long_ownership_is_found() -> None:
    history = [own("a", 0, 100), read("a", 0, 9, 1), own("c", 10, 20), own("b", 60, 70), commit("a", 10, 90)]
    assert list(bad(history)) == [CHECK_OWNERS]


@pytest.mark.parametrize(
    "later", [commit("b", 4, 20), told(4, 20), told(-1, 20)], ids=["commit", "told less", "told nothing"]
)
def test_an_offset_that_goes_back_is_found(later: Operation) -> None:
    history = [own("a", 0, 12), read("a", 0, 9, 1), commit("a", 5, 10), own("b", 15, 30), later]
    assert "after 5 was committed" in bad(history)[CHECK_OFFSETS]


def test_answers_that_overlap_a_commit_may_be_of_before() -> None:
    history = [own("a", 0, 50), read("a", 0, 9, 1), commit("a", 5, 2), commit("a", 9, 10), told(5, 10)]
    assert bad(history, final=9) == {}


def test_a_committed_offset_that_is_lost_in_the_end_is_found() -> None:
    history = [own("a", 0, 50), read("a", 0, 9, 1), commit("a", 9, 10)]
    assert "8 is left" in bad(history, final=8)[CHECK_OFFSETS]


@pytest.mark.parametrize("reads", [[(0, 4), (6, 9)], [(1, 9)], []])
def test_a_record_that_was_committed_and_not_read_is_found(reads: list[tuple[int, int]]) -> None:
    history = [own("a", 0, 50), commit("a", 10, 10), *(read("a", *each, start=1) for each in reads)]
    assert "nobody read" in bad(history)[CHECK_READ]
