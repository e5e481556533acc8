"""Makes a state the data directory of a founder of a new cluster.

Decides what is in it: a snapshot of the state, a journal that continues it, and an identity with the new
cluster's id and an incarnation of its own. Everything is written into a folder inside of the data directory
and read back; then the parts take their places, the identity last, so that a node starts with all of it or
refuses. The founders learn each other's incarnations when they found (quorum/raft/core/founding.py).
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotWalk
from quorum.errors import DataDirError, QuorateError, told_by_os
from quorum.node.storage import load_machine
from quorum.platform.os_runtime import OsDisk
from quorum.platform.runtime import Disk
from quorum.raft.core.messages import HardState
from quorum.raft.datadir.identity import (
    IDENTITY_NAME,
    JOURNAL_NAME,
    SNAPSHOTS_NAME,
    Identity,
    journal_directory,
    new_incarnation,
    snapshot_directory,
    write_identity,
)
from quorum.raft.journal.format import Install
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.snapshots.format import SnapshotEncoder, SnapshotHeader, pack_chunk
from quorum.raft.snapshots.snapshots import PartialSnapshot, SnapshotReader, SnapshotStore

_ASIDE: Final = "restoring"
#: names that an empty directory may hold: what a file system makes, and what a killed restore left
_IGNORED: Final = frozenset({"lost+found", _ASIDE})


def check_empty(data_dir: Path) -> None:
    """Refuse a data directory that holds something."""
    try:
        names = sorted({each.name for each in data_dir.iterdir()} - _IGNORED)
    except FileNotFoundError:
        return
    except OSError as error:
        problem = f"node.data_dir {data_dir} cannot be used: {told_by_os(error, 'listing it')}"
        raise DataDirError(problem, "name a folder that is missing or empty") from error
    if names:
        raise DataDirError(
            f"node.data_dir {data_dir} is not empty: it holds {', '.join(names[:5])}",
            "name one that is missing or empty; if these data are not needed move them away first",
        )


def write_data_dir(
    data_dir: Path, machine: StateMachine, cluster: str, node_id: int, cluster_id: str
) -> None:
    """Write a data directory, durable on return; of a failure nothing is left.

    Args:
        data_dir: missing or empty.
        machine: the state, of no cluster (quorum/core/restoring.py).
        cluster: node.cluster of the new node.
        node_id: its node.id.
        cluster_id: of the cluster that is to be founded.
    """
    disk = OsDisk()
    is_new = not data_dir.is_dir()
    aside_path = data_dir / _ASIDE
    aside = str(aside_path)
    placed: list[Path] = []
    try:
        shutil.rmtree(aside_path, ignore_errors=True)
        disk.make_dirs(aside)
        _write_snapshot(disk, aside, machine)
        _write_journal(disk, aside, machine)
        incarnation = new_incarnation(random.SystemRandom())
        write_identity(disk, aside, Identity(cluster, node_id, incarnation, True, cluster_id))
        for name in (SNAPSHOTS_NAME, JOURNAL_NAME, IDENTITY_NAME):
            disk.rename(f"{aside}/{name}", f"{data_dir}/{name}")
            placed.append(data_dir / name)
            disk.fsync_dir(str(data_dir))
        aside_path.rmdir()
    except BaseException as error:
        _remove([*reversed(placed), aside_path, *([data_dir] if is_new else [])])
        if isinstance(error, OSError):
            problem = f"node.data_dir {data_dir} cannot be written: {told_by_os(error, 'writing it')}"
            raise DataDirError(problem, "free or repair the disk, and restore again") from error
        raise


def _remove(paths: Sequence[Path]) -> None:
    """Remove files and folders, as far as the disk lets us: the error before is the one to tell."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _write_snapshot(disk: Disk, folder: str, machine: StateMachine) -> None:
    index, term = machine.applied_index, machine.applied_term
    store = SnapshotStore(disk, snapshot_directory(folder), lambda _line: None)
    partial, encoder = PartialSnapshot(store, index, term, "restored"), SnapshotEncoder()
    partial.append(encoder.begin(SnapshotHeader(index, term, machine.last_stamp_ms, "", b"")))
    walk = SnapshotWalk(machine)
    while (chunk := walk.next_chunk(1 << 16)) is not None:
        partial.append(encoder.chunk(pack_chunk(chunk)))
    walk.close()
    partial.append(encoder.end())
    written = partial.finish()
    file = disk.open(written.path)
    try:
        again, _ = load_machine(SnapshotReader(file), 0)
    finally:
        file.close()
    if (again.state_digest, again.apply_digest) != (machine.state_digest, machine.apply_digest):
        raise QuorateError(f"{written.path} does not hold what was written to it", "repair the disk")


def _write_journal(disk: Disk, folder: str, machine: StateMachine) -> None:
    path = journal_directory(folder)
    Journal.create(disk, path)
    journal, _ = Journal.open(disk, path, JournalOptions(), lambda _line: None)
    try:
        journal.append(
            [HardState(machine.applied_term, 0), Install(machine.applied_index, machine.applied_term)]
        )
    finally:
        journal.close()
