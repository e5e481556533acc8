"""Every row of what idle things cost, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import idle


@pytest.mark.timeout(600)
def test_every_row_of_idle_things_has_a_value(tmp_path: Path) -> None:
    lines = idle.run(tmp_path, idle.TINY)
    for row in idle.TINY.rows():
        [shown] = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert "–" not in shown
