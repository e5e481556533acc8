"""The simulation finds our own rules when they are switched off; `make simulate-defects` tries all of them.

Which seed finds what depends on every draw of the world. Where a change of the world moves that, some of the
few seeds that are tried here find it still; if none does, the long search says what has become blind.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from quorum.raft.core import following
from tests.simulation.rules.catalogue import RULES, changes_of
from tests.simulation.rules.edits import Edit, EditError, Setting, changed_code, find, made
from tests.simulation.rules.page import PAGE, WITHIN, read_tables
from tests.simulation.rules.search import hunt
from tests.simulation.world import SHORT, World

SEEDS = range(1, 9)
#: those that a seed finds within a simulated second or a few, by all kinds of witnesses
TELLING = (
    "durable-before-acknowledged",
    "a-leader-counts-its-own-fsync",
    "apply-only-what-is-durable-here",
    "delete-only-from-a-conflict",
    "terms-and-votes-before-messages",
    "one-vote-per-term",
    "pre-vote",
    "check-quorum",
    "no-vote-while-a-leader-is-heard",
    "fsync-before-the-callback",
    "a-segment-has-its-name-durably",
    "a-snapshot-is-synced-before-its-name",
    "a-cluster-is-founded-by-all",
    "nobody-founds-beside-a-log",
)
#: these run only where a disk is damaged, or a little rarer still
RARE = {
    "quorum.raft.journal.recovery:_SegmentReader._judge",
    "quorum.raft.core.receiving:handle_failed",
    "quorum.raft.snapshots.snapshots:SnapshotStore.load_newest",
    "quorum.raft.journal.journal:Journal._cut_back",
}


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Let the nodes log nothing: that takes half of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


HANDLE_APPEND = "quorum.raft.core.following:handle_append"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TELLING)
def test_a_rule_that_is_switched_off_is_found(name: str) -> None:
    result = hunt(RULES[name].changes, SEEDS, RULES[name].profile, SHORT)
    assert result.finding is not None, f"look with: python -m tests.simulation.rules --rule {name}"


@pytest.mark.parametrize("name", RULES)
def test_every_rule_can_be_switched_off_and_on_again(name: str) -> None:
    rule = RULES[name]
    for changes in (rule.changes, changes_of(rule)):
        functions = {edit.target: find(edit.target)[1] for edit in changes if isinstance(edit, Edit)}
        before = {target: function.__code__ for target, function in functions.items()}
        with made(changes):
            for target, function in functions.items():
                assert function.__code__.co_code != before[target].co_code or _differs(
                    function.__code__, before[target]
                )
        assert {target: function.__code__ for target, function in functions.items()} == before
    assert rule.says
    assert rule.source
    assert bool(rule.guard) or not rule.beside


def _differs(one: CodeType, other: CodeType) -> bool:
    return (one.co_consts, one.co_names) != (other.co_consts, other.co_names)


def test_whatever_a_rule_changes_runs_in_ordinary_seeds() -> None:
    wanted = {
        find(change.target)[1].__code__: change.target
        for rule in RULES.values()
        if not rule.guard  # what a guard waits for is rare by its nature
        for change in rule.changes
        if isinstance(change, Edit) and change.target not in RARE
    }
    for seed in SEEDS:
        with _watched(wanted):
            World(seed).run()
        if not wanted:
            break
    assert not wanted, f"never ran: {sorted(wanted.values())}"


@contextmanager
def _watched(wanted: dict[CodeType, str]) -> Iterator[None]:
    """Take code that runs out of what is wanted."""

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            wanted.pop(frame.f_code, None)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize(
    "change",
    [
        Edit(HANDLE_APPEND, "this stands nowhere", "pass"),
        Edit(HANDLE_APPEND, "append", "appended"),
        Edit(HANDLE_APPEND, "if fresh:", "if fresh :"),
        Edit("quorum.raft.core.following:no_such_function", "pass", "pass"),
        Edit("quorum.raft.core.following:Entry", "pass", "pass"),
        Setting("quorum.raft.snapshots.snapshots:NO_SUCH_NAME", 1),
        Setting("quorum.raft.snapshots.snapshots:KEPT", 2),
    ],
)
def test_a_change_that_fits_no_more_is_refused(change: Edit | Setting) -> None:
    before = following.handle_append.__code__
    with pytest.raises(EditError), made([change]):
        pytest.fail("it was made")
    assert following.handle_append.__code__ is before


def test_changes_are_undone_whatever_happens() -> None:
    before = following.durable_match.__code__
    inside: list[object] = []

    def fail() -> None:
        with made(RULES["durable-before-acknowledged"].changes):
            inside.append(following.durable_match.__code__)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside != [before]
    assert following.durable_match.__code__ is before


def test_white_space_does_not_matter_and_indentation_is_kept() -> None:
    edit = Edit(HANDLE_APPEND, "node.log.truncate(first)\nnode.history.truncate(first)", "first\nfirst")
    assert changed_code(HANDLE_APPEND, [edit]).co_names != following.handle_append.__code__.co_names


def test_the_page_has_a_row_for_every_rule() -> None:
    rows, guards = read_tables(PAGE.read_text())
    expected = {
        rule.name: (rule.beside, rule.source, rule.profile)
        for rule in RULES.values()
        if rule.beside or not rule.guard
    }
    assert {row.name: (row.beside, row.source, row.profile) for row in rows} == expected
    assert len(rows) == len(expected)
    assert {row.within for row in rows} <= set(map(str, WITHIN))
    alone = {rule.name: rule.guard for rule in RULES.values() if rule.guard and not rule.beside}
    assert guards == alone
