"""Virtual time for the shipped shells: while a seed runs, the clocks that they read are the scheduler's."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quorum.platform import pace
from tests.simulation.control_plane.quorum import START_MS
from tests.simulation.scheduler import Scheduler


@contextmanager
def virtual_time(scheduler: Scheduler) -> Iterator[pytest.MonkeyPatch]:
    """Let the clocks be the scheduler's; what else the block replaces ends with it, too."""
    with pytest.MonkeyPatch.context() as patch:
        # Turns are of real time: a seed must not depend on how quick the machine is.
        patch.setattr(pace, "TURN_MS_MAX", 10**9)
        patch.setattr(time, "monotonic_ns", lambda: int(scheduler.now_ms) * 1_000_000)
        patch.setattr(time, "time_ns", lambda: (START_MS + int(scheduler.now_ms)) * 1_000_000)
        drawn = scheduler.rng("uuids")
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=drawn.getrandbits(128), version=4))
        yield patch
