"""Opens a node's data directory: identity, snapshots, journal, and the state that they add up to.

Decides the order in which they are opened and that they must fit together: a state is the newest good
snapshot plus the log after it, and a node that cannot reach what it once acknowledged refuses to start.
Which bytes are good is decided by the modules that wrote them. Everything here is hard state on disk; what
is returned is its image in memory.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from quorum.config.node import NodeSection, RaftSection
from quorum.core.feature_levels import FEATURE_LEVEL
from quorum.core.machine import StateMachine
from quorum.core.snapshot_loader import SnapshotFormatError, SnapshotLayoutError, SnapshotLoader
from quorum.errors import DataDirError, refused_by_disk, told_by_os
from quorum.node.levels import check_data_dir
from quorum.platform.runtime import DirectoryLock, Disk
from quorum.raft.core.configuration import parse_configuration
from quorum.raft.core.errors import ConfigurationError
from quorum.raft.core.messages import SnapshotMark
from quorum.raft.datadir.forcing import (
    force_new_cluster,
    latest_configuration,
    settle_cluster_id,
)
from quorum.raft.datadir.identity import (
    Identity,
    Start,
    journal_directory,
    open_data_dir,
    snapshot_directory,
    store_cluster_id,
    store_feature_level,
)
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.journal.start import Recovered
from quorum.raft.snapshots.format import SnapshotDamagedError, SnapshotReader, SnapshotVersionError
from quorum.raft.snapshots.snapshots import SnapshotStore

log = logging.getLogger("quorate.storage")

#: What a snapshot's content may be refused with; counts as damage of its file.
REFUSALS = (SnapshotFormatError, ConfigurationError)
#: A snapshot that could not be read stays where it is: the next start may read it.
_READ_AGAIN = "see that the disk can be read, and start again; if that is of no use: "


@dataclass(slots=True)
class Storage:
    """An open data directory.

    Attributes:
        identity: whose it is; gets the cluster id when entry 1 is applied, and the feature level.
        machine: the state as of the snapshot, empty if there is none; the engine applies the log after
            it.
        mark: the snapshot as the Raft core needs to know it.
        supported_level: the highest feature level that this build supports.
    """

    disk: Disk
    data_dir: str
    identity: Identity
    lock: DirectoryLock
    journal: Journal
    recovered: Recovered
    snapshots: SnapshotStore
    machine: StateMachine
    mark: SnapshotMark | None
    supported_level: int = FEATURE_LEVEL

    def settle_cluster_id(self) -> None:
        """Give the identity the cluster in which the log ends, where a forced start was cut short."""
        latest = latest_configuration(self.recovered, self.mark)
        self.identity = settle_cluster_id(self.disk, self.data_dir, self.identity, latest)

    def learn_cluster_id(self, cluster_id: str) -> bool:
        """Write the cluster's id to the identity; durable on return.

        Returns:
            Whether it was new.
        """
        known = self.identity
        self.identity = store_cluster_id(self.disk, self.data_dir, known, cluster_id)
        return known is not self.identity

    def learn_feature_level(self, feature_level: int) -> None:
        """Write a risen level of the cluster to the identity; durable on return."""
        self.identity = store_feature_level(self.disk, self.data_dir, self.identity, feature_level)

    def close(self) -> None:
        """Close the journal and let go of the directory."""
        self.journal.close()
        self.lock.release()


def open_storage(
    node: NodeSection,
    raft: RaftSection,
    disk: Disk,
    start: Start,
    rng: random.Random,
    warn: Callable[[str], None] = log.warning,
    *,
    feature_level: int = FEATURE_LEVEL,
) -> Storage:
    """Open, recover and lock a data directory, formatting or forcing it where `start` asks for that.

    Args:
        node: whose it is, and its path.
        raft: sizes.
        disk: where it is.
        start: what it may do.
        rng: draws ids (the operating system's source).
        warn: takes a line about each thing that is changed, or not used.
        feature_level: the highest that this build supports; a directory of a higher one is refused.
    """
    data_dir = str(node.data_dir)
    identity, lock = open_data_dir(disk, data_dir, node.cluster, node.id, start=start, rng=rng)
    storage: Storage | None = None
    try:
        check_data_dir(data_dir, identity.feature_level, feature_level)
        storage = _load(data_dir, raft, disk, identity, lock, warn)
        check_data_dir(data_dir, storage.machine.feature_level, feature_level)
        storage.settle_cluster_id()
        if start is Start.FORCE_NEW_CLUSTER and force_new_cluster(
            disk,
            data_dir,
            storage.identity,
            storage.journal,
            storage.recovered,
            storage.mark,
            storage.snapshots.unread,
            rng,
        ):
            storage.journal.close()
            storage = _load(data_dir, raft, disk, storage.identity, lock, warn)
            storage.settle_cluster_id()
        storage.supported_level = feature_level
        storage.snapshots.set_aside()
    except BaseException as error:
        if storage is not None:
            storage.journal.close()
        lock.release()
        if isinstance(error, OSError):
            problem = f"data directory {data_dir} cannot be used: {told_by_os(error, 'reading it')}"
            raise refused_by_disk(problem, "free or repair the disk", error) from error
        raise
    return storage


def _load(
    data_dir: str,
    raft: RaftSection,
    disk: Disk,
    identity: Identity,
    lock: DirectoryLock,
    warn: Callable[[str], None],
) -> Storage:
    """Restore what a locked directory holds."""
    snapshots = SnapshotStore(disk, snapshot_directory(data_dir), warn)
    overlay_bytes_max = raft.snapshot_overlay_bytes_max
    machine = StateMachine(overlay_bytes_max)
    mark = None
    try:
        loaded = snapshots.load_newest(lambda reader: load_machine(reader, overlay_bytes_max), REFUSALS)
    except SnapshotDamagedError as error:
        if snapshots.unread is None:
            raise
        raise DataDirError(error.message, _READ_AGAIN + error.remedy) from error
    if loaded is not None:
        file, (machine, mark) = loaded
        log.info("loaded %s: index %d, %d znodes", file.path, file.log_index, machine.tree.node_count)
    journal, recovered = Journal.open(
        disk,
        journal_directory(data_dir),
        JournalOptions(raft.segment_bytes_max, raft.log_cache_bytes_max),
        warn,
        snapshot=None if mark is None else (mark.snapshot_index, mark.snapshot_term),
    )
    try:
        recovered.check_reaches(journal_directory(data_dir), machine.applied_index)
    except DataDirError as error:
        journal.close()
        if not snapshots.broken:
            raise
        broken = snapshots.broken[0]
        raise DataDirError(
            f"{error.message}, because {broken.message}", _READ_AGAIN + error.remedy
        ) from broken
    for damage in snapshots.broken:
        warn(f"starts from an older snapshot: {damage}")
    return Storage(disk, data_dir, identity, lock, journal, recovered, snapshots, machine, mark)


def load_machine(reader: SnapshotReader, overlay_bytes_max: int) -> tuple[StateMachine, SnapshotMark]:
    """Build the state from a snapshot file; may run in any thread."""
    loader = SnapshotLoader(overlay_bytes_max)
    try:
        for chunk in reader.chunks():
            loader.feed(chunk)
    except SnapshotLayoutError as error:
        raise SnapshotVersionError(reader.path, str(error)) from error
    machine = loader.finish()
    header = reader.header
    if (machine.applied_index, machine.applied_term) != (header.log_index, header.term):
        raise SnapshotFormatError(
            f"the state is of entry {machine.applied_index} of term {machine.applied_term}, the header says "
            f"{header.log_index} of term {header.term}"
        )
    payload = header.configuration_payload
    configuration = parse_configuration(payload) if payload else None
    return machine, SnapshotMark(header.log_index, header.term, header.stamp_ms, configuration)
