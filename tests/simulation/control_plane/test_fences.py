"""Each fence of the control plane, switched off, is found by the world; with it the same seed holds.

The seeds that find a fence quickly are recorded here; `make test-long` searches from the first seed on.
"""

from __future__ import annotations

import pytest

from tests.simulation.control_plane.fences_off import FENCES
from tests.simulation.control_plane.world import run_seed

SEEDS_MAX = 2000
#: {fence: (a seed that finds it, how the story of what broke begins)}
FOUND: dict[str, tuple[int, str]] = {}


def test_every_fence_has_a_seed() -> None:
    assert FOUND.keys() == FENCES.keys()


@pytest.mark.parametrize("fence", FOUND)
def test_a_fence_that_is_switched_off_is_found(fence: str) -> None:
    seed, promise = FOUND[fence]
    assert run_seed(seed, without=fence).story.startswith(promise)
    assert run_seed(seed).story == ""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fence", FENCES)
def test_a_fence_that_is_switched_off_is_found_within_two_thousand_seeds(fence: str) -> None:
    assert any(not run_seed(seed, without=fence).ok for seed in range(1, SEEDS_MAX + 1))
