"""What the journal says when the disk, or the system, refuses: what passes, and what is final.

Decides the words and the remedies; which error means what is journal.py's. No state.
"""

from __future__ import annotations

import errno

from quorum.errors import PASSING_ERRNOS, DataDirError, NodeStoppedError, remedy_for_os
from quorum.raft.journal.recovery import REPLACE_REMEDY


class JournalFullError(DataDirError):
    """The disk has no room, or the process no file left; nothing of the group is on the disk, and it may be
    written later.
    """


class JournalFailedError(NodeStoppedError):
    """The disk failed in a way after which nothing more may be acknowledged: the node must stop."""


def refused(path: str, doing: str, error: OSError) -> JournalFullError | JournalFailedError:
    """Return the error of what the system refused: to be tried again, or final."""
    if error.errno in PASSING_ERRNOS:
        remedy = f"{remedy_for_os(error)}; the node continues then"
        return JournalFullError(f"{path}: {error.strerror}", remedy)
    return failed(path, doing, error)


def failed(path: str, doing: str, error: OSError) -> JournalFailedError:
    """Return the error after which the node must stop."""
    problem = f"{path}: {doing} failed with {errno.errorcode.get(error.errno or 0, '?')} ({error.strerror})"
    remedy = REPLACE_REMEDY if error.errno == errno.ESTALE else remedy_for_os(error)
    return JournalFailedError(f"{problem}; nothing more may be acknowledged", remedy)
