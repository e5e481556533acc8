"""Histories written by hand for the tests of the checkers."""

from __future__ import annotations

from typing import Any

from pipeline.checks.history import NEVER_NS, OK, UNKNOWN, Operation


def op(
    operation: str,
    argument: Any,
    result: Any,
    start: int,
    end: int,
    *,
    process: str = "p1",
    key: str = "k",
    outcome: str = OK,
    zxid: int = 0,
    node: str = "",
) -> Operation:
    """One operation; `end` is ignored where the outcome is unknown."""
    completed = NEVER_NS if outcome == UNKNOWN else end
    return Operation(process, operation, key, argument, outcome, result, zxid, node, start, completed)
