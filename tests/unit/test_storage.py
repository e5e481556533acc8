"""What a start makes of a data directory: snapshots and journal together."""

from __future__ import annotations

import errno
import logging
import random
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig, node_config
from quorum.core.machine import StateMachine
from quorum.errors import DataDirError
from quorum.node.storage import Storage, open_storage
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.datadir.founding import founding_payload, parse_founding
from quorum.raft.datadir.identity import Start, journal_directory, snapshot_directory
from quorum.raft.journal.journal import Journal, JournalOptions
from tests.support.memory_disk import MemoryDisk
from tests.support.planted_snapshots import plant_snapshot

DATA = "/srv/node-1"


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    secret = tmp_path / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    node = {"id": 1, "cluster": "local", "data_dir": DATA}
    security = {"peer_secret_file": str(secret)}
    return node_config({"node": node, "members": {"1": "h:1", "2": "h:2"}, "security": security}, tmp_path)


def opened(config: NodeConfig, disk: MemoryDisk, start: Start = Start.PLAIN) -> Storage:
    storage = open_storage(config.node, config.raft, disk, start, random.Random(0))
    storage.close()
    return storage


def snapshot_names(disk: MemoryDisk) -> list[str]:
    """What is in the folder of snapshots: (log index, ending) as text."""
    names = disk.listdir(snapshot_directory(DATA))
    return [f"{int(name[:20])}{name[41:]}" for name in sorted(names)]


def founded(config: NodeConfig) -> tuple[MemoryDisk, StateMachine]:
    """A disk of a cluster with three entries, and a state that has applied the first."""
    disk = MemoryDisk(random.Random(0))
    identity = opened(config, disk, Start.BOOTSTRAP).identity
    voters = {1: Member("h:1", identity.incarnation), 2: Member("h:2", "2" * 32)}
    payload = founding_payload(Configuration("", voters, {}, ()), random.Random(1))
    journal, _ = Journal.open(disk, journal_directory(DATA), JournalOptions(), logging.warning)
    entries = [Entry(1, 1, EntryKind.FOUND, 1000, payload)]
    entries += [Entry(index, 1, EntryKind.NOOP, 2000, b"") for index in (2, 3)]
    journal.append([HardState(1, 2), *entries])
    journal.close()
    machine = StateMachine(1 << 20)
    founding = parse_founding(payload)
    cluster_id = founding.configuration.cluster_id
    machine.apply_found(1, 1, 1000, cluster_id, founding.session_key, payload)
    return disk, machine


def test_a_snapshot_that_one_start_cannot_read_is_there_for_the_next(config: NodeConfig) -> None:
    """The log leads to it only: what falls back to the one before and is refused must leave it its name."""
    disk, machine = founded(config)
    plant_snapshot(disk, DATA, machine)
    for index in range(2, 11):
        machine.apply_noop(index, 1, 2000)
    installed = plant_snapshot(disk, DATA, machine)
    assert opened(config, disk).recovered.first_index == 11
    disk.fail("pread", errno.EIO, path_part=installed.path)
    with pytest.raises(DataDirError) as refused:
        opened(config, disk)
    assert f"because {installed.path} is damaged" in refused.value.message
    assert "cannot be read: Input/output error" in refused.value.message
    assert refused.value.remedy.startswith("see that the disk can be read, and start again; if that is of no")
    assert snapshot_names(disk) == ["1.snapshot", "10.snapshot"]
    storage = opened(config, disk)
    assert storage.machine.applied_index == 10


def test_a_broken_snapshot_is_set_aside_once_the_start_works_without(config: NodeConfig) -> None:
    disk, machine = founded(config)
    plant_snapshot(disk, DATA, machine)
    machine.apply_noop(2, 1, 2000)
    disk.flip_bit(plant_snapshot(disk, DATA, machine).path, 8 * 200)
    storage = opened(config, disk)
    assert storage.machine.applied_index == 1
    assert storage.recovered.last_index == 3
    assert snapshot_names(disk) == ["1.snapshot", "2.snapshot.damaged"]
