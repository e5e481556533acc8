"""Snapshots of the state machine, as the shell uses them.

`SnapshotWalk` turns a machine into chunks of plain values while entries go on being applied, `SnapshotLoader`
turns the chunks into an equal machine. This module decides nothing; the form of the chunks is in
snapshot_walk.py.
Source: docs/internals/consensus.md, "Snapshots".
"""

from quorum.core.snapshot_loader import SnapshotFormatError, SnapshotLoader
from quorum.core.snapshot_walk import CHUNK_BYTES_MAX, Chunk, SnapshotOverflowError, SnapshotWalk

__all__ = [
    "CHUNK_BYTES_MAX",
    "Chunk",
    "SnapshotFormatError",
    "SnapshotLoader",
    "SnapshotOverflowError",
    "SnapshotWalk",
]
