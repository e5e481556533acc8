"""A snapshot that a peer sends, on its way to the disk.

Decides that its pieces follow each other and end where it was said. Does not know who asks for them
(quorum/raft/core/receiving.py), nor what makes a file a snapshot (snapshots.py). Soft state: a part that has
arrived is removed by the next start.
"""

from __future__ import annotations

from quorum.raft.snapshots.snapshots import (
    PartialSnapshot,
    SnapshotFile,
    SnapshotStore,
    SnapshotTransferError,
)


class SnapshotReceiver:
    """The receiving side of a transfer. Methods may run in the snapshot lane, one after the other."""

    def __init__(self, store: SnapshotStore, log_index: int, term: int, total_bytes: int) -> None:
        """Begin to write it aside; an unfinished one of the same place is discarded.

        Args:
            store: gets it when it is finished.
            log_index: of the snapshot.
            term: of the snapshot.
            total_bytes: size of its file.
        """
        self._partial = PartialSnapshot(store, log_index, term, "received")
        self._total_bytes = total_bytes

    @property
    def received_bytes(self) -> int:
        """How much has arrived: the offset of the next piece."""
        return self._partial.size

    def write(self, offset: int, data: bytes) -> None:
        """Write the next piece."""
        have = self._partial.size
        if offset != have:
            raise SnapshotTransferError(f"a piece at byte {offset} arrived, {have} bytes have arrived before")
        if offset + len(data) > self._total_bytes:
            raise SnapshotTransferError(f"bytes beyond the announced {self._total_bytes} arrived")
        self._partial.append([data])

    def finish(self) -> SnapshotFile:
        """Make the file durable, verify it and give it its name; now it is one of the store's snapshots."""
        if self._partial.size != self._total_bytes:
            have = self._partial.size
            raise SnapshotTransferError(f"{have} of the announced {self._total_bytes} bytes have arrived")
        return self._partial.finish()

    def abort(self) -> None:
        """Give up and remove the file."""
        self._partial.discard()
