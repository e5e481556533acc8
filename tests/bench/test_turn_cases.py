"""Every row of the longest turns, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import turns


@pytest.mark.timeout(600)
def test_every_row_of_turns_has_a_value(tmp_path: Path) -> None:
    lines = turns.run(tmp_path, turns.TINY)
    rows = [line for line in lines if line.startswith("| ")][2:]
    assert len(rows) == 7
    assert lines[-1].startswith("After the kill each was ready after ")
