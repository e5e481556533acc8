"""Every row of the comparison of controllers, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import controller


@pytest.mark.timeout(600)
def test_every_row_measures_both_channels_and_kafka(tmp_path: Path) -> None:
    lines = controller.run(tmp_path, ["kafka"], controller.TINY)
    rows = controller.Rows(controller.TINY)
    for row in rows.all():
        shown = [line.split(" | ")[1:4] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its medians, once with every round"
        assert "–" not in (shown[0][:2] if row in rows.of_changes() else shown[0]), row.name
