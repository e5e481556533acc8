"""Some seeds of the control plane's world on every change, 2,000 by `make test-long`.

A seed that fails here is repeated with the command that its message names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorum.platform.recording import Recordings
from tests.simulation.control_plane.__main__ import run_all, run_repeatably
from tests.simulation.control_plane.world import Outcome, World, run_seed
from tests.support.replaying import replay_controller, replay_replica

SEEDS = range(1, 28)
GROUPS = 6


def _assert_held(outcomes: list[Outcome]) -> None:
    failed = [outcome for outcome in outcomes if not outcome.ok]
    assert not failed, "\n\n".join(
        "\n".join((*outcome.timeline[-40:], outcome.story, f"repeat with: {outcome.command}"))
        for outcome in failed[:3]
    )


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_promise_holds(group: int) -> None:
    outcomes = [run_repeatably(seed) for seed in SEEDS[group::GROUPS]]
    _assert_held(outcomes)
    for outcome in outcomes:
        assert outcome.counts["acknowledged all"] > 10
        assert sum(outcome.bit.values()) > 5
        assert outcome.counts["terms"] >= 1
        if outcome.counts["transactions begun"]:
            assert outcome.counts["transactions committed"] > 10
    assert sum(outcome.counts["acknowledged all"] for outcome in outcomes) > 1000


def test_some_brokers_are_spoken_to_by_the_queue() -> None:
    by_queue = [len(World(seed).variations.by_queue) for seed in SEEDS]
    assert 5 < sum(by_queue) < 3 * len(SEEDS)


def test_a_transaction_ends_whose_topic_has_fewer_partitions_now() -> None:
    _assert_held([run_seed(183)])


def test_transactions_are_in_some_seeds() -> None:
    assert 5 < sum(World(seed).variations.has_transactions for seed in SEEDS) < 2 * len(SEEDS) // 3


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_promise_holds_in_two_thousand_seeds() -> None:
    _assert_held(list(run_all(range(1, 2001), os.cpu_count() or 1)))


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    here = run_seed(5)
    code = "from tests.simulation.control_plane.world import run_seed; print(run_seed(5).trace)"
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert int(there.stdout) == here.trace
    assert run_seed(5).trace == here.trace
    assert run_seed(6).trace != here.trace


def test_recorded_machines_of_a_seed_replay_to_the_same_effects(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path)
    outcome = run_seed(5, recordings=recordings)
    recordings.close()
    assert outcome.ok
    # Recording changes nothing.
    assert outcome.trace == run_seed(5).trace
    controllers, replicas = sorted(tmp_path.glob("controller-*")), sorted(tmp_path.glob("replica-*"))
    assert sum(map(replay_controller, controllers)) > 100
    assert sum(map(replay_replica, replicas)) > 1000
