"""A backup in a folder: whether it is what was written, and the state that it holds.

Decides what is damage: a file that is missing, cut, changed or foreign. Nothing of a backup counts before all
of its files passed. Changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from quorum.backup.manifest import (
    JOURNAL_NAME,
    MANIFEST_BYTES_MAX,
    MANIFEST_NAME,
    SNAPSHOT_NAME,
    BackupDamagedError,
    BackupFile,
    BackupManifest,
    decode_manifest,
)
from quorum.backup.replaying import ALL, Limit, apply_entry, replay
from quorum.core.machine import StateMachine
from quorum.node.storage import REFUSALS, load_machine
from quorum.platform.os_runtime import OsDisk
from quorum.raft.core.entry import Entry
from quorum.raft.journal.handing import HandedEntryError, unpack_entries
from quorum.raft.requests.payloads import PayloadFormatError
from quorum.raft.snapshots.format import SnapshotDamagedError, SnapshotReader

_PIECE_BYTES: Final = 1024 * 1024


class Rebuilt(NamedTuple):
    """A state out of a backup.

    Attributes:
        machine: the state.
        stamp_ms: of its last transaction.
        first_zxid: of the state before the journal, and first_ms its stamp.
    """

    machine: StateMachine
    stamp_ms: int
    first_zxid: int
    first_ms: int


def read_backup(folder: Path, shown: str = "") -> BackupManifest:
    """Check every file of a backup; raises BackupDamagedError for the first one that is not what was written.

    Args:
        folder: where it is.
        shown: how errors call it, where it is a copy of what the operator named.
    """
    path = folder / MANIFEST_NAME
    shown = (shown or str(folder)).rstrip("/")
    shown_path = f"{shown}/{MANIFEST_NAME}"
    try:
        names = {each.name for each in folder.iterdir()}
        with path.open("rb") as file:
            content = file.read(MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        raise BackupDamagedError(
            shown_path, "it is missing: this is no backup, or one that was not finished"
        ) from None
    except NotADirectoryError:
        raise BackupDamagedError(shown, "it is no folder") from None
    manifest = decode_manifest(shown_path, content)
    for each in manifest.files:
        _check_file(folder, each, shown)
    foreign = sorted(names - {MANIFEST_NAME, *(each.name for each in manifest.files)})
    if foreign:
        raise BackupDamagedError(f"{shown}/{foreign[0]}", "it is no file of this backup; move it away")
    return manifest


def _check_file(folder: Path, wanted: BackupFile, shown: str) -> None:
    """Compare a file with what the manifest says of it."""
    path = f"{shown}/{wanted.name}"
    try:
        found = describe_file(folder, wanted.name)
    except FileNotFoundError:
        raise BackupDamagedError(path, "it is missing") from None
    if found.size_bytes != wanted.size_bytes:
        raise BackupDamagedError(path, f"it has {found.size_bytes} bytes instead of {wanted.size_bytes}")
    if found.sha256 != wanted.sha256:
        raise BackupDamagedError(path, f"its SHA-256 is {found.sha256} instead of {wanted.sha256}")


def describe_file(folder: Path, name: str) -> BackupFile:
    """Return what a manifest says of a file."""
    digest, size = hashlib.sha256(), 0
    with (folder / name).open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return BackupFile(name, size, digest.hexdigest())


def rebuild(folder: Path, *, has_snapshot: bool, limit: Limit = ALL, shown: str = "") -> Rebuilt:
    """Build the state that a backup holds, up to a point.

    Args:
        folder: whose files were checked.
        has_snapshot: whether it begins with one; otherwise its journal begins with the founding.
        limit: the point, not before the first one.
        shown: as for read_backup.
    """
    journal = folder / JOURNAL_NAME
    shown = (shown or str(folder)).rstrip("/")
    shown_journal = f"{shown}/{JOURNAL_NAME}"
    machine = _load(folder / SNAPSHOT_NAME, f"{shown}/{SNAPSHOT_NAME}") if has_snapshot else StateMachine()
    try:
        with _entries(journal, machine.applied_index + 1) as entries:
            if not has_snapshot:
                founding = next(entries, None)
                if founding is None:
                    raise BackupDamagedError(shown_journal, "it has no founding")
                apply_entry(machine, founding)
            first_zxid, first_ms = machine.zxid, machine.last_stamp_ms
            # The first entries of a cluster may have no stamp.
            unstamped: list[Entry] = []
            while not first_ms and (entry := next(entries, None)) is not None:
                unstamped.append(entry)
                first_ms = entry.stamp_ms
            stamp_ms = replay(machine, chain(unstamped, entries), limit, first_ms)
    except (HandedEntryError, PayloadFormatError) as error:
        raise BackupDamagedError(shown_journal, str(error)) from error
    return Rebuilt(machine, stamp_ms, first_zxid, first_ms)


def check_state(manifest: BackupManifest, rebuilt: Rebuilt, shown: str) -> None:
    """Refuse the last state of a backup, called `shown`, where it is another one than the node's was."""
    found, wanted = rebuilt.machine.state_digest.hex(), manifest.state_digest
    if found != wanted:
        problem = f"its log leads to a state with digest {found}, and the node had {wanted}"
        raise BackupDamagedError(f"{shown.rstrip('/')}/{JOURNAL_NAME}", problem)


@contextlib.contextmanager
def _entries(path: Path, first_index: int) -> Iterator[Iterator[Entry]]:
    with path.open("rb") as file:
        yield unpack_entries(file, first_index)


def _load(path: Path, shown: str) -> StateMachine:
    file = OsDisk().open(str(path))
    try:
        machine, _ = load_machine(SnapshotReader(file), 0)
    except (SnapshotDamagedError, *REFUSALS) as error:
        raise BackupDamagedError(shown, str(error)) from error
    finally:
        file.close()
    return machine
