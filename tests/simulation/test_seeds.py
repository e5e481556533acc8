"""A few hundred seeds of the simulation on every change; `make simulate SEEDS=10000` runs more.

A seed that fails here is repeated with the command that its message names.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.__main__ import run_all
from tests.simulation.faults import FAULTS
from tests.simulation.world import FAULTS_BIT_MIN, OPERATIONS_MIN, RUN_MS_MIN, Outcome

#: (profile, nodes, first seed, how many)
PLAN = (
    ("mix", 3, 27, 24),
    ("mix", 5, 1, 4),
    ("calm", 3, 1, 2),
    ("partitions", 3, 1, 6),
    ("crashes", 3, 1, 6),
    ("pauses", 3, 1, 4),
    ("disks", 3, 1, 6),
    ("members", 3, 1, 6),
    ("snapshots", 3, 1, 6),
)


def run(profile: str, nodes: int, first: int, count: int) -> list[Outcome]:
    """Run seeds on all cores."""
    return list(run_all(range(first, first + count), profile, nodes, os.cpu_count() or 1))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("profile", "nodes", "first", "count"), PLAN)
def test_every_promise_holds_in_every_seed(profile: str, nodes: int, first: int, count: int) -> None:
    outcomes = run(profile, nodes, first, count)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    assert not failed, "\n\n".join(
        "\n".join((*outcome.timeline[-40:], outcome.story, f"repeat with: {outcome.command}"))
        for outcome in failed[:3]
    )
    assert len(outcomes) == count
    for outcome in outcomes:
        assert outcome.sim_ms >= RUN_MS_MIN
        assert outcome.operations >= OPERATIONS_MIN
        assert profile == "calm" or sum(outcome.bit.values()) >= FAULTS_BIT_MIN
    if profile == "mix" and nodes == 3:
        bit: Counter[str] = Counter()
        for outcome in outcomes:
            bit.update(outcome.bit)
        assert {name for name in FAULTS if not bit[name]} == set(), "faults that never bit"
