"""A hundred seeds of the simulation on every change, twice as many by `make test-long`; `make simulate
SEEDS=10000` runs more.

A seed that fails here is repeated with the command that its message names.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.simulation.__main__ import Job, run_jobs
from tests.simulation.faults import FAULTS
from tests.simulation.world import FULL, SHORT, Outcome, Span, run_repeatably

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


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Let the nodes log nothing: that takes half of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seeds_of(start: int) -> list[tuple[str, int, int, Span]]:
    """The seeds of the plan from their first one on, or behind as many as `start` times their number."""
    return [
        (profile, nodes, first + start * count + number, span)
        for profile, nodes, first, count, span in PLAN
        for number in range(count)
    ]


def check(outcomes: list[Outcome]) -> None:
    """Every promise held, and enough has happened."""
    failed = [outcome for outcome in outcomes if not outcome.ok]
    assert not failed, "\n\n".join(
        "\n".join((*outcome.timeline[-40:], outcome.story, f"repeat with: {outcome.command}"))
        for outcome in failed[:3]
    )
    for outcome in outcomes:
        assert outcome.sim_ms >= outcome.span.run_ms_min
        assert outcome.operations >= outcome.span.operations_min
        assert outcome.profile == "calm" or sum(outcome.bit.values()) >= outcome.span.faults_bit_min


def run_mix(parts: Iterable[tuple[int, int, int, Span]]) -> list[Outcome]:
    """Run seeds of the mix on all cores; returns them if every promise held in every one."""
    jobs = [
        Job(seed, "mix", nodes, span)
        for nodes, first, count, span in parts
        for seed in range(first, first + count)
    ]
    outcomes = list(run_jobs(jobs, os.cpu_count() or 1))
    check(outcomes)
    assert len(outcomes) == len(jobs)
    return outcomes


@pytest.mark.timeout(900)
def test_every_promise_holds_in_the_mix_and_every_fault_of_it_bites() -> None:
    """One test for all of the mix, since what bit is counted over all of its seeds."""
    bit: Counter[str] = Counter()
    for outcome in run_mix(MIX):
        bit.update(outcome.bit)
    assert {name for name in FAULTS if not bit[name]} == set(), "faults that never bit"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("nodes", "first", "count", "span"), MORE_OF_THE_MIX)
def test_every_promise_holds_in_more_of_the_mix(nodes: int, first: int, count: int, span: Span) -> None:
    run_mix([(nodes, first, count, span)])


@pytest.mark.parametrize(("profile", "nodes", "seed", "span"), seeds_of(0))
def test_every_promise_holds_in_every_seed(profile: str, nodes: int, seed: int, span: Span) -> None:
    check([run_repeatably(seed, profile, nodes, span)])


@pytest.mark.long
@pytest.mark.parametrize(("profile", "nodes", "seed", "span"), seeds_of(1))
def test_every_promise_holds_in_more_seeds(profile: str, nodes: int, seed: int, span: Span) -> None:
    check([run_repeatably(seed, profile, nodes, span)])
