"""Sessions and ephemerals: planted lives after death, lost ephemerals and early expiries are found."""

from __future__ import annotations

import pytest

from pipeline.checks.ephemerals import ALL, check_ephemerals
from pipeline.checks.history import FAIL, OK, Operation
from tests.unit.pipeline_checks.histories import op

MS = 1_000_000
NAMES = ["s-a", "s-b"]


def own(at_ms: int, operation: str = "own", *, there: bool = True, outcome: str = OK) -> Operation:
    result = there if operation == "own" else None
    return op(operation, None, result, at_ms * MS, (at_ms + 1) * MS, key="s", outcome=outcome)


def look(at_ms: int, *names: str) -> Operation:
    return op("look", None, list(names), at_ms * MS, (at_ms + 1) * MS, key=ALL, process="observer")


CREATED = op("create", [NAMES, 4000], True, 0, MS, key="s")


def problems(*history: Operation, left: tuple[str, ...] = ()) -> tuple[str, ...]:
    ordered = sorted([CREATED, *history], key=lambda each: each.invoked_ns)
    return check_ephemerals(ordered, [{"key": ALL, "left": list(left)}]).problems


def test_a_life_with_a_resumption_and_an_expiry_is_right() -> None:
    history = [
        *(own(10), look(20, *NAMES), own(30, "resume"), own(35, "intrude", outcome=FAIL), look(40, *NAMES)),
        *(own(50), own(5000, "expired"), look(5010), look(5020)),
    ]
    assert problems(*history) == ()


def test_one_that_ended_unseen_is_right() -> None:
    assert problems(own(10), look(20, *NAMES), look(30), own(40, "resume", outcome=FAIL)) == ()


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ((own(10), own(20, there=False)), "its own ephemeral is missing"),
        ((look(20), own(30)), "did not see its ephemerals while it was alive"),
        ((look(20, "s-a"), own(30)), "saw only s-a"),
        ((own(10), own(5000, "expired"), look(5010, *NAMES)), "after it had expired"),
        ((own(10), own(5000, "expired"), own(5010, "resume")), "lived again"),
        ((own(10), own(2000, "expired")), "expired 1991 ms after its client spoke"),
        ((look(10), look(20, *NAMES)), "after observer had not"),
        ((own(10, "intrude"),), "with a wrong password"),
    ],
)
def test_a_planted_violation_is_found(history: tuple[Operation, ...], word: str) -> None:
    found = problems(*history)
    assert len(found) == 1
    assert word in found[0]


def test_an_ephemeral_that_is_left_is_found() -> None:
    assert "left by sessions that must be over: s-a" in problems(left=("s-a",))[0]
