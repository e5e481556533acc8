"""Whether a node would start from a data directory, and what its journal holds.

`verify` is a start whose disk keeps nothing of what it writes; `dump` is the scan of a start, which shows
each record as it accepts it. So both find what a start finds, and end with its error.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from quorum.cli.offline.entries import describe_record
from quorum.config.node import NodeSection, RaftSection
from quorum.node.storage import Storage, open_storage
from quorum.platform.runtime import Disk
from quorum.raft.datadir.identity import Start, journal_directory, load_identity
from quorum.raft.journal.format import Record, SegmentHeader
from quorum.raft.journal.recovery import scan_journal

#: No group needs a new segment, which a disk that keeps nothing could not open again.
_SEGMENT_BYTES_MAX = 1 << 31


def verify(disk: Disk, data_dir: str, warn: Callable[[str], None]) -> Storage:
    """Start from a data directory.

    Args:
        disk: on which nothing is kept.
        data_dir: that nobody uses.
        warn: takes a line about each thing that a start would change or get by.

    Returns:
        What a node would start with; closed.
    """
    identity = load_identity(disk, data_dir)
    node = NodeSection(identity.node_id, identity.cluster_name, Path(data_dir))
    raft = RaftSection(segment_bytes_max=_SEGMENT_BYTES_MAX, log_cache_bytes_max=0)
    storage = open_storage(node, raft, disk, Start.PLAIN, random.SystemRandom(), warn)
    storage.close()
    return storage


def dump(disk: Disk, data_dir: str, show: Callable[[str], object]) -> None:
    """Show every record in the order of writing, up to the first bad byte, a JSON object each.

    Args:
        disk: for reading.
        data_dir: that nobody uses.
        show: takes a line.
    """

    def visit(record: Record | SegmentHeader, path: str, offset: int) -> None:
        segment = path.rpartition("/")[2]
        show(json.dumps({"segment": segment, "offset": offset, **describe_record(record)}))

    scan_journal(disk, journal_directory(data_dir), visit)
