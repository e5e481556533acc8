"""A directory that was forced before: what a disk that is not read makes of another forcing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig
from quorum.errors import DataDirError
from quorum.node.storage import Storage
from quorum.raft.datadir.identity import Start
from tests.support.planted_snapshots import plant_snapshot
from tests.unit.raft.forced_disks import (
    DATA,
    config_of_three,
    member_of_three,
    opened,
    run_alone,
)


class ForcedDisk:
    """The disk of a node that was forced, and what runs on it."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.disk = member_of_three(config)
        self.member = run_alone(config, self.disk, Start.FORCE_NEW_CLUSTER)
        self.machine = self.member.replica.machine

    def end(self) -> None:
        """The process ends."""
        self.member.stop()
        self.member.close()
        self.disk.kill()

    def opened(self, start: Start = Start.PLAIN) -> Storage:
        """Start and end again."""
        try:
            return opened(self.config, self.disk, start)
        finally:
            self.disk.forgive()
            self.disk.kill()


@pytest.fixture
def forced(tmp_path: Path) -> ForcedDisk:
    return ForcedDisk(config_of_three(tmp_path))


def test_a_flag_that_forces_nothing_refuses_nothing(forced: ForcedDisk) -> None:
    """It may be left in a start script; a plain start goes on with the log behind the older snapshot."""
    plant_snapshot(forced.disk, DATA, forced.machine)
    forced.end()
    forced.member = run_alone(forced.config, forced.disk, Start.FORCE_NEW_CLUSTER)
    newest = plant_snapshot(forced.disk, DATA, forced.member.replica.machine)
    forced.end()
    for start in (Start.PLAIN, Start.FORCE_NEW_CLUSTER):
        forced.disk.fail("pread", errno.EIO, path_part=newest.path)
        storage = forced.opened(start)
        assert storage.snapshots.unread is not None
        assert storage.machine.applied_index < newest.log_index


def test_an_only_snapshot_that_is_not_read_is_read_again(forced: ForcedDisk) -> None:
    only = plant_snapshot(forced.disk, DATA, forced.machine)
    forced.end()
    forced.disk.fail("pread", errno.EIO, path_part=only.path)
    with pytest.raises(DataDirError, match="cannot be read: Input/output error") as refused:
        forced.opened()
    assert refused.value.remedy.startswith("see that the disk can be read, and start again; if that is of no")
    assert forced.opened().machine.applied_index == only.log_index
