"""A directory that was forced before: what a loss, or a disk that is not read, makes of another forcing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig
from quorum.errors import DataDirError
from quorum.node.storage import Storage
from quorum.raft.datadir.forcing import FORCED_TERM_JUMP
from quorum.raft.datadir.identity import Start, WrongIdentityError, journal_directory
from quorum.raft.journal.format import SEGMENT_SUFFIX
from tests.support.planted_snapshots import plant_snapshot
from tests.unit.raft.forced_disks import (
    DATA,
    MARKER,
    config_of_three,
    latest,
    member_of_three,
    opened,
    run_alone,
)


class ForcedDisk:
    """The disk of a node that was forced, and its journal as it was before that."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.disk = member_of_three(config)
        folder = journal_directory(DATA)
        (name,) = [each for each in self.disk.listdir(folder) if each.endswith(SEGMENT_SUFFIX)]
        self._segment = f"{folder}/{name}"
        self._before = self.disk.content(self._segment).rstrip(b"\0")
        self.member = run_alone(config, self.disk, Start.FORCE_NEW_CLUSTER)
        self.machine = self.member.replica.machine

    def end(self) -> None:
        """The process ends."""
        self.member.stop()
        self.member.close()
        self.disk.kill()

    def lose_end(self) -> None:
        """The end of the journal is gone, back to before it was forced."""
        self.disk.plant(self._segment, self._before)

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


def test_a_loss_that_takes_the_forced_start_along_is_not_forced_over(forced: ForcedDisk) -> None:
    """Another cluster from the same entry on would give out the zxids of the one that is lost."""
    cluster_id = forced.machine.cluster_id
    forced.end()
    forced.lose_end()
    marker = forced.disk.content(MARKER)
    for _ in range(2):
        with pytest.raises(WrongIdentityError, match="would give zxids out a second time") as refused:
            forced.opened(Start.FORCE_NEW_CLUSTER)
        assert cluster_id in refused.value.message
        assert forced.disk.content(MARKER) == marker
    forced.disk.unlink(MARKER)
    with pytest.raises(WrongIdentityError, match="would give zxids out a second time"):
        forced.opened(Start.FORCE_NEW_CLUSTER)


def test_a_snapshot_that_outlived_the_loss_leads_beyond_its_own_term(forced: ForcedDisk) -> None:
    zxid, term, index = forced.machine.zxid, forced.machine.applied_term, forced.machine.applied_index
    plant_snapshot(forced.disk, DATA, forced.machine)
    forced.end()
    forced.lose_end()
    storage = forced.opened(Start.FORCE_NEW_CLUSTER)
    assert storage.machine.zxid == zxid
    assert storage.recovered.hard_state.term == term + FORCED_TERM_JUMP
    assert storage.recovered.last_index == index + 1
    assert latest(storage).cluster_id == storage.identity.cluster_id != forced.machine.cluster_id


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
