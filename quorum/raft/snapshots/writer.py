"""Writes the snapshot that this node takes, in a thread of its own.

Decides how much may wait for the disk: the walker packs chunks in the loop and pauses when `write` says so.
Everything else (CRCs, digest, writing, fsync, verification, rename) happens in the snapshot lane, the
verification in steps with rests between them: nodes that take snapshots at the same time may share few
cores, and what is sent to others uses the same lane. Soft state only: an unfinished file is removed, now or
at the next start. A failure costs the snapshot, never the node: the journal is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from quorum.platform.runtime import Runtime
from quorum.raft.snapshots.format import SnapshotEncoder, SnapshotHeader, Values, pack_chunk
from quorum.raft.snapshots.snapshots import PartialSnapshot, SnapshotFile, SnapshotStore

#: The lane of Runtime.run_in_thread for everything that is done with snapshot files.
SNAPSHOT_LANE = "snapshot"
#: What may wait for the disk before the walker has to pause.
SNAPSHOT_QUEUE_BYTES_MAX = 8 * 1024 * 1024
#: Rest between two steps of the verification.
VERIFY_REST_MS = 8.0
#: The least that a chunk counts, so that many small ones are bounded, too.
_CHUNK_BYTES_MIN = 4096

#: What is left to do for a file that is written, step by step; returns the snapshot.
Finishing: TypeAlias = Generator[None, None, SnapshotFile]


class SnapshotWriter:
    """One snapshot on its way to the disk. Belongs to the loop's thread."""

    def __init__(
        self,
        store: SnapshotStore,
        runtime: Runtime,
        header: SnapshotHeader,
        on_done: Callable[[SnapshotFile | None, BaseException | None], object],
        on_room: Callable[[], object],
        *,
        queue_bytes_max: int = SNAPSHOT_QUEUE_BYTES_MAX,
    ) -> None:
        """Begin a file.

        Args:
            store: gets the snapshot when it is finished.
            runtime: the loop and its threads.
            header: what the snapshot says about itself.
            on_done: called once with the snapshot, or with the error that ended it.
            on_room: called when there is room again after `write` returned False.
            queue_bytes_max: packed bytes that may wait before `write` returns False.
        """
        self._store = store
        self._runtime = runtime
        self._on_done = on_done
        self._on_room = on_room
        self._queue_bytes_max = queue_bytes_max
        self._queued_bytes = 0
        self._paused = False
        self._ended = False
        self._encoder = SnapshotEncoder()
        self._partial: PartialSnapshot | None = None

        def begin() -> None:
            self._partial = PartialSnapshot(store, header.log_index, header.term, "taken")
            self._partial.append(self._encoder.begin(header))

        self._run(begin, 0)

    @property
    def queued_bytes(self) -> int:
        """Packed bytes that wait for the disk."""
        return self._queued_bytes

    def write(self, values: Values) -> bool:
        """Pack a chunk and have it written after the ones before.

        Args:
            values: plain values that msgpack takes.

        Returns:
            Whether the walker may go on; if not, `on_room` says when.
        """
        body = pack_chunk(values)

        def append() -> None:
            assert self._partial is not None
            self._partial.append(self._encoder.chunk(body))

        self._run(append, max(len(body), _CHUNK_BYTES_MIN))
        self._paused = self._queued_bytes >= self._queue_bytes_max
        return not self._paused

    def finish(self) -> None:
        """Finish the file after everything written; `on_done` follows."""

        def end() -> Finishing:
            assert self._partial is not None
            self._partial.append(self._encoder.end())
            self._store.before_finish()
            return self._partial.finish_in_steps()

        def done(steps: Finishing | None, error: BaseException | None) -> None:
            if steps is None:
                assert error is not None
                self._fail(error)
            else:
                self._verify(steps)

        if not self._ended:
            self._runtime.run_in_thread(SNAPSHOT_LANE, end, done)

    def _verify(self, steps: Finishing) -> None:
        """Take the next step towards the finished file."""

        def step() -> SnapshotFile | None:
            try:
                next(steps)
            except StopIteration as end:
                snapshot: SnapshotFile = end.value
                return snapshot
            return None

        def done(snapshot: SnapshotFile | None, error: BaseException | None) -> None:
            if error is not None:
                self._fail(error)
            elif snapshot is None:
                self._runtime.call_later(VERIFY_REST_MS, self._verify, steps)
            elif not self._ended:
                self._ended = True
                self._on_done(snapshot, None)

        if not self._ended:
            self._runtime.run_in_thread(SNAPSHOT_LANE, step, done)

    def abandon(self) -> None:
        """Give up: the file is removed, `on_done` is not called any more."""
        if not self._ended:
            self._ended = True
            self._discard()

    def _run(self, work: Callable[[], None], size: int) -> None:
        if self._ended:
            return
        self._queued_bytes += size

        def done(_: None, error: BaseException | None) -> None:
            self._queued_bytes -= size
            if error is not None:
                self._fail(error)
            elif self._paused and not self._ended and self._queued_bytes * 2 <= self._queue_bytes_max:
                self._paused = False
                self._on_room()

        self._runtime.run_in_thread(SNAPSHOT_LANE, work, done)

    def _fail(self, error: BaseException) -> None:
        if not self._ended:
            self._ended = True
            self._discard()
            self._on_done(None, error)

    def _discard(self) -> None:
        def discard() -> None:
            if self._partial is not None:
                self._partial.discard()

        # What cannot be removed now is removed at the next start.
        self._runtime.run_in_thread(SNAPSHOT_LANE, discard, lambda _result, _error: None)
