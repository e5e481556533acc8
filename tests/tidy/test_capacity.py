"""Numbers of docs/operate/capacity.md that name a setting are its default."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from broker.config.broker import SECTIONS as BROKER_SECTIONS
from quorum.config.node import SECTIONS as NODE_SECTIONS
from tests.tidy.rules import REPOSITORY

PAGE = REPOSITORY / "docs/operate/capacity.md"
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_SETTING = re.compile(r"`(\w+)\.(\w+)`")


def defaults() -> dict[tuple[str, str], list[Any]]:
    """Return {(section, key): the defaults that a node and a broker have}."""
    found: dict[tuple[str, str], list[Any]] = {}
    for section, declared in [*NODE_SECTIONS.items(), *BROKER_SECTIONS.items()]:
        for field in dataclasses.fields(declared) if declared is not None else ():
            found.setdefault((section, field.name), []).append(field.default)
    return found


def written(value: int) -> set[str]:
    """Return how a page may write a number, of bytes or milliseconds as well."""
    units = {"MiB": 2**20, "GiB": 2**30, "days": 86_400_000, "s": 1000}
    whole = {f"{value // size:,} {unit}" for unit, size in units.items() if value and value % size == 0}
    # "4 to 40 s"
    return {f"{value:,}", *whole, f"{value // 1000} to"}


def wrong_numbers(text: str) -> list[str]:
    """Return settings whose row shows another number than their default; formulas show none."""
    known = defaults()
    return [
        f"{section}.{key}"
        for row in _ROW.findall(text)
        for section, key in _SETTING.findall(row)
        if re.search(r"\d", _SETTING.sub("", row)) and " × " not in row
        if not any(
            re.search(rf"(?<![\d,]){re.escape(each)}", row)
            for value in known[section, key]
            for each in written(value)
        )
    ]


def test_numbers_beside_settings_are_their_defaults() -> None:
    text = PAGE.read_text("utf-8")
    assert len(_SETTING.findall(text)) > 20
    assert wrong_numbers(text) == []


def test_another_number_is_found() -> None:
    rows = ["| watches | 100,000 | `limits.watches_per_connection_max` |"]
    rows += ["| watches | 1,100,000 | `limits.watches_per_connection_max` |"]
    rows += ["| log | 65 MiB | `raft.log_cache_bytes_max` |"]
    assert wrong_numbers("\n".join(rows)) == ["limits.watches_per_connection_max", "raft.log_cache_bytes_max"]
