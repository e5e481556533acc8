"""The durable side of a test node: journal, snapshot, and what founds a test cluster.

`Disk` checks the journal's half of the contract: hard state never goes back, persists leave no gap, and only
entries that are there are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from quorum.raft.core.configuration import (
    Configuration,
    configuration_from_plain,
)
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry
from quorum.raft.core.messages import (
    DurableLog,
    HardState,
    Persist,
    SnapshotMark,
)

CLUSTER_ID = "c" * 32
SESSION_KEY = "5" * 64
TICK_MS = 10.0
Applied = tuple[int, int, int, str]  #: (index, term, kind, payload as text)


class BrokenPromiseError(AssertionError):
    """A safety property does not hold."""


def found(configuration: Configuration) -> bytes:
    plain = configuration._replace(cluster_id=CLUSTER_ID).to_plain()
    plain["session_key"] = SESSION_KEY
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


def term_runs(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for entry in entries:
        if not runs or runs[-1][1] != entry.term:
            runs.append((entry.index, entry.term))
    return runs


class Snapshot:
    def __init__(self, mark: SnapshotMark, applied: list[Applied]) -> None:
        assert mark.configuration is not None
        self.mark = mark
        self.applied = applied
        plain = [
            mark.snapshot_index,
            mark.snapshot_term,
            mark.stamp_ms,
            mark.configuration.to_plain(),
            applied,
        ]
        self.data = json.dumps(plain).encode()

    @staticmethod
    def load(data: bytes) -> Snapshot:
        index, term, stamp_ms, plain, applied = json.loads(data)
        mark = SnapshotMark(index, term, stamp_ms, configuration_from_plain(plain))
        return Snapshot(mark, [(row[0], row[1], row[2], row[3]) for row in applied])


class Disk:
    """What survives a crash. Entries are contiguous from ``first_index``."""

    def __init__(self) -> None:
        self.hard_state = HardState(0, 0)
        self.first_index = 1
        self.anchor: tuple[int, int] | None = None  #: (index, term) right before first_index
        self.entries: list[Entry] = []
        self.snapshot: Snapshot | None = None

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.entries) - 1

    def entry(self, index: int) -> Entry | None:
        position = index - self.first_index
        return self.entries[position] if 0 <= position < len(self.entries) else None

    def holds(self, index: int, term: int) -> bool:
        if self.snapshot is not None and index <= self.snapshot.mark.snapshot_index:
            return True
        entry = self.entry(index)
        return entry is not None and entry.term == term

    def write(self, persist: Persist) -> None:
        if persist.hard_state is not None:
            old = self.hard_state
            new = persist.hard_state
            if new.term < old.term or (new.term == old.term and old.voted_for not in (0, new.voted_for)):
                raise BrokenPromiseError(f"hard state went back from {old} to {new}")
            self.hard_state = new
        if persist.entries:
            first = persist.entries[0].index
            if not self.first_index <= first <= self.last_index + 1:
                raise BrokenPromiseError(f"a persist at {first} leaves a gap behind {self.last_index}")
            del self.entries[first - self.first_index :]
            self.entries.extend(persist.entries)

    def install(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.continue_from(snapshot.mark.snapshot_index, snapshot.mark.snapshot_term)

    def continue_from(self, index: int, term: int) -> None:
        """Drop a log that does not hold a snapshot's last entry."""
        entry = self.entry(index)
        if entry is None or entry.term != term:
            self.entries = []
            self.first_index = index + 1
            self.anchor = (index, term)

    def compact(self, first_index: int) -> None:
        before = self.entry(first_index - 1)
        assert before is not None
        del self.entries[: first_index - self.first_index]
        self.first_index = first_index
        self.anchor = (before.index, before.term)

    def view(self, tail: int, anchored: bool) -> DurableLog:
        runs = term_runs(self.entries)
        if self.anchor is not None and anchored:
            if runs and runs[0][1] == self.anchor[1]:
                runs[0] = self.anchor
            else:
                runs.insert(0, self.anchor)
        base = self.snapshot.mark.snapshot_index if self.snapshot is not None else 0
        configurations = [
            entry for entry in self.entries if entry.kind in CONFIGURATION_KINDS and entry.index > base
        ]
        return DurableLog(
            first_index=self.first_index,
            last_index=self.last_index,
            term_runs=tuple(runs),
            configuration_entries=tuple(configurations),
            tail=tuple(self.entries[len(self.entries) - min(tail, len(self.entries)) :]),
            last_stamp_ms=self.entries[-1].stamp_ms if self.entries else 0,
        )

    def read(self, first: int, last: int, bytes_max: int) -> Sequence[Entry]:
        entries: list[Entry] = []
        room = bytes_max
        for index in range(first, last + 1):
            entry = self.entry(index)
            if entry is None:
                raise BrokenPromiseError(f"entry {index} was read but is not on the disk")
            entries.append(entry)
            room -= len(entry.payload)
            if room <= 0:
                break
        return entries


def incarnation_of(node_id: int) -> str:
    return f"{node_id:032x}"
