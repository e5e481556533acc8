"""Every row of what TLS costs, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import tls


@pytest.mark.timeout(600)
def test_every_row_measures_tls(tmp_path: Path) -> None:
    lines = tls.run(tmp_path, [], tls.TINY)
    for row in tls.TINY.rows():
        shown = [line.split(" | ")[1] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == 2, f"{row.name}: once with its median, once with every round"
        assert "–" not in shown[0]
