"""Records: planted losses, repetitions, disorder and misled readers are found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.checks.history import FAIL, UNKNOWN, Operation
from pipeline.checks.records import check_records
from tests.unit.pipeline_checks.histories import op


def produced(value: str, offset: int | None, outcome: str = "ok") -> Operation:
    return op("produce", value, offset, 0, 1, outcome=outcome, key="t-0")


def consumed(offset: int, value: str) -> Operation:
    return op("consume", offset, value, 0, 1, key="t-0", process="r")


def log(*values: str) -> list[dict[str, Any]]:
    return [{"key": "t-0", "argument": offset, "value": value} for offset, value in enumerate(values)]


def states(operations: list[Operation], final: list[dict[str, Any]]) -> list[str]:
    """States of: stored once, in order, read as they are; unknown where there is nothing to judge."""
    return [each.state for each in check_records(operations, final)]


def test_a_log_of_two_producers_is_right() -> None:
    operations = [produced("a/0", 0), produced("b/0", 1), produced("a/1", None, UNKNOWN), consumed(1, "b/0")]
    assert states(operations, log("a/0", "b/0", "a/1")) == ["ok", "ok", "ok"]
    assert states(operations, log("a/0", "b/0")) == ["ok", "ok", "ok"]


def test_an_acknowledgement_without_an_offset_counts() -> None:
    assert states([produced("a/0", None)], log("a/0")) == ["ok", "ok", "unknown"]
    assert states([produced("a/0", None)], log()) == ["bad", "unknown", "unknown"]


@pytest.mark.parametrize(
    ("operations", "final", "found"),
    [
        ([produced("a/0", 0)], log(), ["bad", "unknown", "unknown"]),
        ([produced("a/0", 0)], log("a/0", "a/0"), ["bad", "bad", "unknown"]),
        ([produced("a/0", None, UNKNOWN)], log("a/0", "a/0"), ["bad", "bad", "unknown"]),
        ([produced("a/0", 1), produced("b/0", 0)], log("a/0", "b/0"), ["bad", "ok", "unknown"]),
        ([produced("a/0", None, FAIL)], log("a/0"), ["bad", "ok", "unknown"]),
        ([], log("a/0"), ["bad", "ok", "unknown"]),
        ([produced("a/1", 0), produced("a/0", 1)], log("a/1", "a/0"), ["ok", "bad", "unknown"]),
        ([produced("a/0", 0), consumed(0, "b/0")], log("a/0"), ["ok", "ok", "bad"]),
        ([produced("a/0", 0), consumed(1, "a/1")], log("a/0"), ["ok", "ok", "bad"]),
    ],
)
def test_a_planted_violation_is_found(
    operations: list[Operation], final: list[dict[str, Any]], found: list[str]
) -> None:
    assert states(operations, final) == found


def test_producers_are_ordered_each_on_its_own() -> None:
    operations = [produced("a/5", 0), produced("b/0", 1), produced("a/6", 2)]
    assert states(operations, log("a/5", "b/0", "a/6")) == ["ok", "ok", "unknown"]
