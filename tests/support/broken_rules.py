"""Rules of the shipped node switched off on purpose: what a test of crash safety must notice.

Each function changes a class of the shipped code in this process, for `tests.support.watched_node`.

Source: docs/internals/consensus.md, "Journal".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from quorum.raft.journal.format import Record
from quorum.raft.journal.journal import Journal, StagedGroup
from quorum.raft.journal.writer import JournalWriter

#: Long enough for many acknowledgements, short enough for a node that works.
WRITE_DELAY_MS = 50.0

Done = Callable[[], object]


def acknowledge_before_fsync() -> None:
    """Call everything durable when it is handed over; it is written once this turn's messages have left."""
    shipped = JournalWriter.submit

    def submit(self: JournalWriter, records: Sequence[Record], on_durable: Done) -> None:
        # Messages leave in the next turn, so that the write begins in the one after it.
        later = partial(self._runtime.call_soon, shipped, self, records, lambda: None)
        self._runtime.call_soon(later)
        on_durable()

    JournalWriter.submit = submit  # type: ignore[method-assign]


def acknowledge_before_write() -> None:
    """Call everything durable when it is handed over; it is written a while later."""
    shipped = JournalWriter.submit

    def submit(self: JournalWriter, records: Sequence[Record], on_durable: Done) -> None:
        self._runtime.call_later(WRITE_DELAY_MS, shipped, self, records, lambda: None)
        on_durable()

    JournalWriter.submit = submit  # type: ignore[method-assign]


def compact_too_early() -> None:
    """Remove every segment as soon as it is full, whatever the snapshots still need."""
    shipped_write, shipped_remove = Journal.write, Journal.remove

    def remove(self: Journal, paths: Sequence[str]) -> None:
        shipped_remove(self, [path for path in paths if Path(path).exists()])

    def write(self: Journal, group: StagedGroup) -> None:
        shipped_write(self, group)
        remove(self, [segment.path for segment in self._log.segments[:-1]])

    Journal.write, Journal.remove = write, remove  # type: ignore[method-assign]


#: name on the command line → what it does
BREAKS: Final[dict[str, Callable[[], None]]] = {
    "acknowledge-before-fsync": acknowledge_before_fsync,
    "acknowledge-before-write": acknowledge_before_write,
    "compact-too-early": compact_too_early,
}
