"""Fencing tokens, the bank and watches: planted violations are found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.checks.bank import check_bank
from pipeline.checks.fencing import check_fencing
from pipeline.checks.history import UNKNOWN, Operation
from pipeline.checks.watches import check_watches
from tests.unit.pipeline_checks.histories import op


def acquire(process: str, token: int) -> Operation:
    return op("acquire", f"lease-{token}", token, token, token + 1, process=process)


def write(process: str, token: int, zxid: int) -> Operation:
    return op("write", token, 0, zxid, zxid + 1, process=process, zxid=zxid)


def test_holders_that_follow_each_other_are_right() -> None:
    history = [acquire("a", 1), write("a", 1, 5), write("a", 1, 6), acquire("b", 7), write("b", 7, 9)]
    assert check_fencing(history).state == "ok"


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ([acquire("a", 1), acquire("b", 7), write("b", 7, 9), write("a", 1, 10)], "after token 7 at 9"),
        ([acquire("a", 1), acquire("b", 1)], "given to a and to b"),
        ([acquire("a", 1), write("b", 1, 5)], "which it never had"),
    ],
)
def test_a_planted_write_of_a_fenced_holder_is_found(history: list[Operation], word: str) -> None:
    verdict = check_fencing(history)
    assert verdict.state == "bad"
    assert word in verdict.problems[0]


def accounts(left: int, right: int, versions: tuple[int, int] = (1, 1)) -> dict[str, list[int]]:
    return {"x": [left, versions[0]], "y": [right, versions[1]]}


def bank(left: int, right: int, end: dict[str, list[int]], *extra: Operation) -> str:
    read = op("read", None, accounts(left, right), 0, 1)
    done = op("transfer", ["x", "y", 5], None, 0, 1)
    return check_bank([read, done, *extra], [{"accounts": end}], 20).state


def test_money_that_moves_is_right() -> None:
    assert bank(5, 15, accounts(5, 15)) == "ok"
    maybe = op("transfer", ["x", "y", 1], None, 0, 0, outcome=UNKNOWN)
    assert bank(5, 15, accounts(4, 16, (2, 2)), maybe) == "ok"


@pytest.mark.parametrize(
    ("left", "right", "end"),
    [
        (5, 10, accounts(5, 15)),
        (-5, 25, accounts(5, 15)),
        (5, 15, accounts(5, 16)),
        (5, 15, accounts(5, 15, (0, 0))),
        (5, 15, accounts(5, 15, (2, 2))),
        (5, 15, accounts(5, 15, (2, 1))),
    ],
)
def test_money_that_comes_or_goes_is_found(left: int, right: int, end: dict[str, list[int]]) -> None:
    assert bank(left, right, end) == "bad"


def seen(operation: str, zxid: int, start: int, end: int) -> Operation:
    return op(operation, None, None, start, end, zxid=zxid)


LIFE = [seen("arm", 5, 0, 1), seen("peek", 5, 2, 3), seen("event", 7, 4, 4), seen("arm", 8, 5, 6)]


def watches(history: list[Operation], last: int) -> Any:
    return check_watches(history, [{"key": "k", "zxid": last}])


def test_a_watch_that_fires_once_before_its_change_is_right() -> None:
    assert watches(LIFE, 8).state == "ok"
    # a reply from before the event that reaches its caller after it, and a session that ended
    assert watches([*LIFE[:1], seen("event", 7, 2, 2), seen("peek", 5, 1, 3)], 7).state == "ok"
    assert watches([*LIFE, seen("gone", 0, 7, 8)], 99).state == "ok"


@pytest.mark.parametrize(
    ("history", "last", "word"),
    [
        ([LIFE[0], seen("event", 5, 2, 2)], 5, "had shown 5 already"),
        ([LIFE[0], seen("event", 6, 2, 2), seen("event", 7, 3, 3)], 7, "without a watch"),
        ([LIFE[0], seen("peek", 6, 2, 3), seen("event", 6, 4, 4)], 6, "before the event"),
        ([LIFE[0], seen("event", 7, 2, 2), seen("peek", 5, 3, 4)], 7, "showed zxid 5 after 7"),
        ([LIFE[0], seen("peek", 5, 2, 3)], 6, "never fired"),
        ([LIFE[0], seen("gone", 0, 2, 3), seen("arm", 6, 4, 5), seen("peek", 5, 6, 7)], 6, "after 6"),
    ],
)
def test_a_planted_violation_of_watches_is_found(history: list[Operation], last: int, word: str) -> None:
    verdict = watches(history, last)
    assert verdict.state == "bad"
    assert word in verdict.problems[0]
