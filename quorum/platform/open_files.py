"""How many files and sockets this process may have open, and how many of them connections may take.

Decides the share of connections: what a journal, snapshots, logs, peers and the admin port need is kept free,
so that no number of clients costs a server its disk. Knows no protocol. The limit itself belongs to the
process; only commands raise it.

Source: getrlimit(2) (RLIMIT_NOFILE).
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger("quorate.files")

#: a process with fewer is warned of: its clients and files fit, a storm of clients may not
OPEN_FILES_WANTED: Final = 8192
#: where a system sets no limit, as many as Linux lets a process have by default (fs.nr_open)
_UNLIMITED: Final = 1 << 20
#: kept free for journal, snapshots, peers (64 handshakes and two links a member), the admin port (256)
RESERVED_FILES: Final = 512


def open_files_max() -> int:
    """Return how many files and sockets this process may have open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_open_files() -> int:
    """Let this process have as many files open as its user may; warns if these are few.

    Returns:
        How many that are.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _UNLIMITED if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("at most %d files may be open, the limit cannot be raised: %s", soft, error)
    limit = open_files_max()
    if limit < OPEN_FILES_WANTED:
        log.warning(
            "at most %d files and sockets may be open, %d are wanted: raise the hard limit (ulimit -Hn)",
            limit,
            OPEN_FILES_WANTED,
        )
    return limit


def connections_within(open_files: int, reserved: int = RESERVED_FILES) -> int:
    """Return how many connections leave room for everything else; at least 1.

    Args:
        open_files: how many files and sockets the process may have open.
        reserved: how many are for everything else; at most half of all are kept free.
    """
    return max(1, open_files - min(reserved, open_files // 2))
