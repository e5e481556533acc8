"""Under which origin incarnation a life's batches go: one that its node id never had, on no disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig
from quorum.node.member import FIRST_INCARNATION_MIN, QuorumMember
from quorum.raft.datadir.identity import Start
from quorum.raft.requests.origins import LEAP_MAX, incarnation_above
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.unit.raft.forced_disks import config_of_three, opened


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return config_of_three(tmp_path)


def ended(member: QuorumMember, disk: MemoryDisk) -> None:
    member.stop()
    member.close()
    disk.kill()


def test_a_founder_that_is_bootstrapped_again_begins_elsewhere_than_its_lost_disk(config: NodeConfig) -> None:
    """The log still holds the batches of that disk, and brings their outcomes to whoever has its numbers."""
    first: list[int] = []
    for seed in (1, 2):
        disk = MemoryDisk(random.Random(seed))
        for start in (Start.BOOTSTRAP, Start.PLAIN):
            QuorumMember(config, ManualRuntime(seed), disk, start=start, on_failure=print).close()
            disk.kill()
            first.append(opened(config, disk).recovered.origin_incarnation)
    assert first[1] == first[0] + 1
    assert first[3] == first[2] + 1
    assert min(first) >= FIRST_INCARNATION_MIN
    assert len({*first}) == len(first)


def test_what_is_above_another_disks_is_not_the_next_that_this_may_use() -> None:
    """Disks that count on by one from the same number would meet."""
    drawn = [incarnation_above(7, random.Random(seed)) for seed in range(100)]
    assert len({*drawn}) == 100
    assert min(drawn) > 7 and max(drawn) <= 7 + LEAP_MAX
