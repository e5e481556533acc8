"""Every row of the quotas' benchmark, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

import pytest

from tests.bench import quotas


@pytest.mark.timeout(600)
def test_every_row_measures_quotas() -> None:
    lines = quotas.run(quotas.TINY)
    for row in quotas.ROWS:
        shown = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its median, once with every round"
        assert "–" not in shown[0]
