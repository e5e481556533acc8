"""Patterns of topics: what RE2 takes, what it refuses, and a broker without it."""

from __future__ import annotations

import importlib.util

import pytest

from broker.commands.broker import require_extra
from broker.groups.errors import GroupRefusedError
from broker.groups.topics import PATTERN_LENGTH_MAX, matcher
from controller.wire.codes import ErrorCode
from quorum.errors import UsageError


def test_a_pattern_matches_whole_names() -> None:
    matches = matcher("orders-(eu|us)|\\pL+\\.[0-9]{2}")
    assert [name for name in ("orders-eu", "orders-eu2", "my-orders-eu", "log.07") if matches(name)] == [
        "orders-eu",
        "log.07",
    ]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing )"),
        ("a(?=b)", "invalid perl operator"),
        ("(a)\\1", "invalid escape sequence"),
        ("a" * (PATTERN_LENGTH_MAX + 1), f"more than {PATTERN_LENGTH_MAX} characters"),
        ("(x{900}){900}", "invalid repetition size"),
    ],
)
def test_what_re2_does_not_take_is_an_invalid_pattern(pattern: str, reason: str) -> None:
    with pytest.raises(GroupRefusedError) as caught:
        matcher(pattern)
    assert caught.value.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"{pattern[:64]!r} is no regular expression of RE2's: {reason}" in caught.value.message


def test_a_broker_without_the_library_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "re2" else find(name))
    with pytest.raises(UsageError, match="google-re2 is not installed") as caught:
        require_extra()
    assert "quorate[brokers]" in str(caught.value)
