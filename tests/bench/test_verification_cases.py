"""Every row of what verification costs, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import verification


@pytest.mark.timeout(600)
def test_every_row_of_verification_has_a_value(tmp_path: Path) -> None:
    lines = verification.run(tmp_path, verification.TINY)
    for row in verification.TINY.rows():
        [shown] = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert "–" not in shown
