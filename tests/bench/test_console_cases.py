"""The table of the console's heat map; `python -m tests.bench console` alone needs a browser."""

from __future__ import annotations

from tests.bench.console import Drawn, Sizes, table


def test_every_row_of_the_heat_map_has_a_value() -> None:
    rounds = [Drawn(700.0, [16.7] * 99 + [120.0]), Drawn(900.0, [16.7] * 100)]
    lines = table(Sizes(), "1.0", rounds)
    assert lines[1] == "10,000 partitions of 3 replicas, 200 frames, Chromium 1.0"
    rows = [line.split("|")[2].strip() for line in lines if line.startswith("| ")][2:]
    assert rows == ["0.80 s", "16.7 ms", "16.7 ms", "120.0 ms", "1"]
