"""Medians, ratios against the better peer, the tables and the chart of a comparison."""

from __future__ import annotations

import pytest

from tests.bench import chart, report
from tests.bench.cases import Row

RATE = Row("writes", "/s", "≥ 5×")
TIME = Row("a write: p50", "ms")
ALONE = Row("linearizable reads", "/s", compared=False)
SYSTEMS = ["Quorate", "ZooKeeper", "etcd"]
SAMPLES = {
    ("writes", "Quorate"): [50_000.0, 10.0, 70_000.0],
    ("writes", "ZooKeeper"): [10_000.0, 9000.0, 11_000.0],
    ("writes", "etcd"): [12_500.0, 12_500.0, 1.0],
    ("a write: p50", "Quorate"): [0.4, 0.3],
    ("a write: p50", "ZooKeeper"): [0.5],
    ("a write: p50", "etcd"): [0.7],
    ("linearizable reads", "etcd"): [17_000.0],
}


def test_the_median_of_the_rounds_counts() -> None:
    of = report.medians(SAMPLES)
    assert of["writes", "Quorate"] == 50_000.0
    assert of["a write: p50", "Quorate"] == pytest.approx(0.35)
    assert report.medians({("writes", "Quorate"): []}) == {}


def test_the_better_peer_is_the_quicker_one_and_never_the_first_system() -> None:
    of = report.medians(SAMPLES)
    assert report.better_peer(RATE, of, SYSTEMS) == 12_500.0
    assert report.better_peer(TIME, of, SYSTEMS) == 0.5
    assert report.better_peer(TIME, of, ["Quorate"]) is None


def test_a_ratio_is_own_over_peer_in_the_unit_of_the_case() -> None:
    of = report.medians(SAMPLES)
    assert report.ratio(RATE, of, SYSTEMS) == pytest.approx(4.0)
    assert report.ratio(TIME, of, SYSTEMS) == pytest.approx(0.7)
    assert report.ratio(RATE, of, ["Quorate", "ZooKeeper"]) == pytest.approx(5.0)


def test_there_is_no_ratio_where_nothing_is_compared() -> None:
    of = report.medians(SAMPLES)
    assert report.ratio(ALONE, of, SYSTEMS) is None
    assert report.ratio(ALONE, {**of, ("linearizable reads", "Quorate"): 1.0}, SYSTEMS) is None
    assert (
        report.ratio(TIME, {("a write: p50", "Quorate"): 1.0, ("a write: p50", "etcd"): 0.0}, SYSTEMS) is None
    )


def test_the_table_shows_medians_ratio_and_goal() -> None:
    lines = report.table([RATE, TIME, ALONE], SYSTEMS, SAMPLES)
    assert lines == [
        "| case | Quorate | ZooKeeper | etcd | Quorate / the better peer | goal |",
        "| --- | --- | --- | --- | --- | --- |",
        "| writes | 50,000/s | 10,000/s | 12,500/s | 4.00× | ≥ 5× |",
        "| a write: p50 | 0.350 ms | 0.500 ms | 0.700 ms | 0.70× | – |",
        "| linearizable reads | – | – | 17,000/s | – | – |",
    ]


def test_a_single_peer_is_named_in_the_header() -> None:
    header = report.table([RATE], SYSTEMS[:2], SAMPLES)[0]
    assert header == "| case | Quorate | ZooKeeper | Quorate / ZooKeeper | goal |"


def test_every_round_is_shown() -> None:
    lines = report.rounds_table([RATE, ALONE], SYSTEMS, SAMPLES)
    assert lines[2] == (
        "| writes | 50,000/s, 10/s, 70,000/s | 10,000/s, 9,000/s, 11,000/s | 12,500/s, 12,500/s, 1/s |"
    )
    assert lines[3] == "| linearizable reads | – | – | 17,000/s |"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12_345.6, "/s", "12,346/s"),
        (0.0421, "s", "0.042 s"),
        (12.41, "s", "12.4 s"),
        (-0.02, "s", "-0.020 s"),
        (612.3, "MB", "612 MB"),
        (43.21, "ms", "43.2 ms"),
        (None, "ms", "–"),
    ],
)
def test_values_show_what_counts(value: float | None, unit: str, text: str) -> None:
    assert report.value_text(value, unit) == text


def test_a_bar_is_longer_the_better_whatever_the_unit() -> None:
    found = report.bars([RATE, TIME, ALONE], SYSTEMS, SAMPLES)
    assert [bar.label for bar in found] == ["writes", "a write: p50"]
    assert [bar.times_faster for bar in found] == pytest.approx([4.0, 1 / 0.7])


def test_the_chart_names_each_bar_and_its_times() -> None:
    picture = chart.draw("Quorate & peers", [chart.Bar("reads < 1 s", 2.5), chart.Bar("writes", 0.5)])
    assert picture.startswith("<svg ")
    assert "Quorate &amp; peers" in picture
    assert "reads &lt; 1 s" in picture
    assert "2.50×" in picture
    assert "0.50×" in picture
