"""The log as one node knows it: what is there, what is durable, what is in memory.

Decides where the log ends, which part of it is durable, and which entries stay in the bounded memory tail;
older ones come from an injected reader. Does not know what is committed (`node.py`) nor how a journal stores
anything. The log is hard state as far as ``durable_index``; what follows may vanish in a crash.

Source: Raft §5.3; the split between stable and unstable part follows etcd-io/raft.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import DurableLog, SnapshotMark
from quorum.raft.core.terms import TermRuns

#: The memory tail is cut to this part of its bound at once, so that cutting stays rare.
_TRIM_TO: Final = 0.75


class EntryReader(Protocol):
    """Reads durable entries that left the memory tail."""

    def read(self, first: int, last: int, bytes_max: int) -> Sequence[Entry]:
        """Return entries first, first + 1, … up to at most ``last``, stopping once ``bytes_max`` is reached.

        At least one entry is returned. The range lies between the journal's first index and the durable
        index.
        """


class Log:
    """Entries first_index..last_index, contiguous, terms never falling."""

    def __init__(
        self, durable: DurableLog, mark: SnapshotMark | None, reader: EntryReader, cache_bytes_max: int
    ) -> None:
        """Take over what the journal holds.

        Args:
            durable: the journal's content; all of it is durable.
            mark: the snapshot that the state machine was loaded from, if any.
            reader: reads entries that are not in ``durable.tail``.
            cache_bytes_max: bound of the memory tail.
        """
        self._reader = reader
        self._cache_bytes_max = cache_bytes_max
        self._runs = TermRuns(durable.term_runs)
        self.first_index = durable.first_index  #: first entry that can be read
        self.last_index = durable.last_index
        self.last_stamp_ms = durable.last_stamp_ms
        self._stored_index = durable.last_index  #: durable in the journal
        self._snapshot_index = 0  #: durable as part of a snapshot
        self.durable_index = durable.last_index  #: everything up to here is durable, in either
        self.persist_from = durable.last_index + 1  #: next entry for a Persist
        self._pending: deque[tuple[int, int]] = deque()  #: (seq, last index) of persists under way
        self._entries: list[Entry] = list(durable.tail)  #: memory tail, ends at last_index
        self.cache_bytes = sum(map(size_bytes, durable.tail))
        self._check_view(durable)
        if mark is not None:
            if durable.first_index > mark.snapshot_index + 1:
                raise InvariantError(
                    f"the log begins at {durable.first_index}, the snapshot ends at {mark.snapshot_index}: "
                    "entries between them are lost"
                )
            self.install(mark.snapshot_index, mark.snapshot_term, mark.stamp_ms)

    def _check_view(self, durable: DurableLog) -> None:
        known = self._runs.first_known
        if self.last_index < self.first_index - 1 or self.first_index < 1:
            raise InvariantError(f"the journal's range {self.first_index}..{self.last_index} is impossible")
        if self.last_index >= self.first_index and (known is None or known > self.first_index):
            raise InvariantError(f"term runs begin at {known}, the journal at {self.first_index}")
        expected = self.last_index - len(durable.tail) + 1
        if durable.tail and (durable.tail[0].index != expected or expected < self.first_index):
            raise InvariantError(f"the journal's tail begins at {durable.tail[0].index}, not at {expected}")

    @property
    def last_term(self) -> int:
        """Return the term at ``last_index``, 0 for an empty log."""
        return self.term_at(self.last_index) or 0

    def term_at(self, index: int) -> int | None:
        """Return the term at ``index``: 0 at index 0 of a log that begins at 1, None where it is not
        known."""
        if index > self.last_index:
            return None
        runs = self._runs
        if runs.starts and index >= runs.starts[-1]:
            return runs.terms[-1]
        term = runs.term_at(index)
        return 0 if term is None and index == 0 and self.first_index == 1 else term

    def last_at_most(self, index: int, term: int) -> int:
        """Return the largest index up to ``index`` whose term is at most ``term`` (0 if none)."""
        return max(0, self._runs.last_at_most(min(index, self.last_index), term))

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries right after the end."""
        for entry in entries:
            if entry.index != self.last_index + 1:
                raise InvariantError(f"entry {entry.index} cannot follow entry {self.last_index}")
            self._runs.extend(entry.index, entry.term)
            self.last_index = entry.index
            self._entries.append(entry)
            self.cache_bytes += size_bytes(entry)
        if entries:
            self.last_stamp_ms = max(self.last_stamp_ms, entries[-1].stamp_ms)

    def truncate(self, index: int) -> None:
        """Remove everything from ``index`` on; the journal supersedes it with the entry that takes its
        place."""
        keep = max(0, index - self._cache_first)
        self.cache_bytes -= sum(map(size_bytes, self._entries[keep:]))
        del self._entries[keep:]
        self._runs.truncate(index)
        self.last_index = index - 1
        self._stored_index = min(self._stored_index, index - 1)
        self.durable_index = max(self._stored_index, self._snapshot_index)
        self.persist_from = min(self.persist_from, index)
        # A persist under way may still make the removed entries durable: what it proves ends before them.
        self._pending = deque((seq, min(last, index - 1)) for seq, last in self._pending)

    def slice(self, first: int, last: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries from ``first`` up to at most ``last``, at least one, stopping before ``bytes_max``
        is passed."""
        if not self.first_index <= first <= last <= self.last_index:
            raise InvariantError(
                f"entries {first}..{last} are not within {self.first_index}..{self.last_index}"
            )
        position = first - (self.last_index - len(self._entries) + 1)
        if position < 0:
            entries = tuple(self._reader.read(first, min(last, self._cache_first - 1), bytes_max))
            if not entries or any(entry.index != first + offset for offset, entry in enumerate(entries)):
                raise InvariantError(
                    f"the journal gave {[entry.index for entry in entries[:4]]} for {first}..{last}"
                )
            return entries
        end = position
        room = bytes_max
        stop = position + last - first + 1
        while end < stop:
            room -= size_bytes(self._entries[end])
            if room < 0 and end > position:
                break
            end += 1
        return tuple(self._entries[position:end])

    def take_unpersisted(self, seq: int) -> tuple[Entry, ...]:
        """Return what the journal has not been given yet, and note that persist ``seq`` holds it."""
        entries = tuple(self._entries[len(self._entries) - (self.last_index - self.persist_from + 1) :])
        self.persist_from = self.last_index + 1
        self._pending.append((seq, self.last_index))
        return entries

    def persisted(self, seq: int) -> None:
        """Note that persist ``seq`` and all before it are durable."""
        while self._pending and self._pending[0][0] <= seq:
            self._stored_index = max(self._stored_index, self._pending.popleft()[1])
        self.durable_index = max(self._stored_index, self._snapshot_index)

    def install(self, snapshot_index: int, snapshot_term: int, stamp_ms: int) -> None:
        """Make the log continue a durable snapshot; what lies beyond it is kept only if the log holds its
        last entry."""
        self._snapshot_index = max(self._snapshot_index, snapshot_index)
        self.durable_index = max(self._stored_index, self._snapshot_index)
        if self.term_at(snapshot_index) == snapshot_term:
            self.last_stamp_ms = max(self.last_stamp_ms, stamp_ms)
            return
        if self.first_index == snapshot_index + 1 and self._runs.term_at(snapshot_index) is None:
            self._runs.prepend(snapshot_index, snapshot_term)
            self.last_stamp_ms = max(self.last_stamp_ms, stamp_ms)
            return
        self._runs = TermRuns([(snapshot_index, snapshot_term)])
        self._entries.clear()
        self.cache_bytes = 0
        self._pending = deque((seq, 0) for seq, _ in self._pending)
        self.first_index = snapshot_index + 1
        self.last_index = snapshot_index
        self.last_stamp_ms = stamp_ms
        self._stored_index = self.durable_index = snapshot_index
        self.persist_from = snapshot_index + 1

    def compact(self, first_index: int) -> None:
        """Forget what the journal no longer holds: entries before ``first_index``, which a snapshot
        covers."""
        if first_index <= self.first_index:
            return
        if first_index > min(self._stored_index, self.last_index) + 1:
            raise InvariantError(
                f"the journal was compacted to {first_index}, past the durable index {self._stored_index}"
            )
        drop = max(0, first_index - self._cache_first)
        self._drop(drop)
        self.first_index = first_index
        self._runs.compact(first_index - 1)

    def trim(self, handed_index: int) -> None:
        """Bound the memory tail: forget its oldest entries that are durable and handed out for applying."""
        if self.cache_bytes <= self._cache_bytes_max:
            return
        droppable = min(handed_index, self._stored_index, self.persist_from - 1) - self._cache_first + 1
        goal = self._cache_bytes_max * _TRIM_TO
        remaining = self.cache_bytes
        count = 0
        while count < droppable and remaining > goal:
            remaining -= size_bytes(self._entries[count])
            count += 1
        self._drop(count)

    @property
    def _cache_first(self) -> int:
        return self.last_index - len(self._entries) + 1

    def _drop(self, count: int) -> None:
        self.cache_bytes -= sum(map(size_bytes, self._entries[:count]))
        del self._entries[:count]
