"""Every row of what transactions leave in the change log, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import history


@pytest.mark.timeout(600)
def test_every_row_of_the_history_has_a_value(tmp_path: Path) -> None:
    lines = history.run(tmp_path, history.TINY)
    for row in history.ROWS:
        [shown] = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert "–" not in shown
