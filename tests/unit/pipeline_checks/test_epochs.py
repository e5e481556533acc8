"""Controller epochs and partition states: planted violations are found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.checks.epochs import check_epochs, check_states
from pipeline.checks.history import UNKNOWN, Operation
from tests.unit.pipeline_checks.histories import op


def elect(process: str, epoch: int, start: int, end: int, outcome: str = "ok") -> Operation:
    return op("elect", 1, epoch, start, end, process=process, key="controller", outcome=outcome)


def lead(process: str, epoch: int, zxid: int, version: int = 1, leader_epoch: int = 1) -> Operation:
    argument = [version - 1, [epoch, 1, leader_epoch, [1, 2]]]
    return op("lead", argument, version, 10 * zxid, 10 * zxid + 1, process=process, key="p-0", zxid=zxid)


def state(version: int, found: list[Any], source: str = "state") -> Operation:
    if source == "state":
        return op("state", None, [version, found], version, version, key="p-0")
    return op(source, [version - 1, found], version, version, version, key="p-0")


def test_a_controller_may_learn_twice_that_it_won() -> None:
    history = [
        elect("a", 1, 0, 1),
        elect("a", 1, 2, 3),
        lead("a", 1, 1),
        elect("b", 2, 20, 21),
        lead("b", 2, 5),
    ]
    assert check_epochs(history).state == "ok"


def test_a_write_after_an_unknown_election_is_allowed() -> None:
    assert check_epochs([elect("a", 1, 0, 1, UNKNOWN), lead("a", 1, 1)]).state == "ok"


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ([elect("a", 1, 0, 1), elect("b", 1, 0, 1)], "was won by a and by b"),
        ([elect("a", 2, 0, 1), elect("b", 1, 2, 3)], "b won epoch 1 after a had won 2"),
        ([elect("a", 1, 0, 1), elect("b", 2, 2, 3), lead("b", 2, 5), lead("a", 1, 6)], "after epoch 2"),
        ([elect("a", 1, 0, 1), lead("b", 1, 5)], "which a won"),
        ([lead("b", 1, 5)], "which nobody won"),
    ],
)
def test_a_planted_violation_of_epochs_is_found(history: list[Operation], word: str) -> None:
    verdict = check_epochs(history)
    assert verdict.state == "bad"
    assert word in verdict.problems[0]


def test_states_of_a_normal_life_are_right() -> None:
    history = [
        state(0, [1, 1, 0, [1, 2, 3]]),
        state(1, [1, 1, 0, [1, 2]], "isr"),
        state(2, [2, 2, 1, [2]], "lead"),
        state(2, [2, 2, 1, [2]]),
        state(5, [2, -1, 3, [2]]),
    ]
    assert check_states(history, {"p-0": [1, 2, 3]}).state == "ok"


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ([state(0, [1, 3, 0, [1, 2]])], "not in the ISR"),
        ([state(0, [1, 1, 0, [1, 9]])], "than the replicas"),
        ([state(0, [2, 1, 0, [1]]), state(1, [1, 1, 1, [1]])], "controller epoch fell"),
        ([state(0, [1, 1, 5, [1]]), state(1, [1, 1, 4, [1]])], "leader epoch fell"),
        ([state(0, [1, 1, 5, [1, 2]]), state(3, [1, 2, 5, [1, 2]])], "leader changed in leader epoch 5"),
        ([state(0, [1, 1, 5, [1]]), state(1, [1, 1, 5, [1]], "lead")], "raised the leader epoch by 0"),
        ([state(0, [1, 1, 5, [1]]), state(1, [1, 1, 6, [1]], "isr")], "raised the leader epoch by 1"),
        ([state(0, [1, 1, 5, [1]]), state(0, [1, 1, 5, [1, 2]])], "version 0 is"),
    ],
)
def test_a_planted_violation_of_states_is_found(history: list[Operation], word: str) -> None:
    verdict = check_states(history, {"p-0": [1, 2, 3]})
    assert verdict.state == "bad"
    assert word in verdict.problems[0]
