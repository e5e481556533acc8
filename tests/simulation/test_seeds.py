"""A hundred seeds of the simulation on every change, twice as many by `make test-long`; `make simulate
SEEDS=10000` runs more.

A seed that fails here is repeated with the command that its message names.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.__main__ import run_all
from tests.simulation.faults import FAULTS
from tests.simulation.world import FULL, SHORT, Outcome, Span

#: (nodes, first seed, how many, how long), of all faults together
MIX = (
    (3, 132, 21, FULL),
    (3, 1001, 24, SHORT),
    (3, 1089, 1, SHORT),
    (3, 1100, 1, SHORT),
    (5, 1, 3, SHORT),
)
MORE_OF_THE_MIX = (
    (3, 1025, 48, SHORT),
    (5, 4, 3, SHORT),
)
#: (profile, nodes, first seed, how many, how long)
PLAN = (
    ("calm", 3, 1, 1, SHORT),
    ("partitions", 3, 1, 6, SHORT),
    ("crashes", 3, 1, 7, SHORT),
    ("pauses", 3, 1, 5, SHORT),
    ("disks", 3, 1, 7, SHORT),
    ("hangs", 3, 1, 4, SHORT),
    ("hangs", 5, 1, 1, SHORT),
    ("members", 3, 1, 7, SHORT),
    ("snapshots", 3, 1, 7, SHORT),
    ("compaction", 3, 1, 4, SHORT),
    ("forced", 3, 1, 4, SHORT),
    ("founders", 3, 1, 6, SHORT),
    ("founders", 5, 1, 1, SHORT),
    ("updates", 3, 1, 5, SHORT),
    ("distant", 3, 1, 3, SHORT),
    ("distant", 5, 1, 2, SHORT),
)
MORE = tuple(
    pytest.param(profile, nodes, first + count, count, span, marks=pytest.mark.long)
    for profile, nodes, first, count, span in PLAN
)


def run(profile: str, nodes: int, first: int, count: int, span: Span) -> list[Outcome]:
    """Run seeds on all cores; returns them if every promise held in every one."""
    outcomes = list(run_all(range(first, first + count), profile, nodes, os.cpu_count() or 1, span))
    failed = [outcome for outcome in outcomes if not outcome.ok]
    assert not failed, "\n\n".join(
        "\n".join((*outcome.timeline[-40:], outcome.story, f"repeat with: {outcome.command}"))
        for outcome in failed[:3]
    )
    assert len(outcomes) == count
    for outcome in outcomes:
        assert outcome.sim_ms >= span.run_ms_min
        assert outcome.operations >= span.operations_min
        assert profile == "calm" or sum(outcome.bit.values()) >= span.faults_bit_min
    return outcomes


@pytest.mark.timeout(900)
def test_every_promise_holds_in_the_mix_and_every_fault_of_it_bites() -> None:
    """One test for all of the mix, since what bit is counted over all of its seeds."""
    bit: Counter[str] = Counter()
    for nodes, first, count, span in MIX:
        for outcome in run("mix", nodes, first, count, span):
            bit.update(outcome.bit)
    assert {name for name in FAULTS if not bit[name]} == set(), "faults that never bit"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("nodes", "first", "count", "span"), MORE_OF_THE_MIX)
def test_every_promise_holds_in_more_of_the_mix(nodes: int, first: int, count: int, span: Span) -> None:
    run("mix", nodes, first, count, span)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("profile", "nodes", "first", "count", "span"), PLAN + MORE)
def test_every_promise_holds_in_every_seed(
    profile: str, nodes: int, first: int, count: int, span: Span
) -> None:
    run(profile, nodes, first, count, span)
