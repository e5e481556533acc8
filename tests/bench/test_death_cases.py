"""Every row of the death of a broker, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import deaths


@pytest.mark.timeout(600)
def test_every_row_measures_a_killed_broker_beside_kafka(tmp_path: Path) -> None:
    lines = deaths.run(tmp_path, ["kafka"], deaths.TINY)
    for row in deaths.TINY.rows():
        shown = [line.split(" | ")[1:3] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its medians, once with every round"
        assert "–" not in (shown[0][:1] if row is deaths.TURNS else shown[0]), row.name
