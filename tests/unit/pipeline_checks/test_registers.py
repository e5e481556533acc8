"""Linearizability of registers: what is allowed, and planted violations that are found."""

from __future__ import annotations

import random

import pytest

from pipeline.checks.history import FAIL, UNKNOWN, Operation
from pipeline.checks.registers import BAD_VERSION, check_registers, linearizable
from tests.unit.pipeline_checks.histories import op

CREATED = op("create", "a", 0, 0, 1)


def test_operations_that_follow_each_other_have_an_order() -> None:
    history = [CREATED, op("write", "b", 1, 2, 3), op("read", None, [1, "b"], 4, 5)]
    verdict = check_registers(history)
    assert (verdict.state, verdict.judged, verdict.problems) == ("ok", 3, ())


def test_overlapping_operations_may_be_ordered_either_way() -> None:
    slow = op("write", "b", 1, 2, 10, process="p2")
    old, new = op("read", None, [0, "a"], 3, 4), op("read", None, [1, "b"], 5, 6)
    assert linearizable([CREATED, slow, old, new])
    assert not linearizable(
        [CREATED, slow, op("read", None, [1, "b"], 3, 4), op("read", None, [0, "a"], 5, 6)]
    )


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        ([op("write", "b", 1, 2, 3), op("read", None, [0, "a"], 4, 5)], "a stale read"),
        ([op("write", "b", 1, 2, 3), op("read", None, [2, "c"], 4, 5)], "a value that nobody wrote"),
        ([op("write", "b", 1, 2, 3), op("write", "c", 1, 4, 5)], "a version used twice"),
        ([op("write", "b", 2, 2, 3)], "a version left out"),
        ([op("cas", [0, "b"], 1, 2, 3), op("cas", [0, "c"], 2, 4, 5)], "a version check that was skipped"),
        ([op("cas", [0, "b"], BAD_VERSION, 2, 3, outcome=FAIL)], "a refusal without a reason"),
        (
            [op("cas", [0, "b"], "not sent", 2, 3, outcome=FAIL), op("read", None, [1, "b"], 4, 5)],
            "a write that failed for certain and took effect",
        ),
        ([op("write", "b", 1, 2, 3), op("read", None, [0, "a"], 4, 5, process="p2")], "a lost write"),
    ],
)
def test_a_planted_violation_is_found(planted: list[Operation], why: str) -> None:
    verdict = check_registers([CREATED, *planted])
    assert verdict.state == "bad", why
    assert verdict.counter_example


def test_an_unknown_write_may_have_happened_late_or_never() -> None:
    unknown = op("write", "b", None, 2, 0, outcome=UNKNOWN, process="p2")
    assert linearizable([CREATED, unknown, op("read", None, [0, "a"], 3, 4)])
    late = [CREATED, unknown, op("read", None, [0, "a"], 3, 4), op("read", None, [1, "b"], 5, 6)]
    assert linearizable(late)
    # … but not twice, and not back again
    assert not linearizable([*late, op("read", None, [0, "a"], 7, 8)])
    assert not linearizable([*late, op("write", "c", 2, 7, 8), op("read", None, [3, "b"], 9, 10)])


def test_an_unknown_write_does_not_happen_before_it_was_asked() -> None:
    unknown = op("write", "b", None, 5, 0, outcome=UNKNOWN, process="p2")
    assert not linearizable([CREATED, op("read", None, [1, "b"], 3, 4), unknown])


def test_a_search_that_is_too_long_is_undecided() -> None:
    history = [CREATED, *(op("write", f"v{n}", n, 2 * n, 2 * n + 1) for n in range(1, 50))]
    assert check_registers(history, steps_max=10).state == "unknown"


def test_a_counter_example_is_short_and_has_the_culprit() -> None:
    history = [CREATED]
    for version in range(1, 200):
        history += [
            op("write", f"v{version}", version, 10 * version, 10 * version + 3),
            op("read", None, [version, f"v{version}"], 10 * version + 4, 10 * version + 6, process="p2"),
        ]
    stale = op("read", None, [100, "v100"], 1500, 1502, process="p3")
    verdict = check_registers([*history, stale])
    assert verdict.state == "bad"
    assert stale in verdict.counter_example
    assert len(verdict.counter_example) <= 12


def recorded(rng: random.Random, count: int) -> list[Operation]:
    """A history of a correct register: intervals around instants at which each took effect."""
    history = [CREATED]
    version, value = 0, "a"
    for number in range(count):
        at = 100 + 10 * number
        start, end = at - rng.randrange(60), at + rng.randrange(60)
        process = f"p{number % 7}"
        kind = rng.choice(["read", "write", "cas", "stale"])
        outcome = UNKNOWN if rng.random() < 0.1 else "ok"
        if kind == "read":
            history.append(op("read", None, [version, value], start, end, process=process))
        elif kind == "stale":
            history.append(
                op("cas", [version - 1, "x"], BAD_VERSION, start, end, process=process, outcome=FAIL)
            )
        else:
            argument = f"v{number}" if kind == "write" else [version, f"v{number}"]
            result = version + 1 if outcome == "ok" else None
            happened = outcome == "ok" or rng.random() < 0.5
            history.append(op(kind, argument, result, start, end, process=process, outcome=outcome))
            if happened:
                version, value = version + 1, f"v{number}"
    return sorted(history, key=lambda each: each.invoked_ns)


@pytest.mark.parametrize("seed", range(20))
def test_a_long_concurrent_history_is_judged_quickly(seed: int) -> None:
    assert check_registers(recorded(random.Random(seed), 1500)).state == "ok"


@pytest.mark.parametrize("seed", range(20))
def test_one_wrong_read_in_a_long_history_is_found(seed: int) -> None:
    rng = random.Random(seed)
    history = recorded(rng, 300)
    reads = [each for each in history if each.operation == "read" and each.invoked_ns > 2000]
    old = next(each for each in history if each.operation == "read")
    wrong = rng.choice(reads)
    assert old.result != wrong.result
    planted = op("read", None, old.result, wrong.invoked_ns, wrong.completed_ns, process=wrong.process)
    history[history.index(wrong)] = planted
    assert check_registers(history).state == "bad"
