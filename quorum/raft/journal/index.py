"""Where each live log entry is, and everything else that a journal's records add up to. Pure.

Decides what a record means: a log entry supersedes all from its index on, an install drops a log that does
not hold the snapshot's last entry, the last hard state and the highest origin incarnation count. Used alike
when records are read at the start and when they are written, so the two can never disagree. Soft state: all
of it is built anew from the segments. Memory: four bytes an entry, and a pair for each run of equal terms.

Source: Raft §5.3 (conflicts), §7 (an installed snapshot and the log).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import Install, OriginIncarnation, Record, SegmentHeader


class LogGapError(ValueError):
    """A record that does not follow from the ones before it."""


class SegmentIndex:
    """The live entries of one segment, contiguous in the log though not always in the file."""

    __slots__ = ("first_index", "header_group", "offsets", "path", "sequence")

    def __init__(self, sequence: int, path: str, header_group: int, first_index: int) -> None:
        self.sequence = sequence
        self.path = path
        #: number of the group that the segment's header is
        self.header_group = header_group
        #: log index of offsets[0]; where there are none, the index that the next live entry would have
        self.first_index = first_index
        #: offset in the file by log index - first_index
        self.offsets = array("I")

    @property
    def last_index(self) -> int:
        """The segment's last live log index, first_index - 1 if it has none."""
        return self.first_index + len(self.offsets) - 1


class LogIndex:
    """What the records of a journal say, in the order in which they were written."""

    def __init__(self, header: SegmentHeader) -> None:
        """Begin with what came before the oldest segment.

        Args:
            header: of that segment.
        """
        self.hard_state = HardState(header.term, header.voted_for)
        self.install = Install(header.install_index, header.install_term)
        self.origin_incarnation = header.origin_incarnation
        #: oldest first; entries of an older one have lower indexes
        self.segments: list[SegmentIndex] = []
        self.first_index = header.last_index + 1
        self.last_index = header.last_index
        self.last_term = header.last_term
        #: (first index, term) of each run of equal terms in the live log, ascending
        self.term_runs: list[tuple[int, int]] = []
        #: term of the entry before first_index, None where no segment says it
        self.base_term: int | None = header.last_term
        #: whether a record since the last `settle` took entries back: on the disk they are still there
        self.takes_back = False
        # The segments that were compacted away may have held entries that this one supersedes.
        self._may_reach_below = header.sequence > 1

    def seal(self) -> None:
        """Refuse from now on what only records of the past may do: reach below the first index."""
        self._may_reach_below = False
        self.settle()

    def settle(self) -> None:
        """Take everything added as durable, and what it supersedes as gone for good."""
        self.takes_back = False

    def begin_segment(self, sequence: int, path: str, header_group: int) -> None:
        """Add a segment, which is the newest from now on."""
        self.segments.append(SegmentIndex(sequence, path, header_group, self.last_index + 1))

    def add(self, record: Record, offset: int) -> None:
        """Take a record of the newest segment into account.

        Args:
            record: the record.
            offset: where it begins in the segment.
        """
        if isinstance(record, Entry):
            self._add_entry(record.index, record.term, offset)
        elif isinstance(record, HardState):
            self._add_hard_state(record)
        elif isinstance(record, OriginIncarnation):
            if record.number <= self.origin_incarnation:
                raise LogGapError(f"origin incarnation {record.number} follows {self.origin_incarnation}")
            self.origin_incarnation = record.number
        else:
            self._add_install(record)

    def resolve(self, install: Install) -> Install:
        """Return the install with `resets_log` set: does the log as it is lack the snapshot's last entry?"""
        index, term, _ = install
        if index < self.first_index - 1:
            return install._replace(resets_log=False)
        known = self.term_at(index)
        # Where the term before the first entry is not known the caller must have had the snapshot already.
        unknown_base = known is None and index == self.first_index - 1
        return install._replace(resets_log=not unknown_base and known != term)

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at a log index, None if the segments do not say it."""
        if index == self.first_index - 1:
            return self.base_term
        if not self.first_index <= index <= self.last_index:
            return None
        return self.term_runs[bisect_right(self.term_runs, index, key=_run_first) - 1][1]

    def find(self, index: int) -> tuple[SegmentIndex, int]:
        """Return the segment that holds a live entry, and its offset there.

        Args:
            index: in first_index..last_index.
        """
        segment = self.segments[bisect_right(self.segments, index, key=_segment_first) - 1]
        return segment, segment.offsets[index - segment.first_index]

    def segment_before(self, index: int) -> int:
        """Return the first log index of the segment before that of a log index, or of the oldest one."""
        place = bisect_right(self.segments, index, key=_segment_first) - 1
        return self.segments[max(place - 1, 0)].first_index

    def droppable(self, keep_from_index: int, keep_from_sequence: int) -> int:
        """Return how many of the oldest segments hold only entries below an index.

        None while entries are being taken back.

        Args:
            keep_from_index: first log index that must stay.
            keep_from_sequence: first segment that must stay.
        """
        count = 0
        while (
            not self.takes_back
            and self.segments[count].sequence < keep_from_sequence
            and self.segments[count].last_index < keep_from_index
        ):
            count += 1
        return count

    def drop(self, count: int) -> list[SegmentIndex]:
        """Forget the `count` oldest segments and their entries; return them, oldest first."""
        dropped = self.segments[:count]
        del self.segments[:count]
        first = self.segments[0].first_index
        if first > self.first_index:
            self.base_term = self.term_at(first - 1)
            runs = self.term_runs
            covering = bisect_right(runs, first, key=_run_first) - 1
            self.term_runs = [(max(start, first), term) for start, term in runs[max(covering, 0) :]]
            if first > self.last_index:
                self.term_runs = []
            self.first_index = first
        return dropped

    def _add_entry(self, index: int, term: int, offset: int) -> None:
        if index == self.last_index + 1:
            previous_term = self.last_term
        else:
            self._check_reachable(index)
            previous_term = self.term_at(index - 1) or 0
        if term < previous_term:
            raise LogGapError(f"entry {index} of term {term} follows one of term {previous_term}")
        if index <= self.last_index:
            self._supersede(index)
        if not self.term_runs or self.term_runs[-1][1] != term:
            self.term_runs.append((index, term))
        self.segments[-1].offsets.append(offset)
        self.last_index = index
        self.last_term = term

    def _check_reachable(self, index: int) -> None:
        if index > self.last_index + 1:
            raise LogGapError(f"entry {index} follows entry {self.last_index}")
        if index < 1 or (index < self.first_index and not self._may_reach_below):
            raise LogGapError(f"entry {index} lies before the log, which begins with {self.first_index}")

    def _supersede(self, index: int) -> None:
        """Drop all entries from `index` on."""
        if index < self.first_index:
            self._reset(index - 1, None)
            return
        self.takes_back = True
        for segment in reversed(self.segments):
            if segment.first_index < index:
                del segment.offsets[index - segment.first_index :]
                break
            segment.first_index = index
            del segment.offsets[:]
        while self.term_runs and self.term_runs[-1][0] >= index:
            self.term_runs.pop()
        self.last_index = index - 1
        self.last_term = self.term_runs[-1][1] if self.term_runs else self.base_term or 0

    def _add_hard_state(self, record: HardState) -> None:
        old = self.hard_state
        changed_vote = record.term == old.term and old.voted_for not in (0, record.voted_for)
        if record.term < old.term or changed_vote:
            raise LogGapError(f"{record} follows {old}: term and vote never go back")
        self.hard_state = record

    def _add_install(self, record: Install) -> None:
        if record.resets_log:
            self._reset(record.log_index, record.term)
        if record.log_index > self.install.log_index:
            self.install = record

    def _reset(self, base_index: int, base_term: int | None) -> None:
        """Make the log empty, the next entry being the one after `base_index`."""
        self.takes_back = True
        for segment in self.segments:
            segment.first_index = base_index + 1
            del segment.offsets[:]
        self.term_runs = []
        self.first_index = base_index + 1
        self.last_index = base_index
        self.base_term = base_term
        self.last_term = base_term or 0


def _run_first(run: tuple[int, int]) -> int:
    return run[0]


def _segment_first(segment: SegmentIndex) -> int:
    return segment.first_index
