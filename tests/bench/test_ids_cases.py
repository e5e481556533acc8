"""Every row of what idle transactional ids cost, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import ids


@pytest.mark.timeout(600)
def test_every_row_of_idle_ids_has_a_value(tmp_path: Path) -> None:
    lines = ids.run(tmp_path, ids.TINY)
    for row in ids.TINY.rows():
        [shown] = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert "–" not in shown
