"""What a backup is: its files, and the manifest that vouches for them. Pure.

    backup.json   this manifest, written last
    snapshot      a snapshot file as a node hands it out; missing where the journal begins with the founding
    journal       the entries behind it, as quorum/raft/journal/handing.py packs them

The manifest has size and SHA-256 of the others and a checksum of itself. It is read only in the very form in
which it is written, so that no changed byte passes.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final, NamedTuple

from quorum.errors import Fault, QuorateError, shown

FORMAT: Final = 1
MANIFEST_NAME: Final = "backup.json"
SNAPSHOT_NAME: Final = "snapshot"
JOURNAL_NAME: Final = "journal"
MANIFEST_BYTES_MAX: Final = 64 * 1024
_HEX_32: Final = re.compile("[0-9a-f]{32}")
_HEX_64: Final = re.compile("[0-9a-f]{64}")
_REMEDY: Final = "take another backup, or use another copy of this one"


class BackupDamagedError(QuorateError):
    """A file of a backup that is not what was written; names the file."""

    fault = Fault.OPERATOR

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}", _REMEDY)


class BackupVersionError(QuorateError):
    """A backup that a newer version wrote."""

    fault = Fault.OPERATOR


class BackupFile(NamedTuple):
    """A file that a manifest vouches for."""

    name: str
    size_bytes: int
    #: 64 hex digits
    sha256: str


class BackupManifest(NamedTuple):
    """What a backup holds.

    Attributes:
        backup_id: 32 hex digits, drawn for this backup.
        cluster: node.cluster of the node that was asked.
        cluster_id: 32 hex digits.
        taken_ms: wall clock when the command asked for what is committed; all up to then is in it.
        first_zxid: the first point that it can be restored to.
        first_ms: the stamp of that transaction, as far as it is known: of the snapshot.
        last_zxid: the last point, and last_ms its stamp.
        last_index: log index of the last entry.
        state_digest: of the znodes behind that entry, 32 hex digits.
        znodes: how many there are then.
        files: all others.
    """

    backup_id: str
    cluster: str
    cluster_id: str
    taken_ms: int
    first_zxid: int
    first_ms: int
    last_zxid: int
    last_ms: int
    last_index: int
    state_digest: str
    znodes: int
    files: tuple[BackupFile, ...]


def encode_manifest(manifest: BackupManifest) -> bytes:
    """Return the bytes of the file."""
    fields: dict[str, Any] = {"format": FORMAT, **manifest._asdict()}
    fields["files"] = [each._asdict() for each in manifest.files]
    return _with_checksum(fields)


def _with_checksum(fields: dict[str, Any]) -> bytes:
    plain = json.dumps(fields, sort_keys=True).encode()
    fields = {**fields, "checksum": hashlib.sha256(plain).hexdigest()}
    return (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode()


def decode_manifest(path: str, content: bytes) -> BackupManifest:
    """Read a manifest; raises BackupDamagedError or BackupVersionError.

    Args:
        path: for errors.
        content: of the file.
    """
    try:
        fields: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BackupDamagedError(path, f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BackupDamagedError(path, "it is not a JSON object")
    checksum = fields.pop("checksum", None)
    if _with_checksum(fields) != content:
        raise BackupDamagedError(path, f"checksum = {shown(checksum)} does not fit its other bytes")
    if fields.pop("format", None) != FORMAT:
        remedy = "use the version that wrote it, or a later one"
        raise BackupVersionError(
            f"{path} is of another format than {FORMAT}, which this version reads", remedy
        )
    try:
        files = tuple(BackupFile(**each) for each in fields.pop("files"))
        manifest = BackupManifest(files=files, **fields)
        is_sound = _is_sound(manifest)
    except (TypeError, KeyError) as error:
        raise BackupDamagedError(path, f"its fields are not those of a backup: {error}") from error
    if not is_sound:
        raise BackupDamagedError(path, "its fields are not those of a backup")
    return manifest


def _is_sound(manifest: BackupManifest) -> bool:
    return (
        all(
            type(getattr(manifest, name)) is int
            for name in ("taken_ms", "first_zxid", "first_ms", "last_zxid", "last_ms", "last_index", "znodes")
        )
        and _HEX_32.fullmatch(manifest.backup_id) is not None
        and 0 <= manifest.first_zxid <= manifest.last_zxid
        and [each.name for each in manifest.files] in ([SNAPSHOT_NAME, JOURNAL_NAME], [JOURNAL_NAME])
        and all(type(each.size_bytes) is int and _HEX_64.fullmatch(each.sha256) for each in manifest.files)
    )


def restored_cluster_id(
    manifest: BackupManifest, cluster: str, as_of_zxid: int, feature_level: int, attempt: int
) -> str:
    """Return the id of the cluster that a backup becomes: the same for founders that belong together.

    Args:
        manifest: of the backup.
        cluster: node.cluster of the founders.
        as_of_zxid: the point.
        feature_level: of the state there; raising it takes no zxid.
        attempt: which restore of the backup this is, from 1.
    """
    text = f"quorate restore {manifest.backup_id} {as_of_zxid} {feature_level} {attempt} {cluster}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
