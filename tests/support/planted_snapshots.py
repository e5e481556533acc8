"""Snapshot files without a node that takes them."""

from __future__ import annotations

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotWalk
from quorum.raft.datadir.identity import snapshot_directory
from quorum.raft.snapshots.format import SnapshotEncoder, SnapshotHeader, pack_chunk
from quorum.raft.snapshots.snapshots import SnapshotFile, SnapshotStore
from tests.support.memory_disk import MemoryDisk


def plant_snapshot(disk: MemoryDisk, data_dir: str, machine: StateMachine) -> SnapshotFile:
    """Write the snapshot that a node would take of this state, durably and under its name."""
    index, term = machine.applied_index, machine.applied_term
    header = SnapshotHeader(index, term, machine.last_stamp_ms, machine.cluster_id, machine.configuration)
    encoder = SnapshotEncoder()
    parts = encoder.begin(header)
    walk = SnapshotWalk(machine)
    while (chunk := walk.next_chunk(1000)) is not None:
        parts += encoder.chunk(pack_chunk(chunk))
    path = f"{snapshot_directory(data_dir)}/{index:020d}-{term:020d}.snapshot"
    disk.plant(path, b"".join([*parts, *encoder.end()]))
    files = SnapshotStore(disk, snapshot_directory(data_dir), print).files()
    return next(file for file in files if file.path == path)
