"""Every row of what a lone record costs, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import lone, metadata_rows


@pytest.mark.timeout(600)
def test_every_row_measures_a_lone_record(tmp_path: Path) -> None:
    lines = lone.run(tmp_path, [], lone.TINY)
    answers = metadata_rows.rows_of(max(lone.TINY.idle))
    for row in (*lone.TINY.rows().values(), *answers):
        shown = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its median, once with every round"
        assert "–" not in shown[0]
