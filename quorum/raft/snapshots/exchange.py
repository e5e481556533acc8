"""Snapshots on their way between members: carries out what the core asks and answers with stimuli.

Sending: the first read of a transfer picks the newest snapshot and pins it until the core lets go.
Receiving: pieces are written aside; after the last one the file is verified, made durable, loaded into a
fresh state, and an install record goes to the journal. Only when that record is durable is the state
replaced, and the core hears of it. Anything that fails is a refusal, and the state stays as it was (defect
D14 of pysyncobj).
The core decides what is sent and to whom; this module does files.

Everything slow runs in the snapshot lane, so that the loop goes on answering heartbeats. Soft state only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from quorum.platform.runtime import Disk, Runtime
from quorum.raft.core.messages import (
    ChunkRead,
    ChunkReadFailed,
    ChunkWritten,
    Ready,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
    Stimulus,
)
from quorum.raft.journal.format import Install, Record
from quorum.raft.snapshots.format import SnapshotDamagedError, SnapshotReader
from quorum.raft.snapshots.snapshots import PartialSnapshot, SnapshotFile, SnapshotStore
from quorum.raft.snapshots.writer import SNAPSHOT_LANE

State = TypeVar("State")
Result = TypeVar("Result")
log = logging.getLogger("quorate.snapshots")


class InstallJournal(Protocol):
    """Where installs are made durable."""

    def submit(self, records: tuple[Record, ...], on_durable: Callable[[], object]) -> None:
        """Write records after everything submitted before and call back when they are durable."""


class _Incoming(NamedTuple):
    """A snapshot that is being received."""

    install: int
    partial: PartialSnapshot


class SnapshotCourier(Generic[State]):
    """Both ends of snapshot transfers on one node."""

    def __init__(
        self,
        store: SnapshotStore,
        disk: Disk,
        journal: InstallJournal,
        runtime: Runtime,
        load: Callable[[SnapshotReader], tuple[State, SnapshotMark]],
        install: Callable[[State, SnapshotMark], None],
        step: Callable[[Stimulus], None],
        fail: Callable[[BaseException], None],
        on_damaged: Callable[[], None],
    ) -> None:
        """Begin with no transfer.

        Args:
            store: the snapshot files.
            disk: where they are.
            journal: makes install records durable.
            runtime: the loop and its lanes.
            load: builds the state from a snapshot; runs in the snapshot lane.
            install: replaces the node's state; called in the loop when the install is durable.
            step: takes the answers to the core.
            fail: stops the node.
            on_damaged: a snapshot that was to be sent is damaged; another one is needed.
        """
        self._on_damaged = on_damaged
        self._store = store
        self._disk = disk
        self._journal = journal
        self._runtime = runtime
        self._load = load
        self._install = install
        self._step = step
        self._fail = fail
        #: {transfer: the pinned snapshot}
        self._outgoing: dict[int, SnapshotFile] = {}
        self._incoming: _Incoming | None = None
        self.installed_count = 0
        self.refused_count = 0

    def carry_out(self, ready: Ready) -> None:
        """Start what a Ready asks; every answer is a stimulus of a later turn."""
        for transfer in ready.snapshot_releases:
            pinned = self._outgoing.pop(transfer, None)
            if pinned is not None:
                self._store.unpin(pinned.log_index)
        for read in ready.snapshot_reads:
            self._read(read)
        for install in ready.snapshot_aborts:
            self._abort(install)
        for write in ready.snapshot_writes:
            self._write(write)

    # --- sending ----------------------------------------------------------------------------------

    def _read(self, read: SnapshotRead) -> None:
        snapshot = self._outgoing.get(read.transfer)
        fresh = snapshot is None
        if snapshot is None:
            newest = self._store.newest
            if newest is None:
                self._runtime.call_soon(self._step, ChunkReadFailed(read.receiver, read.transfer))
                return
            try:
                snapshot = self._outgoing[read.transfer] = self._store.pin(newest.log_index)
            except OSError as error:
                log.warning("cannot open the snapshot of index %d: %s", newest.log_index, error)
                self._runtime.call_soon(self._step, ChunkReadFailed(read.receiver, read.transfer))
                return
            log.info("sends the snapshot of index %d to node %d", snapshot.log_index, read.receiver)

        def work() -> bytes:
            if fresh:
                # A receiver would refuse a damaged one as often as it is sent.
                self._store.verify(snapshot)
            return self._store.read_range(snapshot.log_index, read.offset, read.bytes_max)

        def done(data: bytes | None, error: BaseException | None) -> None:
            if isinstance(error, SnapshotDamagedError):
                self._on_damaged()
            self._have_read(read, snapshot, data, error)

        self._runtime.run_in_thread(SNAPSHOT_LANE, work, self._guarded(done))

    def _have_read(
        self, read: SnapshotRead, snapshot: SnapshotFile, data: bytes | None, error: BaseException | None
    ) -> None:
        if error is not None or not data:
            if read.transfer in self._outgoing:
                log.warning(
                    "cannot send the snapshot of index %d: %s", snapshot.log_index, error or "it ends early"
                )
                self._step(ChunkReadFailed(read.receiver, read.transfer))
            return
        self._step(
            ChunkRead(
                read.receiver,
                read.transfer,
                snapshot.log_index,
                snapshot.term,
                read.offset,
                snapshot.size_bytes,
                data,
            )
        )

    # --- receiving --------------------------------------------------------------------------------

    def _write(self, write: SnapshotWrite) -> None:
        def work() -> SnapshotFile | None:
            incoming = self._incoming
            if incoming is None or incoming.install != write.install:
                self._remove_incoming()
                partial = PartialSnapshot(self._store, write.snapshot_index, write.snapshot_term, "received")
                incoming = self._incoming = _Incoming(write.install, partial)
            try:
                # The core lets pieces through in order alone; the file is verified as a whole.
                incoming.partial.append([write.data])
            except OSError:
                # Nothing continues it, and it may be what fills the disk.
                self._remove_incoming()
                raise
            if not write.last:
                return None
            self._incoming = None
            return incoming.partial.finish()

        def done(snapshot: SnapshotFile | None, error: BaseException | None) -> None:
            if error is not None:
                self._refuse(write, error)
            elif snapshot is None:
                self._step(ChunkWritten(write.install, write.offset + len(write.data)))
            else:
                self._load_received(write, snapshot)

        self._runtime.run_in_thread(SNAPSHOT_LANE, work, self._guarded(done))

    def _remove_incoming(self) -> None:
        """Remove what has arrived of a snapshot; for the snapshot lane."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.partial.discard()

    def _abort(self, install: int) -> None:
        def work() -> None:
            if self._incoming is not None and self._incoming.install == install:
                self._remove_incoming()

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                # A start removes it, and so does the next transfer of the same snapshot.
                log.warning("cannot remove what was received of a snapshot: %s", error)

        self._runtime.run_in_thread(SNAPSHOT_LANE, work, self._guarded(done))

    def _load_received(self, write: SnapshotWrite, snapshot: SnapshotFile) -> None:
        def work() -> tuple[State, SnapshotMark]:
            file = self._disk.open(snapshot.path)
            try:
                return self._load(SnapshotReader(file))
            except BaseException:
                self._store.drop_received(snapshot)
                raise
            finally:
                file.close()

        def done(loaded: tuple[State, SnapshotMark] | None, error: BaseException | None) -> None:
            if loaded is None:
                assert error is not None
                self._refuse(write, error)
            else:
                self._make_durable(write, *loaded)

        self._runtime.run_in_thread(SNAPSHOT_LANE, work, self._guarded(done))

    def _guarded(
        self, done: Callable[[Result | None, BaseException | None], None]
    ) -> Callable[[Result | None, BaseException | None], None]:
        """Return a lane's callback in which an exception stops the node: its core waits for the answer."""

        def callback(result: Result | None, error: BaseException | None) -> None:
            try:
                done(result, error)
            except Exception as failure:  # noqa: BLE001 - stops the node with the story
                self._fail(failure)

        return callback

    def _make_durable(self, write: SnapshotWrite, state: State, mark: SnapshotMark) -> None:
        def durable() -> None:
            try:
                self._install(state, mark)
            except Exception as error:  # noqa: BLE001 - stops the node with the story
                self._fail(error)
                return
            self.installed_count += 1
            log.info("installed the snapshot of index %d, term %d", mark.snapshot_index, mark.snapshot_term)
            self._step(
                SnapshotInstalled(
                    write.install, mark.snapshot_index, mark.snapshot_term, mark.stamp_ms, mark.configuration
                )
            )

        self._journal.submit((Install(mark.snapshot_index, mark.snapshot_term),), durable)

    def _refuse(self, write: SnapshotWrite, error: BaseException) -> None:
        self.refused_count += 1
        log.warning("refused the snapshot of index %d: %s", write.snapshot_index, error)
        self._step(SnapshotFailed(write.install))
