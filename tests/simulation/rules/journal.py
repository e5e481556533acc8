"""Rules of the journal: what is durable when, what a start makes of a torn disk, what an error ends."""

from __future__ import annotations

from typing import Final

from tests.simulation.rules.edits import Edit, Setting
from tests.simulation.rules.rule import Rule

_JOURNAL = "quorum.raft.journal.journal"
_RECOVERY = "quorum.raft.journal.recovery"
_WRITER = "quorum.raft.journal.writer:JournalWriter"
_INDEX = "quorum.raft.journal.index:LogIndex"
#: why a tail may be judged wrongly
_NOTED = "a tail that is cut too far falls short of the note of the durable end, and is refused all the same"

RULES: Final = (
    Rule(
        "fsync-before-the-callback",
        "consensus.md, D4, Journal",
        "a group is called durable only behind its fsync",
        (Edit(f"{_JOURNAL}:Journal.write", "_sync(group.path, file.fdatasync)", "pass"),),
    ),
    Rule(
        "one-group-at-a-time",
        "consensus.md, Journal",
        "a group is written only after the fsync of the one before returned",
        (
            Edit(f"{_WRITER}._ask_flush", "self._flush_asked or self._writing or self._full", "self._full"),
            Edit(f"{_WRITER}._flush", "self._writing or self._full", "self._full"),
            Edit(f"{_WRITER}._write_in_lane", "self._writing = True", "self._staged = None"),
        ),
        profile="crashes",
    ),
    Rule(
        "a-segment-has-its-name-durably",
        "consensus.md, Journal",
        "the folder is fsynced when a segment is new, before anything in it is acknowledged",
        (
            Edit(
                f"{_JOURNAL}:_create_segment",
                "_sync(directory, lambda: disk.fsync_dir(directory))",
                "pass",
            ),
        ),
    ),
    Rule(
        "a-header-before-its-segment-has-a-name",
        "consensus.md, Journal",
        "each segment's header is durable before its first entry",
        (Edit(f"{_JOURNAL}:_create_segment", "_sync(path, file.fdatasync)", "pass"),),
    ),
    Rule(
        "a-header-holds-term-and-vote",
        "consensus.md, Journal",
        "term and vote stand in every segment's header, so that none vanishes with an older segment",
        (
            Edit(f"{_RECOVERY}:header_of", "term=index.hard_state.term", "term=0"),
            Edit(f"{_RECOVERY}:header_of", "voted_for=index.hard_state.voted_for", "voted_for=0"),
        ),
    ),
    Rule(
        "a-header-holds-the-last-install",
        "consensus.md, Journal, Snapshots",
        "the highest install stands in every header",
        (
            Edit(f"{_RECOVERY}:header_of", "install_index=index.install.log_index", "install_index=0"),
            Edit(f"{_RECOVERY}:header_of", "install_term=index.install.term", "install_term=0"),
        ),
        guard="it speaks only where an installed snapshot breaks on the disk, and the log behind it is gone",
    ),
    Rule(
        "a-header-holds-the-origin-incarnation",
        "ARCHITECTURE.md, Life of a write; consensus.md, Journal",
        "the origin incarnation stands in every header",
        (
            Edit(
                f"{_RECOVERY}:header_of",
                "origin_incarnation=index.origin_incarnation",
                # None at all would let the next life begin at random, which is never wrong.
                "origin_incarnation=min(index.origin_incarnation, 1)",
            ),
        ),
        guard="the snapshot behind which a segment goes mostly knows a later one",
        beside="a-snapshot-may-know-a-later-origin-incarnation",
        profile="crashes",
    ),
    Rule(
        "a-start-closes-its-tail",
        "consensus.md, Journal",
        "what a start keeps is closed with a trailer before anything follows it",
        (
            Edit(
                f"{_RECOVERY}:close_tail",
                "file.pwrite([scan.closing, scan.trailer], scan.closing_start)",
                "file.pwrite([scan.closing], scan.closing_start)",
            ),
        ),
        profile="crashes",
    ),
    Rule(
        "a-start-writes-its-tail-again",
        "consensus.md, Journal",
        "what a start read may have been in the page cache only: it is made durable before it counts",
        (
            Edit(
                f"{_RECOVERY}:close_tail",
                "file.pwrite([scan.closing, scan.trailer], scan.closing_start) file.fdatasync() "
                "disk.fsync_dir(directory)",
                "if scan.trailer:\n    file.pwrite([scan.closing, scan.trailer], scan.closing_start)",
            ),
        ),
    ),
    Rule(
        "a-torn-tail-is-cut",
        "consensus.md, Journal",
        "the bytes of a torn group are cut, durably, before anything is written there",
        (Edit(f"{_RECOVERY}:close_tail", "if scan.torn:", "if False:"),),
        profile="crashes",
    ),
    Rule(
        "a-torn-group-is-no-damage",
        "consensus.md, Journal",
        "a group that a power cut tore is cut off, not refused: its trailer may have been kept alone",
        (
            Edit(
                f"{_RECOVERY}:_SegmentReader._judge",
                "if count_zero_parts(records, place.offset) <= trailer.zero_parts:",
                "if True:",
            ),
        ),
        profile="crashes",
    ),
    Rule(
        "damage-before-a-later-group-refuses",
        "consensus.md, Journal",
        "a bad record with a later group behind it is damage: the start is refused",
        (
            Edit(
                f"{_RECOVERY}:_SegmentReader._judge",
                "if later or find_record(data, group.end, next_group) is not None:",
                "if False:",
            ),
        ),
        guard=_NOTED,
        beside="a-journal-reaches-to-its-note",
    ),
    Rule(
        "damage-is-no-torn-tail",
        "consensus.md, Journal",
        "what no crash explains is damage: the start is refused",
        (
            Edit(
                f"{_RECOVERY}:_SegmentReader._judge",
                "if count_zero_parts(records, place.offset) <= trailer.zero_parts:",
                "if False:",
            ),
            Edit(f"{_RECOVERY}:_SegmentReader._judge", "if not newest:", "if False:"),
            Edit(
                f"{_RECOVERY}:_SegmentReader._judge",
                "if later or find_record(data, group.end, next_group) is not None:",
                "if False:",
            ),
        ),
        guard=_NOTED,
        beside="a-journal-reaches-to-its-note",
    ),
    Rule(
        "damage-under-a-trailer-refuses",
        "consensus.md, Journal",
        "a bad record under a valid trailer is damage",
        (
            Edit(
                f"{_RECOVERY}:_SegmentReader._judge",
                "if count_zero_parts(records, place.offset) <= trailer.zero_parts:",
                "if False:",
            ),
        ),
        guard=_NOTED,
        beside="a-journal-reaches-to-its-note",
        profile="disks",
    ),
    Rule(
        "a-journal-reaches-to-its-note",
        "guarantees.md; raft/journal/note.py",
        "a journal that ends before the durable end which its note names is refused",
        (
            Edit(
                f"{_RECOVERY}:_loss",
                "if note is None:",
                "if note is None or note.group >= 0:\n    return None\nif note is None:",
            ),
        ),
        guard="here only flipped bits take an end away, and those are refused as damage",
        beside="damage-is-no-torn-tail",
    ),
    Rule(
        "records-have-checksums",
        "consensus.md, D10",
        "a record whose CRC is wrong is not read",
        (
            Edit(
                "quorum.raft.journal.format:read_frame",
                "if crc != crc32(body, crc32(_PLACE.pack(place.sequence, position, marker, length))):",
                "if False:",
            ),
        ),
        profile="crashes",
    ),
    Rule(
        "an-entry-supersedes-what-it-overtakes",
        "consensus.md, Journal",
        "an entry whose index is not above the last supersedes all entries from its index on",
        (
            Edit(
                "quorum.raft.journal.start:TailCollector.visit",
                "self._truncate(record.index)",
                "pass",
            ),
        ),
        profile="crashes",
    ),
    Rule(
        "a-failed-fsync-is-final",
        "consensus.md, Journal",
        "an fsync that failed is never tried again: the node stops",
        (
            Edit(
                f"{_JOURNAL}:_sync",
                "raise failed(path, 'fsync', error) from error".replace("'", '"'),
                "sync()",
            ),
        ),
        profile="disks",
    ),
    Rule(
        "a-failed-write-is-final",
        "consensus.md, Journal",
        "any write error but a full disk stops the node",
        (Setting(f"{_JOURNAL}:FULL_DISK_ERRNOS", (28, 122, 5)),),
        guard="the group is cut back and written again whole; on a disk whose errors come once that is right",
    ),
    Rule(
        "a-full-disk-is-cut-back",
        "consensus.md, Journal",
        "what a write left on a full disk is cut off, durably",
        (Edit(f"{_JOURNAL}:Journal.write", "self._cut_back(file, group.place.offset)", "pass"),),
        guard="the same group is written to the same place when there is room; what a crash finds of it is "
        "a torn tail, or entries that were never acknowledged",
    ),
    Rule(
        "compaction-drops-the-oldest-first",
        "consensus.md, D5, Journal",
        "segments go whole and oldest first",
        (Edit(f"{_JOURNAL}:Journal.remove", "for path in paths:", "for path in paths[::-1]:"),),
        profile="crashes",
    ),
    Rule(
        "compaction-one-by-one",
        "consensus.md, D5, Journal",
        "the name of a segment is gone durably before the next one goes",
        (
            Edit(
                f"{_JOURNAL}:Journal.remove",
                "_sync(self._directory, lambda: self._disk.fsync_dir(self._directory))",
                "pass",
            ),
        ),
        profile="crashes",
    ),
    Rule(
        "compaction-goes-by-what-is-durable",
        "consensus.md, D5, Journal; journal.Journal.detach",
        "a staged group, whose segment is no file yet, makes no older one needless",
        (
            Edit(f"{_JOURNAL}:Journal.detach", "self._durable.sequence", "self._place.sequence"),
            Edit(f"{_INDEX}.droppable", "not self.takes_back and ", ""),
        ),
        profile="compaction",
    ),
    Rule(
        "term-and-vote-in-the-index-never-fall",
        "consensus.md, Journal",
        "a hard state that goes back stops the node",
        (Edit(f"{_INDEX}._add_hard_state", "if record.term < old.term or changed_vote:", "if False:"),),
        guard="the core never hands one out; beside a node that votes twice it makes a stopped node of it",
        beside="one-vote-per-term",
    ),
)
