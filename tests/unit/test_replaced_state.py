"""What a node keeps of a state that an installed snapshot replaces: nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum.core.tree import Tree
from quorum.node.storage import load_machine
from quorum.raft.datadir.identity import Start
from quorum.raft.snapshots.snapshots import SnapshotReader
from tests.support.planted_snapshots import plant_snapshot
from tests.unit.raft.forced_disks import DATA, config_of_three, member_of_three, run_alone


@pytest.fixture
def no_cycle_collector() -> Iterator[None]:
    """A node freezes what its start made, and collects rarely (commands/serve.py)."""
    gc.disable()
    yield
    gc.enable()


def trees() -> int:
    return sum(isinstance(each, Tree) for each in gc.get_objects())


@pytest.mark.usefixtures("no_cycle_collector")
def test_a_state_that_another_one_replaces_is_gone_at_once(tmp_path: Path) -> None:
    config = config_of_three(tmp_path)
    disk = member_of_three(config)
    member = run_alone(config, disk, Start.FORCE_NEW_CLUSTER)
    assert not member.storage.recovered.tail, "the core holds the log"
    file = disk.open(plant_snapshot(disk, DATA, member.replica.machine).path)
    machine, mark = load_machine(SnapshotReader(file), 1 << 20)
    before = trees()
    member._install(machine, mark)
    assert member.replica.machine is machine
    assert trees() == before - 1
    member.stop()
    member.close()
