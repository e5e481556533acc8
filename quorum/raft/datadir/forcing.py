"""A lost majority: one node goes on as the only voter of a new cluster.

Decides what is written, and in which order, so that a crash at any point leaves a directory that is either
not forced yet or is finished by the next start: a marker with the new cluster id, then one group of the
journal, then the identity (identity.py). The group holds a term of its own and the new configuration, which
names this disk. Everything in this node's log counts as committed from then on: it may hold what nobody
acknowledged, and it may lack what the others did.

Where the end of this node's own journal is gone (journal/note.py), every start refuses, this one too.

The marker stays. It keeps a `--force-new-cluster` that was left in a start script from cutting off the
members that joined since. After the loss of a second majority, the operator removes it.

Source: etcd's --force-new-cluster.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Sequence
from typing import Final

from quorum.errors import DataDamagedError, DataDirError, QuorateError, refused_by_disk
from quorum.platform.runtime import Disk
from quorum.raft.core.configuration import Configuration, Member, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState, SnapshotMark
from quorum.raft.datadir.founding import new_cluster_id
from quorum.raft.datadir.identity import Identity, WrongIdentityError, write_aside, write_identity
from quorum.raft.journal.format import Record
from quorum.raft.journal.journal import Journal, JournalFailedError, JournalFullError
from quorum.raft.journal.start import Recovered
from quorum.raft.snapshots.format import SnapshotDamagedError

log = logging.getLogger("quorate.forcing")

#: How far the term rises: beyond any term in which the lost majority may have gone on without this node, so
#: that no index and term names two entries.
FORCED_TERM_JUMP: Final = 1 << 20
MARKER_NAME: Final = "forced-new-cluster"
_MARKER_BYTES_MAX: Final = 64
_MARKER: Final = re.compile(r"([0-9a-f]{32})\n", re.ASCII)


def latest_configuration(recovered: Recovered, mark: SnapshotMark | None) -> Configuration | None:
    """Return the configuration that counts at the end of the log; None before the founding."""
    entries = recovered.configuration_entries
    if entries and (mark is None or entries[-1].index > mark.snapshot_index):
        return parse_configuration(entries[-1].payload)
    return None if mark is None else mark.configuration


def settle_cluster_id(
    disk: Disk, data_dir: str, identity: Identity, latest: Configuration | None
) -> Identity:
    """Finish a forced start whose last step a crash prevented; durable on return.

    Args:
        disk: where the directory is.
        data_dir: its path.
        identity: as loaded.
        latest: the configuration at the end of the log.
    """
    if latest is None or identity.cluster_id == latest.cluster_id:
        return identity
    if read_marker(disk, data_dir) != latest.cluster_id:
        if not identity.cluster_id:
            return identity
        raise WrongIdentityError(
            f"{data_dir} has the identity of the cluster with id {identity.cluster_id}, and the log of "
            f"{latest.cluster_id}",
            "put back the identity or the journal that belongs to the other",
        )
    settled = identity._replace(cluster_id=latest.cluster_id)
    write_identity(disk, data_dir, settled)
    return settled


def force_new_cluster(
    disk: Disk,
    data_dir: str,
    identity: Identity,
    journal: Journal,
    recovered: Recovered,
    mark: SnapshotMark | None,
    unread: SnapshotDamagedError | None,
    rng: random.Random,
) -> bool:
    """Write that this node is the only voter of a new cluster from here on; durable on return.

    Args:
        disk: where the directory is.
        data_dir: its path.
        identity: whose it is.
        journal: open, and used by nobody else.
        recovered: what it holds.
        mark: the snapshot that was loaded, None if there is none.
        unread: the newest snapshot that the disk did not read, None if there is none.
        rng: draws the cluster id (the operating system's source).

    Returns:
        Whether anything was written; then the journal must be opened again.
    """
    latest = latest_configuration(recovered, mark)
    if latest is None:
        raise DataDirError(
            f"{data_dir} holds no cluster that --force-new-cluster could continue",
            "name the data directory of a node that has run; a new cluster begins with --bootstrap",
        )
    marked = read_marker(disk, data_dir)
    if marked == latest.cluster_id:
        log.warning(
            "--force-new-cluster is ignored: this directory was forced into the cluster %s before. Start "
            "without it. If the majority of that cluster is lost for good as well, remove %s/%s first",
            marked,
            data_dir,
            MARKER_NAME,
        )
        return False
    own = latest.member(identity.node_id)
    if own is None or not latest.has(identity.node_id, identity.incarnation):
        raise DataDirError(
            f"{data_dir} is of node {identity.node_id}, incarnation {identity.incarnation}, which by its own "
            "log is not a member: it was removed or replaced, and does not know what came after",
            "force the data directory of a member",
        )
    if list(latest.voters) == [identity.node_id]:
        log.warning("--force-new-cluster changes nothing: node %d is the only voter", identity.node_id)
        return False
    if unread is not None:
        # Once it can be read again it would take the place of what the new cluster has acknowledged.
        problem = f"{unread.message}; --force-new-cluster without it may give up what it holds"
        raise DataDirError(problem, "repair the disk and start again; if that is of no use remove the file")
    cluster_id = marked or new_cluster_id(rng)
    _warn(identity, latest, cluster_id)
    try:
        write_aside(disk, data_dir, MARKER_NAME, f"{cluster_id}\n".encode())
    except OSError as error:
        raise _refused_by_disk(data_dir, error) from error
    _append(data_dir, journal, _forced_records(identity, latest, own, recovered, mark, cluster_id))
    return True


def _append(data_dir: str, journal: Journal, records: Sequence[Record]) -> None:
    try:
        journal.append(records)
    except (OSError, JournalFullError, JournalFailedError) as error:
        raise _refused_by_disk(data_dir, error) from error


def _refused_by_disk(data_dir: str, error: Exception) -> DataDirError:
    remedy = "free or repair the disk and start again as before"
    reason = error.message if isinstance(error, QuorateError) else error
    return refused_by_disk(f"{data_dir} cannot be written to: {reason}", remedy, error)


def _forced_records(
    identity: Identity,
    latest: Configuration,
    own: Member,
    recovered: Recovered,
    mark: SnapshotMark | None,
    cluster_id: str,
) -> list[HardState | Entry]:
    others = (*latest.voters.values(), *latest.learners.values())
    lost = [member.incarnation for member in others if member.incarnation not in ("", identity.incarnation)]
    forced = Configuration(
        cluster_id,
        {identity.node_id: Member(own.address, identity.incarnation)},
        {},
        (*latest.retired, *lost),
    )
    term = recovered.hard_state.term + FORCED_TERM_JUMP
    index = recovered.last_index + 1
    stamp_ms = max(recovered.last_stamp_ms, 0 if mark is None else mark.stamp_ms)
    return [
        HardState(term, identity.node_id),
        Entry(index, term, EntryKind.MEMBERS, stamp_ms, forced.to_payload()),
    ]


def _warn(identity: Identity, latest: Configuration, cluster_id: str) -> None:
    others = sorted({*latest.voters, *latest.learners} - {identity.node_id})
    own = identity.node_id
    log.warning(
        "FORCED NEW CLUSTER: node %d goes on alone, as the only voter of the new cluster %s", own, cluster_id
    )
    if not others:
        return
    log.warning(
        "writes that the cluster %s acknowledged and that never reached node %d are LOST",
        latest.cluster_id,
        own,
    )
    log.warning(
        "never start the old data of the other nodes (%s) again; they come back with empty data directories: "
        "`quorate members add ID ADDR`, then `quorate serve --join`",
        ", ".join(map(str, others)),
    )


def read_marker(disk: Disk, data_dir: str) -> str:
    """Return the cluster id that this directory was, or is being, forced into; "" if there is none."""
    path = f"{data_dir}/{MARKER_NAME}"
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return ""
    try:
        content = file.pread(_MARKER_BYTES_MAX, 0)
    finally:
        file.close()
    found = _MARKER.fullmatch(content.decode("ascii", "replace"))
    if found is None:
        raise DataDamagedError(path, 0, "it holds no cluster id", "remove it")
    return found[1]
