"""Which leader epoch wrote which part of a log.

An entry (epoch, first offset of its first batch) goes in with that batch and out with it, so the entries
are a function of the log's content. The file beside the log only spares a start the reading of segments
that are durable. A new leader's epoch is kept in memory until its first batch: ten thousand new leaders
write no file.
Source: KIP-101, KIP-279; Kafka's LeaderEpochFileCache (3.9); ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import itemgetter
from typing import Final

#: answer to a question about an epoch of which nothing is known
UNKNOWN: Final = (-1, -1)
_FORMAT: Final = 0


class LeaderEpochs:
    """The epochs of one log, ascending in both epoch and offset."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        #: [(epoch, start offset)]
        self._entries = entries or []

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset) of every epoch with a batch in the log."""
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The epoch of the last batch, -1 for an empty log without history."""
        return self._entries[-1][0] if self._entries else -1

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Note a batch that is in the log; epochs never go back, and one without a batch is forgotten."""
        if leader_epoch > self.latest:
            self.truncate_to(start_offset)
            self._entries.append((leader_epoch, start_offset))

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `leader_epoch`, and where it ends.

        Returns:
            (epoch, end offset, exclusive); UNKNOWN for an epoch above all known ones. An epoch below all
            known ones is returned as asked, with the start of the first known one.
        """
        known = self._entries
        if not known or leader_epoch < 0 or leader_epoch > known[-1][0]:
            return UNKNOWN
        if leader_epoch == known[-1][0]:
            return leader_epoch, log_end_offset
        above = bisect_right(known, leader_epoch, key=itemgetter(0))
        return (known[above - 1][0] if above else leader_epoch), known[above][1]

    def truncate_to(self, end_offset: int) -> bool:
        """Forget what begins at the new end of the log or behind it; returns whether there was something."""
        before = len(self._entries)
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        return len(self._entries) < before

    def start_at(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the new start; the one that covers it begins there now."""
        above = bisect_right(self._entries, log_start_offset, key=itemgetter(1))
        if above:
            self._entries[:above] = [(self._entries[above - 1][0], log_start_offset)]

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def to_bytes(self) -> bytes:
        """Return the content of Kafka's leader-epoch-checkpoint."""
        lines = [
            str(_FORMAT),
            str(len(self._entries)),
            *(f"{epoch} {start}" for epoch, start in self._entries),
        ]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def parse(cls, content: bytes) -> LeaderEpochs:
        """Read such a file."""
        version, count, *lines = content.decode("ascii").splitlines()
        entries = [(int(epoch), int(start)) for epoch, start in (line.split(" ") for line in lines)]
        rising = all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
        if int(version) != _FORMAT or int(count) != len(entries) or not rising:
            raise ValueError(f"{int(count)} rising entries of format {_FORMAT} were expected")
        return cls(entries)
