"""A broker's disk: logs whose records are (leader epoch, value), and what it notes beside them.

A record's value is a number that no other record of the world has. What a process wrote outlives it; what was
not flushed does not outlive a loss of power, and the next start knows only that something may be missing.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from quorum.metadata.paths import PartitionKey


class Record(NamedTuple):
    """One record, which is a batch of its own."""

    leader_epoch: int
    value: int


class SimLog:
    """A partition's log, from offset 0."""

    def __init__(self, topic_id: uuid.UUID | None) -> None:
        self.topic_id = topic_id
        self.records: list[Record] = []
        #: [(leader epoch, its first offset)], rising
        self._epochs: list[tuple[int, int]] = []
        #: what a loss of power leaves at least
        self.flushed = 0

    @property
    def log_start_offset(self) -> int:
        """Nothing is deleted here."""
        return 0

    @property
    def log_end_offset(self) -> int:
        """Where the next record goes."""
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        """Of the last record; -1 if there is none."""
        return self._epochs[-1][0] if self._epochs else -1

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """No transaction is here."""
        return high_watermark

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """Return (largest epoch not above this one, its end), as the shipped log does."""
        known = self._epochs
        if not known or leader_epoch < 0 or leader_epoch > known[-1][0]:
            return -1, -1
        if leader_epoch == known[-1][0]:
            return leader_epoch, self.log_end_offset
        above = next(index for index, (epoch, _) in enumerate(known) if epoch > leader_epoch)
        return (known[above - 1][0] if above else leader_epoch), known[above][1]

    def append(self, records: Sequence[Record]) -> None:
        """Append records; their epochs never fall, as the shipped log sees to."""
        for record in records:
            assert record.leader_epoch >= self.latest_epoch, (record, self._epochs)
            if record.leader_epoch > self.latest_epoch:
                self._epochs.append((record.leader_epoch, len(self.records)))
            self.records.append(record)

    def truncate(self, end_offset: int) -> None:
        """Cut everything from an offset on."""
        del self.records[end_offset:]
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()
        self.flushed = min(self.flushed, end_offset)


class Disk:
    """The data directory of a broker."""

    def __init__(self, number: int) -> None:
        """Be empty; the number is that of no other disk."""
        self.incarnation = f"{number:032x}"
        self.logs: dict[PartitionKey, SimLog] = {}
        #: as checkpointed last
        self.high_watermarks: dict[PartitionKey, int] = {}
        #: logs that may lack what they had acknowledged
        self.shortened: dict[PartitionKey, None] = {}

    def checkpoint(self, high_watermarks: dict[PartitionKey, int]) -> None:
        """Write the high watermarks, and flush all logs."""
        self.high_watermarks = high_watermarks
        for log in self.logs.values():
            log.flushed = log.log_end_offset

    def lose_power(self, rng: random.Random, *, all_of_it: bool = False) -> int:
        """Lose some of what was not flushed, or all of it; returns how many records."""
        lost = 0
        for key, log in self.logs.items():
            kept = log.flushed if all_of_it else rng.randint(log.flushed, log.log_end_offset)
            lost += log.log_end_offset - kept
            self.cut(key, kept)
            self.shortened[key] = None
        return lost

    def damage(self, key: PartitionKey, kept: int) -> None:
        """Let a log end early, as a start finds it out."""
        self.cut(key, kept)
        self.shortened[key] = None

    def cut(self, key: PartitionKey, end_offset: int) -> None:
        """Cut a log; what is committed of it ends there, too."""
        self.logs[key].truncate(end_offset)
        if self.high_watermarks.get(key, 0) > end_offset:
            self.high_watermarks[key] = end_offset

    def delete(self, key: PartitionKey) -> None:
        """Remove a log, or set it aside."""
        self.logs.pop(key, None)
        self.high_watermarks.pop(key, None)
        self.shortened.pop(key, None)
