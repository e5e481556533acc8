"""Warnings about quotas above a soft limit: when, which, and how many."""

from __future__ import annotations

import pytest

from quorum.core.quotas import Limits, Quota
from quorum.node.soft_limits import LOOK_INTERVAL_MS, REPEAT_MS, WARNINGS_PER_LOOK_MAX, SoftLimits

ABOVE = Quota(3, 7, Limits(nodes=2))


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage().split()[0].strip("'") for record in caplog.records]
    caplog.clear()
    return found


def test_a_quota_above_a_soft_limit_is_named_with_its_numbers(caplog: pytest.LogCaptureFixture) -> None:
    quotas = {
        "/a": ABOVE,
        "/b": Quota(1, 7, Limits(data_bytes=6)),
        "/within": Quota(2, 6, Limits(2, 6)),
        "/hard": Quota(3, 7, Limits(nodes_hard=2, data_bytes_hard=6)),
    }
    SoftLimits().look(quotas, 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "'/a' is above a soft limit of its quota: 3 nodes (limit 2), 7 bytes (limit -1); -1 is none",
        "'/b' is above a soft limit of its quota: 1 nodes (limit -1), 7 bytes (limit 6); -1 is none",
    ]


def test_it_is_named_again_after_a_while_or_when_it_was_below(caplog: pytest.LogCaptureFixture) -> None:
    limits = SoftLimits()
    limits.look({"/a": ABOVE}, 0.0)
    assert named(caplog) == ["/a"]
    limits.look({"/b": ABOVE}, LOOK_INTERVAL_MS - 1)
    limits.look({"/a": ABOVE}, LOOK_INTERVAL_MS)
    assert named(caplog) == []
    limits.look({"/a": Quota(1, 1, Limits(nodes=2))}, 2 * LOOK_INTERVAL_MS)
    limits.look({"/a": ABOVE}, 3 * LOOK_INTERVAL_MS)
    assert named(caplog) == ["/a"]
    limits.look({"/a": ABOVE}, 3 * LOOK_INTERVAL_MS + REPEAT_MS)
    assert named(caplog) == ["/a"]


def test_one_look_names_a_bounded_number_and_the_next_the_others(caplog: pytest.LogCaptureFixture) -> None:
    limits = SoftLimits()
    quotas = {f"/{number}": ABOVE for number in range(WARNINGS_PER_LOOK_MAX + 1)}
    limits.look(quotas, 0.0)
    assert len(named(caplog)) == WARNINGS_PER_LOOK_MAX
    limits.look(quotas, LOOK_INTERVAL_MS)
    assert named(caplog) == [f"/{WARNINGS_PER_LOOK_MAX}"]
