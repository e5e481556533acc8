"""What the journal says when the disk, or the system, refuses: what passes, and what is final.

Decides the words and the remedies; which error means what is journal.py's. No state.
"""

from __future__ import annotations

import errno

from quorum.errors import DataDirError, NodeStoppedError, remedy_for_os
from quorum.raft.journal.recovery import REPLACE_REMEDY


class JournalFullError(DataDirError):
    """The disk has no room for the group; nothing of it is left on the disk, and it may be written later."""


class JournalNoFilesError(JournalFullError):
    """No file is left to open for the group; the disk is not at fault, and it may be written later."""


class JournalFailedError(NodeStoppedError):
    """The disk failed in a way after which nothing more may be acknowledged: the node must stop."""


def no_files(path: str, error: OSError) -> JournalNoFilesError:
    """Return the error of a file that could not be opened, for there are too many."""
    return JournalNoFilesError(
        f"{path}: {error.strerror}", "allow more open files (ulimit -n); the node goes on by itself then"
    )


def failed(path: str, doing: str, error: OSError) -> JournalFailedError:
    """Return the error after which the node must stop."""
    problem = f"{path}: {doing} failed with {errno.errorcode.get(error.errno or 0, '?')} ({error.strerror})"
    remedy = REPLACE_REMEDY if error.errno == errno.ESTALE else remedy_for_os(error)
    return JournalFailedError(f"{problem}; nothing more may be acknowledged", remedy)
