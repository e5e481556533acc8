"""What a node learns from its journal at the start.

Decides which of the recovered entries are kept in memory for the core, and whether log and snapshot together
reach everything that this node ever acknowledged. Does not judge bytes (recovery.py does) and reads
no file.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from quorum.errors import DataDirError
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, size_bytes
from quorum.raft.core.messages import DurableLog, HardState
from quorum.raft.journal.format import Install, Record, SegmentHeader
from quorum.raft.journal.index import LogIndex
from quorum.raft.journal.recovery import REPLACE_REMEDY


class Recovered(NamedTuple):
    """What a journal held when it was opened, all of it durable.

    Attributes:
        hard_state: last term and vote.
        first_index: of the live log; last_index + 1 if it is empty.
        last_index: inclusive.
        last_term: of the entry at last_index, or of the base of an empty log.
        base_term: of the entry at first_index - 1, None where the segments do not say it.
        term_runs: (first index, term) of each run of equal terms, ascending, from first_index on.
        configuration_entries: all live entries of CONFIGURATION_KINDS, ascending.
        tail: the newest live entries, contiguous up to last_index, at least one if there is any.
        last_stamp_ms: of the entry at last_index, 0 if there is none.
        highest_install: the installed snapshot with the highest index, None if there is none.
        origin_incarnation: 0 if there is none.
        torn: what was cut off and why, "" if nothing.
    """

    hard_state: HardState
    first_index: int
    last_index: int
    last_term: int
    base_term: int | None
    term_runs: tuple[tuple[int, int], ...]
    configuration_entries: tuple[Entry, ...]
    tail: tuple[Entry, ...]
    last_stamp_ms: int
    highest_install: Install | None
    origin_incarnation: int
    torn: str

    def durable_log(self, snapshot_index: int) -> DurableLog:
        """Return the log as the core wants it at the start.

        Args:
            snapshot_index: last index of the snapshot that was loaded, 0 for none.
        """
        runs = list(self.term_runs)
        base_index = self.first_index - 1
        if self.base_term is not None and base_index > 0:
            if runs and runs[0][1] == self.base_term:
                runs[0] = (base_index, self.base_term)
            else:
                runs.insert(0, (base_index, self.base_term))
        above = tuple(entry for entry in self.configuration_entries if entry.index > snapshot_index)
        return DurableLog(
            self.first_index, self.last_index, tuple(runs), above, self.tail, self.last_stamp_ms
        )

    def check_reaches(self, directory: str, snapshot_index: int) -> None:
        """Refuse a snapshot from which the log does not lead to everything that was acknowledged.

        Args:
            directory: of the journal, for the message.
            snapshot_index: last index of the newest snapshot that could be loaded, 0 for none.
        """
        problem = ""
        install = self.highest_install
        if snapshot_index < self.first_index - 1:
            problem = f"the log begins with entry {self.first_index}"
        elif install is not None and max(snapshot_index, self.last_index) < install.log_index:
            problem = f"a snapshot up to entry {install.log_index} was acknowledged"
        if problem:
            raise DataDirError(
                f"{directory}: {problem}, but the newest good snapshot ends with entry {snapshot_index}",
                REPLACE_REMEDY,
            )


class TailCollector:
    """Keeps what a start hands to the core while records are read: configurations and the newest entries."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: deque[Entry] = deque()
        self._configurations: list[Entry] = []

    def visit(self, record: Record | SegmentHeader, _path: str, _offset: int) -> None:
        """Take a record that the index has accepted."""
        if isinstance(record, Entry):
            self._truncate(record.index)
            self._entries.append(record)
            self._bytes += size_bytes(record)
            while self._bytes > self._bytes_max and len(self._entries) > 1:
                self._bytes -= size_bytes(self._entries.popleft())
            if record.kind in CONFIGURATION_KINDS:
                self._configurations.append(record)
        elif isinstance(record, Install) and record.resets_log:
            self._truncate(0)

    def _truncate(self, index: int) -> None:
        while self._entries and self._entries[-1].index >= index:
            self._bytes -= size_bytes(self._entries.pop())
        while self._configurations and self._configurations[-1].index >= index:
            self._configurations.pop()

    def recovered(self, log: LogIndex, torn: str) -> Recovered:
        """Return everything together, when all records were read."""
        return Recovered(
            hard_state=log.hard_state,
            first_index=log.first_index,
            last_index=log.last_index,
            last_term=log.last_term,
            base_term=log.base_term,
            term_runs=tuple(log.term_runs),
            configuration_entries=tuple(self._configurations),
            tail=tuple(self._entries),
            last_stamp_ms=self._entries[-1].stamp_ms if self._entries else 0,
            highest_install=log.install if log.install.log_index else None,
            origin_incarnation=log.origin_incarnation,
            torn=torn,
        )
