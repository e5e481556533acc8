"""Whose data directory this is: cluster, node id, and the incarnation that votes are counted by.

Decides whether a node may use a directory, may format it, or must refuse, and says in each refusal what
fits. An incarnation is drawn once per formatting and never changes; the cluster id is added when the first
log entry that names this disk is applied. Knows nothing of what other nodes know of this one: that an id
founds a cluster only once is enforced here as far as this disk goes, and by the log (quorum/raft/core)
beyond.

Hard state: identity.json, written aside, fsynced, renamed, and its folder fsynced. Formatting leaves a
marker until the identity is durable, so that a crash within it neither blocks the next attempt nor lets it
overwrite anything.

Source: docs/internals/consensus.md, "Membership".
"""

from __future__ import annotations

import json
import random
import re
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from quorum.errors import (
    DataDamagedError,
    DataDirError,
    Fault,
    refused_by_disk,
    told_by_os,
)
from quorum.platform.runtime import Buffer, DirectoryLock, Disk
from quorum.raft.core.messages import HardState
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.recovery import JournalMissingError, list_segments, scan_journal

IDENTITY_NAME = "identity.json"
JOURNAL_NAME = "journal"
SNAPSHOTS_NAME = "snapshots"
FORMATTING_NAME = "formatting"
_PARTIAL_NAME = IDENTITY_NAME + ".partial"
_LOCK_NAME = "lock"
_FORMAT_VERSION = 1
_IDENTITY_BYTES_MAX = 64 * 1024
_HEX_32 = re.compile("[0-9a-f]{32}")
#: Names that an empty directory may hold: the lock, what a crash in formatting left, and a file system's own.
_IGNORED = frozenset({_LOCK_NAME, FORMATTING_NAME, _PARTIAL_NAME, "lost+found"})


class NotFormattedError(DataDirError):
    """A data directory without an identity, on a plain start."""

    fault = Fault.OPERATOR


class WrongIdentityError(DataDirError):
    """A data directory of another cluster or node."""

    fault = Fault.OPERATOR


class Start(Enum):
    """How a node was started; names are the options of `quorate serve`."""

    PLAIN = "serve"
    BOOTSTRAP = "serve --bootstrap"
    JOIN = "serve --join"
    FORCE_NEW_CLUSTER = "serve --force-new-cluster"

    @property
    def formats(self) -> bool:
        """Whether an empty directory is formatted."""
        return self in (Start.BOOTSTRAP, Start.JOIN)


class Identity(NamedTuple):
    """The node and the cluster of a data directory.

    Attributes:
        cluster_name: node.cluster of the configuration.
        node_id: node.id of the configuration.
        incarnation: 32 hex digits, drawn at formatting.
        founder: formatted by --bootstrap; otherwise the log must make this node a voter before it votes.
        cluster_id: 32 hex digits, "" until the log entry that records the incarnation was applied.
        feature_level: of the cluster, as of what this node applied; the state has it, too, and may be behind
            that of the last life.
    """

    cluster_name: str
    node_id: int
    incarnation: str
    founder: bool
    cluster_id: str = ""
    feature_level: int = 1


def journal_directory(data_dir: str) -> str:
    """Return the folder of the journal."""
    return f"{data_dir}/{JOURNAL_NAME}"


def snapshot_directory(data_dir: str) -> str:
    """Return the folder of the snapshots."""
    return f"{data_dir}/{SNAPSHOTS_NAME}"


def open_data_dir(
    disk: Disk, data_dir: str, cluster_name: str, node_id: int, *, start: Start, rng: random.Random
) -> tuple[Identity, DirectoryLock]:
    """Lock a data directory and return whose it is, formatting it where the start allows that.

    Args:
        disk: where it is.
        data_dir: its path.
        cluster_name: of the configuration.
        node_id: of the configuration.
        start: BOOTSTRAP and JOIN format an empty or missing directory and change no formatted one; the
            others format nothing.
        rng: draws the incarnation; must never repeat itself (the operating system's source).

    Returns:
        The identity, and the lock that the caller holds as long as it uses the directory.
    """
    try:
        if start.formats:
            disk.make_dirs(data_dir)
        lock = disk.lock(data_dir)
    except OSError as error:
        if not start.formats and isinstance(error, FileNotFoundError):
            raise _not_formatted(data_dir, "does not exist") from None
        raise _unusable(data_dir, error) from error
    wanted = Identity(cluster_name, node_id, new_incarnation(rng), start is Start.BOOTSTRAP)
    try:
        return _load_or_format(disk, data_dir, wanted, start), lock
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError):
            raise _unusable(data_dir, error) from error
        raise


def _load_or_format(disk: Disk, data_dir: str, wanted: Identity, start: Start) -> Identity:
    """Return the identity that is there, or make `wanted` it where `start` allows that."""
    names = disk.listdir(data_dir)
    if IDENTITY_NAME in names:
        # Its writer may have ended before its name was durable, and from here on it counts.
        disk.fsync_dir(data_dir)
        identity = load_identity(disk, data_dir)
        _check(f"{data_dir}/{IDENTITY_NAME}", identity, wanted)
        if FORMATTING_NAME in names:
            _remove_marker(disk, data_dir)
        return identity
    others = sorted(set(names) - _IGNORED)
    if others and FORMATTING_NAME not in names:
        raise DataDirError(
            f"data directory {data_dir} has no {IDENTITY_NAME}, but holds {', '.join(others[:5])}",
            f"put {IDENTITY_NAME} back if these are its data, or name an empty one in node.data_dir",
        )
    if not start.formats:
        raise _not_formatted(data_dir, "is empty")
    return _format(disk, data_dir, wanted)


def new_incarnation(rng: random.Random) -> str:
    """Draw a node incarnation: 32 hex digits."""
    return f"{rng.getrandbits(128):032x}"


def _format(disk: Disk, data_dir: str, identity: Identity) -> Identity:
    """Make journal and snapshot folders and then the identity, so that an identity always has its journal."""
    journal = journal_directory(data_dir)
    if FORMATTING_NAME not in disk.listdir(data_dir):
        disk.create(f"{data_dir}/{FORMATTING_NAME}").close()
        disk.fsync_dir(data_dir)
    try:
        list_segments(disk, journal)
    except JournalMissingError:
        Journal.create(disk, journal)
    _check_pristine(disk, data_dir, journal)
    disk.make_dirs(snapshot_directory(data_dir))
    write_identity(disk, data_dir, identity)
    _remove_marker(disk, data_dir)
    return identity


def _check_pristine(disk: Disk, data_dir: str, journal: str) -> None:
    """Refuse to put a new identity next to a journal or snapshots in use."""
    log = scan_journal(disk, journal).log
    snapshots = SNAPSHOTS_NAME in disk.listdir(data_dir) and disk.listdir(snapshot_directory(data_dir))
    if log.last_index or log.hard_state != HardState(0, 0) or log.origin_incarnation or snapshots:
        raise DataDirError(
            f"data directory {data_dir} has no {IDENTITY_NAME}, but its journal or snapshots are in use",
            f"put {IDENTITY_NAME} back, or name an empty directory in node.data_dir",
        )


def _remove_marker(disk: Disk, data_dir: str) -> None:
    disk.unlink(f"{data_dir}/{FORMATTING_NAME}")
    disk.fsync_dir(data_dir)


def load_identity(disk: Disk, data_dir: str) -> Identity:
    """Read the identity of a formatted data directory."""
    path = f"{data_dir}/{IDENTITY_NAME}"
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise _not_formatted(data_dir, f"holds no {IDENTITY_NAME}") from None
    try:
        content = file.pread(_IDENTITY_BYTES_MAX, 0)
    finally:
        file.close()
    return _decode(path, content)


def store_cluster_id(disk: Disk, data_dir: str, identity: Identity, cluster_id: str) -> Identity:
    """Add the cluster id that the first log entry says; durable on return.

    Args:
        disk: where the directory is.
        data_dir: its path.
        identity: as loaded.
        cluster_id: 32 hex digits.
    """
    if identity.cluster_id == cluster_id:
        return identity
    if identity.cluster_id:
        raise WrongIdentityError(
            f"{data_dir} belongs to the cluster with id {identity.cluster_id}, not {cluster_id}",
            "two clusters share a name; correct [members] and node.cluster",
        )
    known = identity._replace(cluster_id=cluster_id)
    write_identity(disk, data_dir, known)
    return known


def store_feature_level(disk: Disk, data_dir: str, identity: Identity, feature_level: int) -> Identity:
    """Note the cluster's level, so that an older build refuses the directory at once; durable on return."""
    if identity.feature_level >= feature_level:
        return identity
    known = identity._replace(feature_level=feature_level)
    write_identity(disk, data_dir, known)
    return known


def write_identity(disk: Disk, data_dir: str, identity: Identity) -> None:
    """Replace the identity in one step; durable on return."""
    write_aside(disk, data_dir, IDENTITY_NAME, _encode(identity))


def write_aside(disk: Disk, data_dir: str, name: str, content: bytes) -> None:
    """Replace a small file in one step; durable on return."""
    partial = f"{data_dir}/{name}.partial"
    if f"{name}.partial" in disk.listdir(data_dir):
        disk.unlink(partial)
    buffers: list[Buffer] = [content]
    file = disk.create(partial)
    try:
        file.pwrite(buffers, 0)
        file.fdatasync()
    finally:
        file.close()
    disk.rename(partial, f"{data_dir}/{name}")
    disk.fsync_dir(data_dir)


def _encode(identity: Identity) -> bytes:
    fields = {
        "format": _FORMAT_VERSION,
        "cluster": identity.cluster_name,
        "node_id": identity.node_id,
        "incarnation": identity.incarnation,
        "founder": identity.founder,
        "cluster_id": identity.cluster_id,
    }
    if identity.feature_level > 1:
        fields["feature_level"] = identity.feature_level
    return (json.dumps({**fields, "checksum": _checksum(fields)}, indent=2, sort_keys=True) + "\n").encode()


def _checksum(fields: dict[str, object]) -> str:
    return f"{crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def _decode(path: str, content: bytes) -> Identity:
    remedy = "put the file back from a copy, or replace this node with `quorate members replace`"
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataDamagedError(path, 0, f"it is not JSON: {error}", remedy) from error
    if not isinstance(fields, dict):
        raise DataDamagedError(path, 0, "it is not a JSON object", remedy)
    if fields.get("format") != _FORMAT_VERSION:
        problem = f"{path}: format = {fields.get('format')!r}, this version reads {_FORMAT_VERSION}"
        raise DataDirError(problem, "start the version that wrote it")
    checksum = fields.pop("checksum", None)
    if checksum != _checksum(fields):
        raise DataDamagedError(path, 0, f"checksum = {checksum!r} does not fit the other fields", remedy)
    match fields:
        case {
            "cluster": str(cluster),
            "node_id": int(node_id),
            "incarnation": str(incarnation),
            "founder": bool(founder),
            "cluster_id": str(cluster_id),
        } if _HEX_32.fullmatch(incarnation) and (not cluster_id or _HEX_32.fullmatch(cluster_id)):
            level = fields.get("feature_level", 1)
            if type(level) is int and level >= 1:
                return Identity(cluster, node_id, incarnation, founder, cluster_id, level)
    raise DataDamagedError(path, 0, f"its fields are not those of an identity: {sorted(fields)}", remedy)


def _check(path: str, identity: Identity, wanted: Identity) -> None:
    if identity.cluster_name != wanted.cluster_name:
        raise WrongIdentityError(
            f"{path} belongs to the cluster {identity.cluster_name!r}, the configuration says "
            f"node.cluster = {wanted.cluster_name!r}",
            "correct node.cluster or node.data_dir",
        )
    if identity.node_id != wanted.node_id:
        raise WrongIdentityError(
            f"{path} belongs to node {identity.node_id}, the configuration says node.id = {wanted.node_id}",
            "correct node.id or node.data_dir; a copied data directory must never be used by another node",
        )


def _not_formatted(data_dir: str, what: str) -> NotFormattedError:
    return NotFormattedError(
        f"data directory {data_dir} {what}",
        "use `--bootstrap` on the first start of a founder of a new cluster, `--join` on the first start of "
        "a node that was added (`quorate members add`). If this node has run before, its data are missing: "
        "put them back, or run `quorate members replace` and start it with `--join`",
    )


def _unusable(data_dir: str, error: OSError) -> DataDirError:
    return refused_by_disk(
        f"data directory {data_dir} cannot be used: {told_by_os(error, 'opening it')}",
        "make node.data_dir a directory on a healthy disk with room that this user may write to",
        error,
    )
