"""Lets go of older snapshots, and of the log that the kept ones make needless. Soft state only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from quorum.errors import PASSING_ERRNOS
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.core.messages import Compacted, Stimulus
from quorum.raft.journal.journal import Journal
from quorum.raft.journal.writer import JournalWriter
from quorum.raft.snapshots.snapshots import SnapshotStore
from quorum.raft.snapshots.writer import SNAPSHOT_LANE

log = logging.getLogger("quorate.snapshots")

#: how long after a removal of older snapshots that the full disk refused it is tried again
REMOVAL_RETRY_MS = 1000.0


class Compaction:
    """Keeps two snapshots, the log after the older one, and a segment of what is before.

    That segment is for members that were away for a moment: they need no snapshot then, however often one is
    taken. The log goes when the older files are gone.
    """

    def __init__(
        self,
        store: SnapshotStore,
        journal: Journal,
        writer: JournalWriter,
        runtime: Runtime,
        step: Callable[[Stimulus], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Begin with nothing under way.

        Args:
            store: has the snapshots.
            journal: is compacted.
            writer: removes compacted segments after what it writes.
            runtime: loop and lanes.
            step: tells the core what was compacted.
            fail: stops the node.
        """
        self._store = store
        self._journal = journal
        self._writer = writer
        self._runtime = runtime
        self._step = step
        self._fail = fail
        #: of the state that the last call spoke of
        self._applied_index = 0
        #: whether a compaction follows once what is staged is durable
        self._follows = False
        #: the next attempt to remove older snapshots
        self._removal: TimerHandle | None = None
        self._stopped = False

    def compact(self, applied_index: int) -> None:
        """Let go of what a state with this log index does not need."""
        self._applied_index = applied_index
        self._compact()

    def stop(self) -> None:
        """Remove nothing any more: the node stops."""
        self._stopped = True
        if self._removal is not None:
            self._removal.cancel()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - stops the node with the story
            self._fail(error)

    def _compact(self) -> None:
        oldest_index, paths = self._store.detach(self._applied_index)
        if not paths:
            self._compact_log(oldest_index)
            return

        def removed(_: None, error: BaseException | None) -> None:
            if self._stopped:
                return
            if error is None:
                self._guard(partial(self._compact_log, oldest_index))
            elif isinstance(error, OSError) and error.errno in PASSING_ERRNOS:
                # Some file systems need room to remove a name.
                log.warning(
                    "older snapshots cannot be removed, next try in %g s: %s", REMOVAL_RETRY_MS / 1000, error
                )
                if self._removal is not None:
                    self._removal.cancel()
                self._removal = self._runtime.call_later(REMOVAL_RETRY_MS, self._guard, self._compact)
            else:
                self._fail(error)

        self._runtime.run_in_thread(SNAPSHOT_LANE, partial(self._store.remove, paths, oldest_index), removed)

    def _compact_log(self, oldest_index: int) -> None:
        first_index = self._journal.first_index
        # Segments before the first entry are dead: an installed snapshot has taken their entries back.
        keep_from_index = self._journal.segment_before(max(oldest_index + 1, first_index))
        self._writer.compact(keep_from_index, self._compacted)
        if self._journal.first_index > first_index:
            self._step(Compacted(self._journal.first_index))
        if self._journal.takes_back and not self._follows:
            self._follows = True
            self._writer.submit((), partial(self._guard, self._compact_again))

    def _compact_again(self) -> None:
        self._follows = False
        self._compact()

    def _compacted(self, segments: int) -> None:
        if segments:
            log.info(
                "compacted %d segments; the log begins with entry %d", segments, self._journal.first_index
            )
