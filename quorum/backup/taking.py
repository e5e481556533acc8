"""Takes a backup of a live cluster through the admin port of one of its nodes.

Decides what is asked of a node, and in which order: first the oldest state from which its log leads on, so
that points in time go back as far as the node's files do; then that everything committed by now is applied
there, which ends the backup; then the log between the two. So all that was acknowledged before is in it. The
node may compact its log meanwhile: then all begins anew. Clients go on; each answer is small, or a file's.

Where a node does not answer, the next one is asked from the beginning: files of two nodes are not mixed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from quorum.admin.client import AdminChange, NotAnsweredError, RefusedByNodeError, ask, download, get
from quorum.backup.manifest import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    SNAPSHOT_NAME,
    BackupManifest,
    encode_manifest,
)
from quorum.backup.reading import Rebuilt, describe_file, read_backup, rebuild
from quorum.errors import Fault, QuorateError, UnreachableError, printable
from quorum.platform.os_runtime import OsDisk
from quorum.raft.journal.handing import HandedEntryError, pack_entries, unpack_entries

TIMEOUT_S: Final = 30.0
#: longer than a snapshot of a large tree takes on a busy node
SNAPSHOT_TIMEOUT_S: Final = 600.0
LOOK_PAUSE_S: Final = 0.1
#: how often a state is asked for whose log is gone before it was read
TRIES_MAX: Final = 5
_SNAPSHOT: Final = AdminChange(
    "POST", "/v1/snapshots", {"log_index": int}, "the request for a snapshot", "run the backup again"
)


class BackupFailedError(QuorateError):
    """A backup that was not taken; nothing of it is left."""

    fault = Fault.OPERATOR


class _CompactedError(Exception):
    """What the backup would begin with is gone from the node."""


class _End(NamedTuple):
    """Where a backup ends, as a node says it; the clock is our own."""

    taken_ms: int
    last_index: int
    zxid: int
    state_digest: str
    cluster: str
    cluster_id: str


def take(urls: Sequence[str], folder: Path) -> BackupManifest:
    """Take a backup and read it back.

    Args:
        urls: admin ports, asked in this order until one gives a backup.
        folder: empty, for the files; what a failure leaves in it is removed.

    Raises:
        QuorateError: the last node's error.
    """
    failure: QuorateError | None = None
    for url in urls:
        try:
            return _take_from(url, folder)
        except BaseException as error:
            for path in folder.iterdir():
                path.unlink()
            if not isinstance(error, QuorateError):
                raise
            failure = error
    assert failure is not None
    raise failure


def _take_from(url: str, folder: Path) -> BackupManifest:
    for _ in range(TRIES_MAX):
        try:
            first_index = _fetch_state(url, folder)
            end = _find_end(url)
            _fetch_entries(url, folder, first_index, end.last_index)
            break
        except _CompactedError as error:
            problem = str(error)
    else:
        raise BackupFailedError(
            f"{url} let its log go {TRIES_MAX} times while that was read: {problem}",
            "give raft.journal_bytes_max more room, or ask another node",
        )
    rebuilt = rebuild(folder, has_snapshot=first_index > 1)
    machine = rebuilt.machine
    found = (machine.applied_index, machine.zxid, machine.state_digest.hex())
    if found != (end.last_index, end.zxid, end.state_digest):
        wanted = (end.last_index, end.zxid, end.state_digest)
        problem = f"{url}: what it gave leads to (index, zxid, digest) {found}, its state was {wanted}"
        raise BackupFailedError(
            problem, "keep the files of that node and report this; ask another one meanwhile"
        )
    manifest = _manifest(folder, end, rebuilt, has_snapshot=first_index > 1)
    with _new_file(folder, MANIFEST_NAME) as file:
        file.write(encode_manifest(manifest))
    OsDisk().fsync_dir(str(folder))
    return read_backup(folder)


def _manifest(folder: Path, end: _End, rebuilt: Rebuilt, *, has_snapshot: bool) -> BackupManifest:
    names = [SNAPSHOT_NAME, JOURNAL_NAME] if has_snapshot else [JOURNAL_NAME]
    return BackupManifest(
        backup_id=secrets.token_hex(16),
        cluster=end.cluster,
        cluster_id=end.cluster_id,
        taken_ms=end.taken_ms,
        first_zxid=rebuilt.first_zxid,
        first_ms=rebuilt.first_ms,
        last_zxid=end.zxid,
        last_ms=rebuilt.stamp_ms,
        last_index=end.last_index,
        state_digest=end.state_digest,
        znodes=rebuilt.machine.tree.node_count,
        files=tuple(describe_file(folder, name) for name in names),
    )


def _fetch_state(url: str, folder: Path) -> int:
    """Fetch the oldest snapshot that the node's log continues, or none where that is whole.

    Returns:
        The log index of the first entry that belongs behind it.
    """
    first_index: int = _ask(url, "/v1/journal", {"first_index": int})["first_index"]
    if first_index == 1:
        return 1
    name, log_index = _oldest_snapshot(url, first_index)
    with _new_file(folder, SNAPSHOT_NAME) as file:
        code, body = download(url, f"/v1/snapshots/{name}", TIMEOUT_S, file)
    if code == HTTPStatus.NOT_FOUND:
        raise _CompactedError(f"snapshot {name} is gone")
    if code != HTTPStatus.OK:
        raise _refused(url, code, body)
    return log_index + 1


def _oldest_snapshot(url: str, first_index: int) -> tuple[str, int]:
    """Return name and log index of a snapshot; have one taken where there is none that fits."""
    until_s = time.monotonic() + SNAPSHOT_TIMEOUT_S
    asked = False
    while True:
        listed = _ask(url, "/v1/snapshots", {"items": list, "problem": str})
        for row in listed["items"]:
            match row:
                case {"name": str(name), "log_index": int(log_index)} if log_index >= first_index - 1:
                    return name, log_index
        if asked and listed["problem"]:
            problem = f"{url}: {printable(listed['problem'])}"
            raise BackupFailedError(problem, "look at the disk of that node, or ask another one")
        if time.monotonic() > until_s:
            problem = f"{url} took no snapshot within {SNAPSHOT_TIMEOUT_S:g} s"
            raise BackupFailedError(problem, "look at the disk of that node, or ask another one")
        if not asked:
            ask(url, _SNAPSHOT, TIMEOUT_S)
            asked = True
        time.sleep(LOOK_PAUSE_S)


def _find_end(url: str) -> _End:
    """Have a node apply all that is committed, and return how far that is."""
    taken_ms = time.time_ns() // 1_000_000
    code, body = get(url, "/v1/znodes?path=/zookeeper/config&linearizable=true&children=false", TIMEOUT_S)
    # Whether the znode may be read does not matter.
    if code not in (HTTPStatus.OK, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        raise _refused(url, code, body)
    wanted = {"applied_index": int, "zxid": int, "state_digest": str, "cluster": str, "cluster_id": str}
    return _End(taken_ms, *map(_ask(url, "/v1/status", wanted).__getitem__, wanted))


def _fetch_entries(url: str, folder: Path, next_index: int, last_index: int) -> None:
    with _new_file(folder, JOURNAL_NAME) as journal:
        while next_index <= last_index:
            code, body = get(url, f"/v1/journal/entries?from_index={next_index}", TIMEOUT_S)
            if code == HTTPStatus.GONE:
                raise _CompactedError(f"entry {next_index} is gone")
            if code != HTTPStatus.OK:
                raise _refused(url, code, body)
            try:
                entries = list(unpack_entries(io.BytesIO(body), next_index))
            except HandedEntryError as error:
                raise NotAnsweredError(url, str(error)) from error
            if not entries:
                raise NotAnsweredError(url, f"it has applied entry {next_index} and does not give it")
            journal.write(pack_entries(each for each in entries if each.index <= last_index))
            next_index = entries[-1].index + 1


@contextlib.contextmanager
def _new_file(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Write a file for its owner alone, durable at the end."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.touch(0o600)
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _ask(url: str, path: str, wanted: Mapping[str, type]) -> dict[str, Any]:
    code, body = get(url, path, TIMEOUT_S)
    with contextlib.suppress(ValueError):
        answer = json.loads(body)
        is_good = code == HTTPStatus.OK and isinstance(answer, dict)
        if is_good and all(isinstance(answer.get(name), kind) for name, kind in wanted.items()):
            return dict(answer)
    raise _refused(url, code, body)


def _refused(url: str, code: int, body: bytes) -> QuorateError:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        answer = json.loads(body)
        message = f"{url}: {printable(answer['error'])}"
        return RefusedByNodeError(code, message, printable(answer["remedy"]), definite=True, retriable=False)
    return UnreachableError(
        f"{url} does not answer as the admin port of a node (HTTP {code})", "name nodes with --admin URL,…"
    )
