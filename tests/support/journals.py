"""Compaction of a journal in one step; a node removes the files in the journal's thread."""

from __future__ import annotations

from quorum.raft.journal.journal import Journal


def compact(journal: Journal, keep_from_index: int) -> int:
    """Drop the oldest segments that hold only entries below an index; return how many were dropped."""
    paths = journal.detach(keep_from_index)
    journal.remove(paths)
    return len(paths)
