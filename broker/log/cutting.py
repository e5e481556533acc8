"""Truncation of a log: what must be read before, and what must be done on the disk afterwards.

Between the two the log changes in memory, in one turn of the event loop. What could be taken for the state of
other batches at the same offsets goes first: producers' snapshots and indexes; the epochs come last, and are
durable before anything is appended.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-101.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.log.files import create_file, remove_file, replace_file, sync_folder
from broker.log.log_start import LOG_START_NAME
from broker.log.producers import Producers
from broker.log.recovery import EPOCHS_NAME, recover_producers, remove_snapshots
from broker.log.segment import Cut, Segment


class CutPlan(NamedTuple):
    """How a log is truncated."""

    #: of the log that was read
    version: int
    log_end_offset: int
    #: how many of its segments are left; the last of them is cut
    kept: int
    #: None: nothing is left, and the log goes on at `end_offset`
    cut: Cut | None
    end_offset: int


def plan_cut(segments: Sequence[Segment], version: int, offset: int, log_start_offset: int) -> CutPlan:
    """Read what is needed to cut every batch that ends at an offset or behind it; any thread may do so.

    Records before the log start do not count: where no others are left, nothing is.
    """
    log_end_offset = segments[-1].next_offset
    if offset >= log_end_offset:
        return CutPlan(version, log_end_offset, len(segments), None, log_end_offset)
    if offset <= log_start_offset:
        return CutPlan(version, log_end_offset, 0, None, offset)
    kept = sum(segment.base_offset <= offset for segment in segments)
    segment = segments[kept - 1]
    position = segment.position_of(offset)
    end_offset = offset if position is None else segment.base_offset_at(position)
    if end_offset <= log_start_offset:
        return CutPlan(version, log_end_offset, 0, None, log_start_offset)
    cut = segment.plan_cut(segment.size if position is None else position, end_offset)
    return CutPlan(version, log_end_offset, kept, cut, end_offset)


class CutJob:
    """What a truncation does on the disk, in a thread."""

    def __init__(
        self,
        folder: str,
        plan: CutPlan,
        removed: Sequence[Segment],
        segments: list[Segment],
        epochs: bytes,
        recover_at_ms: int | None,
    ) -> None:
        """Do nothing yet.

        Args:
            folder: the log's.
            plan: as it was applied.
            removed: segments that are no longer the log's, closed.
            segments: what the log has now; nothing is appended meanwhile.
            epochs: content of their file.
            recover_at_ms: the time, if the producers must be read from the disk.
        """
        #: as read from the disk; None: those in memory are right
        self.producers: Producers | None = None
        self._folder = folder
        self._plan = plan
        self._removed = removed
        self._segments = segments
        self._epochs = epochs
        self._recover_at_ms = recover_at_ms

    def steps(self) -> Iterator[None]:
        """Do it; raises LogStorageError."""
        folder, plan = self._folder, self._plan
        remove_snapshots(folder, 0 if plan.cut is None else plan.end_offset + 1)
        if plan.cut is None:
            remove_file(f"{folder}/{EPOCHS_NAME}")
        # The last one first: what a crash leaves then is a log without a gap.
        for segment in reversed(self._removed):
            segment.remove()
            yield
        if plan.cut is None:
            remove_file(f"{folder}/{LOG_START_NAME}")
            create_file(self._segments[-1].log_path)
        else:
            self._segments[-1].cut_files(plan.cut.position)
            replace_file(f"{folder}/{EPOCHS_NAME}", self._epochs)
        yield
        sync_folder(folder)
        yield
        if self._recover_at_ms is not None:
            self.producers = recover_producers(folder, self._segments, plan.end_offset, self._recover_at_ms)
