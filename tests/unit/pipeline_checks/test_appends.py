"""Sets of appends and the order of a connection: planted violations are found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.checks.appends import check_appends
from pipeline.checks.history import FAIL, UNKNOWN, Operation
from pipeline.checks.sessions import check_session_order
from tests.unit.pipeline_checks.histories import op


def append(number: int, outcome: str = "ok", zxid: int | None = None, key: str = "c1") -> Operation:
    known = (10 + number if zxid is None else zxid) if outcome == "ok" else 0
    return op("append", number, number, number, number + 1, key=key, outcome=outcome, zxid=known)


def there(number: int, zxid: int | None = None, key: str = "c1") -> dict[str, Any]:
    return {"key": key, "argument": number, "zxid": 10 + number if zxid is None else zxid}


def test_unknown_appends_may_be_there_or_not() -> None:
    history = [append(0), append(1, UNKNOWN), append(2, UNKNOWN), append(3, FAIL)]
    assert check_appends(history, [there(0), there(1)]).state == "ok"
    assert check_session_order(history, [there(0), there(1)]).state == "ok"


@pytest.mark.parametrize(
    ("history", "final", "word"),
    [
        ([append(0), append(1)], [there(0)], "lost"),
        ([append(0, FAIL)], [there(0)], "failed for certain"),
        ([append(0)], [there(0), there(0)], "2 times"),
        ([append(0)], [there(0, zxid=99)], "zxid"),
        ([append(0)], [there(0), there(7)], "nobody appended"),
    ],
)
def test_a_planted_violation_of_the_set_is_found(
    history: list[Operation], final: list[dict[str, Any]], word: str
) -> None:
    verdict = check_appends(history, final)
    assert verdict.state == "bad"
    assert word in verdict.problems[0]


@pytest.mark.parametrize(
    ("history", "final", "word"),
    [
        ([append(0), append(1, UNKNOWN), append(2)], [there(0), there(2)], "never reached"),
        ([append(0, zxid=12), append(1, zxid=11)], [there(0, zxid=12), there(1, zxid=11)], "zxids 12 and 11"),
    ],
)
def test_a_planted_violation_of_the_order_is_found(
    history: list[Operation], final: list[dict[str, Any]], word: str
) -> None:
    verdict = check_session_order(history, final)
    assert verdict.state == "bad"
    assert word in verdict.problems[0]
    assert verdict.counter_example


def test_connections_are_judged_each_on_its_own() -> None:
    history = [append(0), append(1, UNKNOWN), append(0, zxid=50, key="c2")]
    assert check_session_order(history, [there(0), there(0, zxid=50, key="c2")]).state == "ok"
