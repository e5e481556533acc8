"""What is left on the disk of a snapshot that did not arrive as a whole: nothing."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.raft.core.messages import (
    ChunkWritten,
    Ready,
    SnapshotFailed,
    SnapshotMark,
    SnapshotWrite,
    Stimulus,
)
from quorum.raft.snapshots.exchange import SnapshotCourier
from quorum.raft.snapshots.format import SnapshotReader
from quorum.raft.snapshots.snapshots import SnapshotStore
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk

DIRECTORY = "/data/snapshots"


class Bench:
    """The receiving end of transfers: what it writes, and what it answers."""

    def __init__(self) -> None:
        self.disk = MemoryDisk(random.Random(0))
        self.runtime = ManualRuntime()
        self.answers: list[Stimulus] = []
        self.courier: SnapshotCourier[None] = SnapshotCourier(
            SnapshotStore(self.disk, DIRECTORY, pytest.fail),
            self.disk,
            self,
            self.runtime,
            self.load,
            lambda _state, _mark: None,
            self.answers.append,
            lambda error: pytest.fail(str(error)),
            lambda: None,
        )

    def submit(self, records: object, on_durable: object) -> None:
        pytest.fail(f"{records} of {on_durable} is an install")

    def load(self, reader: SnapshotReader) -> tuple[None, SnapshotMark]:
        pytest.fail(f"{reader.path} is loaded")

    def carry_out(self, *writes: SnapshotWrite, aborts: tuple[int, ...] = ()) -> None:
        self.courier.carry_out(Ready(None, (), (), None, None, (), (), writes, aborts))
        self.runtime.settle()

    @property
    def names(self) -> list[str]:
        return self.disk.listdir(DIRECTORY)


def piece(offset: int, *, install: int = 1) -> SnapshotWrite:
    return SnapshotWrite(install, 50, 2, offset, 10_000, bytes(1000), last=False)


def test_an_abort_removes_what_has_arrived() -> None:
    bench = Bench()
    bench.carry_out(piece(0))
    bench.carry_out(piece(1000))
    assert bench.answers == [ChunkWritten(1, 1000), ChunkWritten(1, 2000)]
    assert len(bench.names) == 1
    bench.carry_out(aborts=(1,))
    assert bench.names == []


def test_an_abort_of_one_does_not_touch_the_next() -> None:
    bench = Bench()
    bench.carry_out(piece(0))
    bench.carry_out(piece(0, install=2), aborts=(1,))
    bench.carry_out(aborts=(1,))
    bench.carry_out(piece(1000, install=2))
    assert bench.answers[1:] == [ChunkWritten(2, 1000), ChunkWritten(2, 2000)]


def test_a_piece_that_finds_no_room_leaves_none_occupied() -> None:
    bench = Bench()
    before = bench.disk.used_bytes
    bench.disk.capacity_bytes = before + 2500
    for offset in (0, 1000, 2000):
        bench.carry_out(piece(offset))
    assert bench.answers[2:] == [SnapshotFailed(1)]
    assert (bench.names, bench.disk.used_bytes) == ([], before)


def test_what_cannot_be_removed_is_replaced_by_the_next_transfer(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.carry_out(piece(0))
    bench.disk.fail("unlink", errno.EIO)
    bench.carry_out(aborts=(1,))
    assert "cannot remove what was received" in caplog.text
    assert len(bench.names) == 1
    bench.carry_out(piece(0, install=2))
    assert bench.answers[1:] == [ChunkWritten(2, 1000)]
    bench.carry_out(aborts=(2,))
    assert bench.names == []
