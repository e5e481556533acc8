"""Every row of what compaction takes, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import cleaning


@pytest.mark.timeout(600)
def test_every_row_measures_compaction(tmp_path: Path) -> None:
    lines = cleaning.run(tmp_path, [], cleaning.TINY)
    for row in cleaning.TINY.rows():
        shown = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its median, once with every round"
        assert "–" not in shown[0]
