"""What the files of one log lack, and which files make a segment durable.

Decides nothing about when: the log asks for a job. Soft state.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from broker.log.epochs import LeaderEpochs
from broker.log.flushing import FlushJob
from broker.log.producers import Producers
from broker.log.recovery import EPOCHS_NAME
from broker.log.segment import Segment, file_name


class Unsaved:
    """What one log has to save."""

    def __init__(
        self, folder: str, unsynced: Sequence[tuple[str, bytes]], segments: Sequence[Segment]
    ) -> None:
        """Look at the files.

        Args:
            folder: the log's.
            unsynced: (path, content) of files that must be durable before the first record is.
            segments: the log's.
        """
        self._folder = folder
        self._unsynced = tuple(unsynced)
        #: bytes of the active segment that are durable or on their way
        self.flushed_bytes = 0
        #: the offset after the last record that is
        self.flushed_offset = 0
        #: when flush.ms last asked for it, by a clock that never goes back
        self.flushed_ms = 0
        #: whether only memory has something
        has_records = any(segment.size for segment in segments)
        self.is_anything = has_records and not Path(self._snapshot_path(segments[-1])).exists()

    def job(self, segment: Segment, epochs: LeaderEpochs, producers: Producers | None = None) -> FlushJob:
        """Collect what makes a segment durable up to now; the producers at its end if it is closed there.

        Their snapshot vouches for the list of aborted transactions, which is there before.
        """
        files = [*self._unsynced, (f"{self._folder}/{EPOCHS_NAME}", epochs.to_bytes())]
        self._unsynced = ()
        if producers is not None:
            files += producers.aborted.files(segment.base_offset)
            files.append((self._snapshot_path(segment), producers.to_bytes()))
        files.append((segment.stem + ".timeindex", segment.times.to_bytes()))
        files.append((segment.stem + ".index", segment.offsets.to_bytes()))
        return FlushJob(segment.log_path, tuple(files))

    def _snapshot_path(self, segment: Segment) -> str:
        return f"{self._folder}/{file_name(segment.next_offset)}.snapshot"
