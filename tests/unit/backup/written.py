"""A log and a backup of it, made without a node."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from quorum.backup.manifest import MANIFEST_NAME, BackupManifest, encode_manifest
from quorum.backup.reading import Rebuilt, describe_file, rebuild
from quorum.core.machine import StateMachine
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.journal.handing import pack_entries
from quorum.raft.requests.payloads import BATCH_FORMAT
from tests.unit.core.driver import dump_nodes

TERM = 3
NODE_ID = 1
INCARNATION = 77
STAMP_MS = 1_700_000_000_000
CLUSTER_ID = "c" * 32
SESSION_KEY = bytes(range(32))
SESSIONS = (1, 2)


class Log:
    """Entries of a small cluster, in order."""

    def __init__(self) -> None:
        voters = {"1": {"address": "127.0.0.1:2281", "incarnation": "a" * 32}}
        plain = {"cluster_id": CLUSTER_ID, "voters": voters, "learners": {}, "retired": []}
        self.entries: list[Entry] = []
        self._number = 0
        payload = json.dumps({**plain, "session_key": SESSION_KEY.hex()}).encode()
        self.add(EntryKind.FOUND, payload, stamp_ms=0)
        self.add(EntryKind.REGISTER, msgpack.packb([1, NODE_ID, INCARNATION]), stamp_ms=0)
        self.batch(*[[0, session_id, None, [[-10, 30_000]]] for session_id in SESSIONS])

    def add(self, kind: EntryKind, payload: bytes, stamp_ms: int | None = None) -> None:
        """Append an entry; entries are ten milliseconds apart."""
        index = len(self.entries) + 1
        stamp = STAMP_MS + 10 * index if stamp_ms is None else stamp_ms
        self.entries.append(Entry(index, TERM, kind, stamp, payload))

    def batch(self, *runs: Any, shape: int = BATCH_FORMAT) -> None:
        """Append a batch of runs, or of steps of an import."""
        self._number += 1
        payload = msgpack.packb([shape, NODE_ID, INCARNATION, self._number, list(runs)], use_bin_type=True)
        self.add(EntryKind.BATCH, payload)

    def control(self, *proposals: Any) -> None:
        """Append proposals of the leader."""
        self.add(EntryKind.CONTROL, msgpack.packb([4, list(proposals)]))


def run_of(session_id: int, *commands: Any) -> list[Any]:
    """A run of a session's own connection."""
    return [session_id, session_id, None, list(commands)]


def random_commands(rng: random.Random, count: int) -> list[tuple[int, list[Any]]]:
    """Writes of both sessions; some of them fail."""
    chosen: list[tuple[int, list[Any]]] = []
    for _ in range(count):
        session_id, path = rng.choice(SESSIONS), f"/n{rng.randrange(6)}"
        command: list[Any] = rng.choice(
            [
                [1, path, b"data", None, rng.choice((0, 0, 1))],
                [1, "/s-", None, None, 2],
                [5, path, b"%d" % rng.randrange(99), -1],
                [2, path, -1],
                [14, [[1, path, b"", None, 0], [5, path, b"in a multi", 0]]],
                [9, path],
            ]
        )
        chosen.append((session_id, command))
    return chosen


def write_backup(folder: Path, entries: Sequence[Entry]) -> BackupManifest:
    """Write a backup whose log begins with the founding."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "journal").write_bytes(pack_entries(entries))
    rebuilt = rebuild(folder, has_snapshot=False)
    manifest = manifest_of(folder, rebuilt)
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    return manifest


def manifest_of(folder: Path, rebuilt: Rebuilt) -> BackupManifest:
    machine = rebuilt.machine
    return BackupManifest(
        backup_id="b" * 32,
        cluster="test",
        cluster_id=CLUSTER_ID,
        taken_ms=STAMP_MS + 1_000_000,
        first_zxid=rebuilt.first_zxid,
        first_ms=rebuilt.first_ms,
        last_zxid=machine.zxid,
        last_ms=rebuilt.stamp_ms,
        last_index=machine.applied_index,
        state_digest=machine.state_digest.hex(),
        znodes=machine.tree.node_count,
        files=(describe_file(folder, "journal"),),
    )


def nodes_of(machine: StateMachine) -> dict[str, Any]:
    """Every znode but for the time of its changes, which differ with the entry that holds a command."""
    return {path: (row[0][:16], row[0][32:], *row[1:]) for path, row in dump_nodes(machine).items()}
