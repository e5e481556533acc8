"""What a journal holds and whether a node would start from it: `verify` judges, `dump` reads on.

The judgement is that of a start (journal_recovery.scan_journal, Recovered.check_reaches); the counts come
from a reader that goes on behind damage (journal_survey). Memory is bounded by the largest segment and four
bytes an entry. Changes nothing.

Source: raft, "Journal".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from quorum.cli.offline.entries import Plain, describe_record
from quorum.cli.offline.snapshot import SNAPSHOT_NAME, check_file
from quorum.errors import DataDamagedError, DataDirError, UsageError
from quorum.platform.runtime import Disk
from quorum.raft.core.entry import Entry
from quorum.raft.datadir.forcing import MARKER_NAME, read_marker
from quorum.raft.datadir.identity import (
    FORMATTING_NAME,
    IDENTITY_NAME,
    NotFormattedError,
    journal_directory,
    load_identity,
    snapshot_directory,
)
from quorum.raft.journal.format import (
    PARTIAL_SUFFIX,
    FormatVersionError,
    Install,
    Record,
    SegmentHeader,
    segment_name,
    sequence_of,
)
from quorum.raft.journal.note import NOTE_NAME, DurableEnd, read_note, unreadable_slots
from quorum.raft.journal.recovery import JournalScan, list_segments, read_all, scan_journal
from quorum.raft.journal.start import Recovered, TailCollector
from quorum.raft.journal.survey import Finding, FoundRecord, FoundTrailer, UnreadableRecord, survey
from quorum.raft.snapshots.format import SnapshotDamagedError


@dataclass(slots=True)
class SegmentSummary:
    """What can be read of one segment.

    Attributes:
        name: of the file.
        size_bytes: of the file.
        groups: groups with a good trailer.
        records: good records.
        entries: those of them that are log entries.
        indexes: (lowest, highest) log index of the entries, None without one.
        terms: (lowest, highest) term of the entries, None without one.
        unreadable: what cannot be read, in order.
        state: "good", or what is to be said of it.
        damaged: whether that is damage.
    """

    name: str
    size_bytes: int
    groups: int = 0
    records: int = 0
    entries: int = 0
    indexes: tuple[int, int] | None = None
    terms: tuple[int, int] | None = None
    unreadable: list[UnreadableRecord] = field(default_factory=list)
    state: str = "good"
    damaged: bool = False

    def take(self, finding: Finding) -> None:
        """Count a finding."""
        match finding:
            case FoundRecord(record=record):
                self.records += 1
                if isinstance(record, Entry):
                    self.entries += 1
                    self.indexes = _widened(self.indexes, record.index)
                    self.terms = _widened(self.terms, record.term)
            case FoundTrailer():
                self.groups += 1
            case UnreadableRecord():
                self.unreadable.append(finding)


def _widened(bounds: tuple[int, int] | None, number: int) -> tuple[int, int]:
    return (number, number) if bounds is None else (min(bounds[0], number), max(bounds[1], number))


class SnapshotSummary(NamedTuple):
    """A snapshot file beside the journal.

    Attributes:
        name: of the file.
        log_index: the last entry that it covers, 0 where its header cannot be read.
        cluster_id: of its header, "" where that cannot be read.
        problem: "" if it is good.
    """

    name: str
    log_index: int
    cluster_id: str
    problem: str


@dataclass(slots=True)
class Verification:
    """What `verify` found.

    Attributes:
        data_dir: that was looked at.
        segments: oldest first.
        recovered: what a start would make of it, None if it cannot be read to its end.
        torn: what a start would cut off and why, "" for nothing; no damage.
        snapshots: oldest first.
        notes: what is there besides and does no harm.
        problems: why a start would refuse; empty if it would not.
        survived: damage that a start gets by without losing anything.
        fallbacks: what a start would do about that.
    """

    data_dir: str
    segments: list[SegmentSummary] = field(default_factory=list)
    recovered: Recovered | None = None
    torn: str = ""
    snapshots: list[SnapshotSummary] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[DataDirError] = field(default_factory=list)
    survived: list[DataDirError] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The judgement in a word: "good", "torn", "fallback" or "damaged"."""
        if self.problems:
            return "damaged"
        return "fallback" if self.survived else "torn" if self.torn else "good"


def verify(disk: Disk, data_dir: str) -> Verification:
    """Judge journal, snapshots and identity of a data directory as a start would, and count what is there.

    Args:
        disk: for reading.
        data_dir: that nobody uses.

    Raises:
        UsageError: another version wrote it.
        OSError: the disk refuses.
    """
    result = Verification(data_dir)
    directory = journal_directory(data_dir)
    tail = TailCollector(0)
    scan: JournalScan | None = None
    try:
        for sequence in list_segments(disk, directory):
            result.segments.append(_summarize(disk, directory, sequence))
        scan = scan_journal(disk, directory, tail.visit, accept_loss=True)
        if scan.loss is not None:
            result.problems.append(scan.loss)
    except DataDirError as error:
        result.problems.append(error)
    _name_strangers(disk, directory, result)
    damaged = _check_snapshots(disk, data_dir, result)
    if scan is not None:
        loss = "" if scan.loss is None else scan.loss.message
        result.recovered = tail.recovered(scan.log, scan.torn, loss)
        if scan.loss is None:
            _judge_end(scan, result, read_note(disk, directory))
            if problem := unreadable_slots(disk, directory):
                result.notes.append(f"{directory}/{NOTE_NAME}: {problem}; the next start writes it anew")
    _judge_snapshots(directory, damaged, result)
    _judge_segments(result)
    _check_identity(disk, data_dir, result)
    return result


def _summarize(disk: Disk, directory: str, sequence: int) -> SegmentSummary:
    name = segment_name(sequence)
    data = read_all(disk, f"{directory}/{name}")
    summary = SegmentSummary(name, len(data))
    for finding in _findings(name, data, sequence):
        summary.take(finding)
    return summary


def _findings(name: str, data: bytes, sequence: int) -> Iterator[Finding]:
    try:
        yield from survey(data, sequence)
    except FormatVersionError as error:
        raise UsageError(f"{name} cannot be read: {error}", "use the version that wrote it") from error


def _name_strangers(disk: Disk, directory: str, result: Verification) -> None:
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(PARTIAL_SUFFIX):
            _judge_unfinished(disk, f"{directory}/{name}", result)
        elif sequence_of(name) is None and name != NOTE_NAME:
            result.notes.append(f"{directory}/{name} is no segment; a node takes no notice of it")


def _judge_unfinished(disk: Disk, path: str, result: Verification) -> None:
    """Say what a start does with what it removes, or cannot remove."""
    try:
        disk.listdir(path)
    except OSError:
        result.notes.append(f"{path} was never finished; the next start removes it")
    else:
        result.problems.append(DataDirError(f"{path} is a folder, which no start removes", "move it away"))


def _check_snapshots(disk: Disk, data_dir: str, result: Verification) -> list[SnapshotDamagedError]:
    """List the snapshots; return what is damaged, oldest first."""
    damaged = []
    directory = snapshot_directory(data_dir)
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        names = []
    for name in names:
        path = f"{directory}/{name}"
        if name.endswith(PARTIAL_SUFFIX):
            _judge_unfinished(disk, path, result)
        elif not SNAPSHOT_NAME.fullmatch(name):
            result.notes.append(f"{path} is no snapshot; a node takes no notice of it")
        else:
            header, error = check_file(disk, path)
            problem = "" if error is None else error.message
            place = (0, "") if header is None else (header.log_index, header.cluster_id)
            result.snapshots.append(SnapshotSummary(name, *place, problem))
            if error is not None:
                damaged.append(error)
    return damaged


def _judge_snapshots(directory: str, damaged: list[SnapshotDamagedError], result: Verification) -> None:
    """Tell damaged snapshots that a start gets by from those that it needs."""
    good = [snapshot for snapshot in result.snapshots if not snapshot.problem]
    unreached: DataDirError | None = None
    if result.recovered is not None:
        try:
            result.recovered.check_reaches(directory, good[-1].log_index if good else 0)
        except DataDirError as error:
            unreached = error
    if not good or unreached is not None:
        # Where none is good the log may begin with entry 1; a start refuses all the same.
        result.problems += damaged[::-1]
        result.problems += [] if unreached is None else [unreached]
        return
    result.survived += damaged[::-1]
    taken = good[-1].name
    for each in damaged:
        name = each.path.rpartition("/")[2]
        aside = (
            f"sets {name} aside, takes {taken}" if name > taken else f"takes {taken}, does not need {name}"
        )
        result.fallbacks.append(f"{aside}, and applies the log behind it")


def _judge_end(scan: JournalScan, result: Verification, note: DurableEnd | None) -> None:
    """Say how the newest segment ends.

    A group without its trailer is what a crash leaves, unless the note says that it was durable: then
    something else took the trailer. All records of the group are there, and the start writes it anew.
    """
    newest = result.segments[-1]
    if scan.trailer and note is not None and note.group == scan.after.group - 1:
        problem = f"{scan.torn or 'its trailer is missing'}, and the group was durable with it"
        error = DataDamagedError(scan.path, scan.closing_start, problem, "look at that file and its disk")
        result.survived.append(error)
        result.fallbacks.append(f"finds all records of the last group of {newest.name}, writes its trailer")
        return
    if scan.torn:
        result.torn = f"{scan.torn_bytes} bytes from byte {scan.tail} of {scan.path} on: {scan.torn}"
        newest.state = (
            f"torn: {scan.torn_bytes} bytes from byte {scan.tail} on, which the next start cuts off"
        )
    elif scan.trailer:
        newest.state = "ends without its last trailer, which the next start adds"


def _judge_segments(result: Verification) -> None:
    """Say of each segment what is damaged in it."""
    errors = (*result.problems, *result.survived)
    paths = {error.path: error for error in errors if isinstance(error, DataDamagedError)}
    directory = journal_directory(result.data_dir)
    for place, summary in enumerate(result.segments):
        error = paths.get(f"{directory}/{summary.name}")
        newest_and_judged = result.recovered is not None and place == len(result.segments) - 1
        if error is not None:
            summary.damaged = True
            summary.state = f"DAMAGED at byte {error.offset}"
        elif summary.unreadable and not newest_and_judged:
            summary.damaged = True
            summary.state = f"UNREADABLE from byte {summary.unreadable[0].start}"


def _check_identity(disk: Disk, data_dir: str, result: Verification) -> None:
    """Compare the identity with the cluster that journal and snapshots say."""
    try:
        identity = load_identity(disk, data_dir)
    except NotFormattedError as error:
        result.problems.append(
            DataDirError(error.message, f"put {IDENTITY_NAME} back; a node refuses the directory without it")
        )
        return
    except DataDirError as error:
        result.problems.append(error)
        return
    if FORMATTING_NAME in disk.listdir(data_dir):
        _judge_unfinished(disk, f"{data_dir}/{FORMATTING_NAME}", result)
    latest = _latest_cluster_id(result)
    differs = bool(identity.cluster_id and latest and identity.cluster_id != latest)
    try:
        marked = read_marker(disk, data_dir)
    except DataDamagedError as error:
        if latest and identity.cluster_id != latest:
            # Only then a start asks whether the marker explains it.
            result.problems.append(error)
        else:
            result.survived.append(error)
            result.fallbacks.append(f"takes no notice of {MARKER_NAME}; with --force-new-cluster it refuses")
        return
    if differs and marked == latest:
        result.notes.append(
            f"{data_dir} was forced into cluster {latest}; the next start writes that into {IDENTITY_NAME}"
        )
    elif differs:
        forced = f", and {MARKER_NAME} names {marked}" if marked else ""
        result.problems.append(
            DataDirError(
                f"{data_dir}: {IDENTITY_NAME} belongs to cluster {identity.cluster_id}, its journal and "
                f"snapshots to {latest}{forced}",
                "put identity, journal and snapshots of one node together again",
            )
        )
    elif marked and latest and marked != latest:
        result.notes.append(
            f"{data_dir}/{MARKER_NAME} names cluster {marked}: a --force-new-cluster was not finished, and a "
            f"start without it goes on in cluster {latest}"
        )


def _latest_cluster_id(result: Verification) -> str:
    """Return the cluster at the end of the log, "" where nothing says it."""
    snapshot_index, latest = max(
        ((each.log_index, each.cluster_id) for each in result.snapshots if not each.problem), default=(0, "")
    )
    entries = () if result.recovered is None else result.recovered.configuration_entries
    if entries and entries[-1].index > snapshot_index:
        configuration = describe_record(entries[-1], values=False).get("configuration")
        return str(configuration.get("cluster_id")) if isinstance(configuration, dict) else ""
    return latest


class DumpedRow(NamedTuple):
    """One record, or one place that cannot be read.

    Attributes:
        segment: the file's name.
        offset: the first byte.
        content: what stands there; {"type": "unreadable", "end", "problem"} where nothing can be read.
    """

    segment: str
    offset: int
    content: Plain


def dump(
    disk: Disk, data_dir: str, *, first: int | None, last: int | None, values: bool
) -> Iterator[DumpedRow]:
    """Yield every record in the order of writing, also behind damage.

    Entries are yielded as they were written: one whose index is not above the last says which it supersedes.

    Args:
        disk: for reading.
        data_dir: that nobody uses.
        first: lowest log index wanted; with a bound only entries are yielded, and what cannot be read.
        last: highest log index wanted, inclusive.
        values: also the commands of batches.

    Raises:
        JournalMissingError: there is no segment.
        UsageError: another version wrote it.
        OSError: the disk refuses.
    """
    directory = journal_directory(data_dir)
    sequences = list_segments(disk, directory)
    bounded = first is not None or last is not None
    wanted = range(first or 0, (1 << 64) if last is None else last + 1)
    end = _LogEnd()
    expected = sequences[0]
    for sequence in sequences:
        if missing := sequence - expected:
            more = "" if missing == 1 else f", and so are the next {missing - 1}"
            yield _unreadable(segment_name(expected), UnreadableRecord(0, 0, f"the segment is missing{more}"))
        expected = sequence + 1
        name = segment_name(sequence)
        for finding in _findings(name, read_all(disk, f"{directory}/{name}"), sequence):
            if isinstance(finding, UnreadableRecord):
                yield _unreadable(name, finding)
            elif isinstance(finding, FoundRecord):
                record = finding.record
                superseded = end.take(record)
                if bounded and not (isinstance(record, Entry) and record.index in wanted):
                    continue
                yield DumpedRow(name, finding.offset, describe_record(record, values=values) | superseded)


def _unreadable(segment: str, gap: UnreadableRecord) -> DumpedRow:
    return DumpedRow(segment, gap.start, {"type": "unreadable", "end": gap.end, "problem": gap.problem})


class _LogEnd:
    """The last log index, as far as the records say it that could be read."""

    def __init__(self) -> None:
        self._index = 0

    def take(self, record: Record | SegmentHeader) -> Plain:
        """Follow a record; returns {"supersedes": [first, last]} of an entry that supersedes others."""
        before = self._index
        if isinstance(record, Entry):
            self._index = record.index
            return {"supersedes": [record.index, before]} if record.index <= before else {}
        if isinstance(record, SegmentHeader):
            self._index = record.last_index
        elif isinstance(record, Install) and record.resets_log:
            self._index = record.log_index
        return {}


def judge(disk: Disk, data_dir: str) -> str:
    """Judge the segments as a start would.

    Returns:
        What the start would cut off as torn, "" for nothing.

    Raises:
        DataDamagedError: a start would refuse.
    """
    return scan_journal(disk, journal_directory(data_dir)).torn
