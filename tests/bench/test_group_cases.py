"""Every row of the comparison of consumer groups, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import groups


@pytest.mark.timeout(600)
def test_every_row_measures_both_systems(tmp_path: Path) -> None:
    lines = groups.run(tmp_path, ["kafka"], groups.TINY)
    for row in groups.Rows(groups.TINY).all():
        shown = [line.split(" | ")[1:3] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its medians, once with every round"
        assert "–" not in (shown[0] if row.compared or row.unit == "" else shown[0][:1]), row.name
