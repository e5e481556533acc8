"""Snapshot files: written aside, verified, kept, sent, received, and never trusted."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.errors import DataDirError
from quorum.raft.snapshots.format import (
    SnapshotEncoder,
    SnapshotHeader,
    SnapshotReader,
    SnapshotVersionError,
    pack_chunk,
)
from quorum.raft.snapshots.snapshots import (
    PartialSnapshot,
    SnapshotDamagedError,
    SnapshotFile,
    SnapshotStore,
    SnapshotTransferError,
)
from quorum.raft.snapshots.writer import SNAPSHOT_LANE, VERIFY_REST_MS, SnapshotWriter
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

DIRECTORY = "/data/snapshots"
CHUNKS: list[list[object]] = [
    ["header", 1, b"\x00\xff", None, True],
    ["nodes", [["/a", b"record", None], ["/b", b"", []]]],
    ["nodes", [b"x" * 5000]],
    ["end", 2],
]


def header(log_index: int = 10, term: int = 2) -> SnapshotHeader:
    return SnapshotHeader(log_index, term, 1_700_000_000_000, "ab" * 16, b'{"voters":{}}')


#: an index beyond every snapshot of these tests
APPLIED = 1_000_000


class Bench:
    """A store, a runtime under the test's hand, and what the writer told."""

    def __init__(self) -> None:
        self.disk = MemoryDisk(random.Random(0))
        self.runtime = ManualRuntime()
        self.lines: list[str] = []
        self.store = self.reopened()
        self.done: list[tuple[SnapshotFile | None, BaseException | None]] = []
        self.rooms = 0

    def reopened(self) -> SnapshotStore:
        return SnapshotStore(self.disk, DIRECTORY, self.lines.append)

    def writer(self, log_index: int = 10, term: int = 2, queue_bytes_max: int = 1 << 20) -> SnapshotWriter:
        def room() -> None:
            self.rooms += 1

        return SnapshotWriter(
            self.store,
            self.runtime,
            header(log_index, term),
            lambda snapshot, error: self.done.append((snapshot, error)),
            room,
            queue_bytes_max=queue_bytes_max,
        )

    def taken(self, log_index: int = 10, term: int = 2, extra: int = 0) -> SnapshotFile:
        writer = self.writer(log_index, term)
        for chunk in CHUNKS:
            writer.write(chunk)
        if extra:
            writer.write([bytes([log_index % 256]) * extra])
        writer.finish()
        self.runtime.settle()
        snapshot, error = self.done.pop()
        assert error is None
        assert snapshot is not None
        return snapshot

    def purge(self) -> int:
        """Keep two; returns the log index of the older one."""
        oldest_index, paths = self.store.detach(APPLIED)
        self.store.remove(paths, oldest_index)
        return oldest_index


def load(reader: SnapshotReader) -> tuple[int, list[list[object]]]:
    return reader.header.log_index, list(reader.chunks())


def test_a_snapshot_comes_back_as_it_was_written() -> None:
    bench = Bench()
    snapshot = bench.taken()
    assert bench.store.newest == snapshot
    bench.disk.power_cut(Cut.NOTHING)
    found = bench.reopened().load_newest(load)
    assert found == (snapshot, (10, CHUNKS))


def test_the_header_says_what_it_is_a_snapshot_of() -> None:
    bench = Bench()
    file = bench.disk.open(bench.taken().path)
    assert SnapshotReader(file).header == header()


def test_a_store_without_snapshots_says_so() -> None:
    store = Bench().store
    assert store.load_newest(load) is None
    assert (store.newest, store.files(), store.detach(APPLIED)) == (None, [], (0, []))


def test_a_snapshot_has_its_name_only_when_it_is_whole() -> None:
    bench = Bench()
    writer = bench.writer()
    for chunk in CHUNKS:
        writer.write(chunk)
    writer.finish()
    while bench.runtime.work(SNAPSHOT_LANE):
        copy = bench.disk.copy(random.Random(1))
        copy.power_cut()
        found = SnapshotStore(copy, DIRECTORY, bench.lines.append).load_newest(load)
        assert found is None or found[1] == (10, CHUNKS)
        assert not [name for name in copy.listdir(DIRECTORY) if name.endswith(".partial")]
    bench.runtime.settle()
    assert bench.done[0][0] is not None


def test_a_name_that_a_killed_process_gave_is_durable_once_a_start_counts_on_it() -> None:
    bench = Bench()
    content = bench.disk.content(bench.taken().path)
    bench.disk = MemoryDisk(random.Random(0))
    receiver = PartialSnapshot(bench.reopened(), 10, 2, "received")
    receiver.append([content])
    bench.disk.stop_at("fsync_dir", path_part=DIRECTORY)
    with pytest.raises(Stopped):
        receiver.finish()
    bench.disk.kill()
    assert bench.reopened().load_newest(load) is not None
    bench.disk.power_cut(Cut.NOTHING)
    assert bench.reopened().load_newest(load) is not None


def test_a_name_that_cannot_be_made_durable_is_no_snapshot_until_a_start_and_goes_with_the_older_ones() -> (
    None
):
    bench = Bench()
    bench.disk.fail("fsync_dir", errno.EIO, path_part=DIRECTORY)
    writer = bench.writer()
    writer.finish()
    bench.runtime.settle()
    _, error = bench.done.pop()
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO, "not what removing it said"
    assert bench.store.newest is None
    assert len(bench.disk.listdir(DIRECTORY)) == 1
    kept = [bench.taken(20), bench.taken(30)]
    bench.taken(40)
    bench.purge()
    assert [f"{DIRECTORY}/{name}" for name in bench.disk.listdir(DIRECTORY)][:1] == [kept[1].path]


def test_every_single_flipped_bit_is_noticed() -> None:
    bench = Bench()
    path = bench.taken().path
    content = bench.disk.content(path)
    for bit in [*range(8 * 120), *range(8 * (len(content) - 60), 8 * len(content)), 8 * 3000, 8 * 4000]:
        bench.disk.plant(path, content)
        bench.disk.flip_bit(path, bit)
        with pytest.raises(SnapshotDamagedError) as caught:
            bench.store.load_newest(load)
        assert caught.value.path == path
        assert caught.value.remedy


def test_every_cut_and_every_addition_is_noticed() -> None:
    bench = Bench()
    path = bench.taken().path
    content = bench.disk.content(path)
    for size in [*range(0, len(content), 37), len(content) - 1]:
        bench.disk.plant(path, content[:size])
        with pytest.raises(SnapshotDamagedError):
            bench.store.load_newest(load)
    bench.disk.plant(path, content + b"\0")
    with pytest.raises(SnapshotDamagedError, match="after the footer"):
        bench.store.load_newest(load)


def test_a_missing_or_repeated_chunk_is_noticed() -> None:
    encoder = SnapshotEncoder()
    parts = (
        [encoder.begin(header())] + [encoder.chunk(pack_chunk(chunk)) for chunk in CHUNKS] + [encoder.end()]
    )
    bench = Bench()
    path = bench.taken().path
    assert b"".join(b"".join(part) for part in parts) == bench.disk.content(path)
    for wrong in (parts[:2] + parts[3:], parts[:3] + parts[2:], [parts[0], parts[2], parts[1], *parts[3:]]):
        bench.disk.plant(path, b"".join(b"".join(part) for part in wrong))
        with pytest.raises(SnapshotDamagedError):
            bench.store.load_newest(load)


def test_a_chunk_of_another_snapshot_is_noticed_though_its_crc_is_right() -> None:
    def parts_of(*chunks: list[object]) -> list[bytes]:
        encoder = SnapshotEncoder()
        parts = [
            encoder.begin(header()),
            *(encoder.chunk(pack_chunk(chunk)) for chunk in chunks),
            encoder.end(),
        ]
        return [b"".join(part) for part in parts]

    one, other = parts_of(["header"], ["a"], ["end"]), parts_of(["header"], ["b"], ["end"])
    bench = Bench()
    path = bench.taken().path
    bench.disk.plant(path, b"".join(one))
    assert bench.store.load_newest(load) is not None
    bench.disk.plant(path, b"".join([*one[:2], other[2], *one[3:]]))
    with pytest.raises(SnapshotDamagedError, match="footer"):
        bench.store.load_newest(load)


def test_a_snapshot_of_another_version_is_no_damaged_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, receiver = Bench(), Bench()
    bench.taken()
    monkeypatch.setattr("quorum.raft.snapshots.format.FORMAT_VERSION", 2)
    newest = bench.taken(11)
    content = bench.disk.content(newest.path)
    monkeypatch.undo()
    before = bench.disk.listdir(DIRECTORY)
    with pytest.raises(SnapshotVersionError, match="format version is 2, this version reads 1") as caught:
        bench.store.load_newest(load)
    assert caught.value.remedy == "start the version that wrote it"
    assert bench.disk.listdir(DIRECTORY) == before, "nothing is set aside"
    incoming = PartialSnapshot(receiver.store, 11, 2, "received")
    incoming.append([content])
    with pytest.raises(SnapshotVersionError):
        incoming.finish()
    assert receiver.disk.listdir(DIRECTORY) == []


def test_a_broken_newest_one_falls_back_to_the_one_before_and_is_set_aside() -> None:
    bench = Bench()
    older, newest = bench.taken(10), bench.taken(20)
    bench.disk.flip_bit(newest.path, 8 * 200)
    found = bench.store.load_newest(load)
    assert found is not None
    assert found[0] == older
    assert newest.path in str(bench.store.broken[0])
    assert bench.store.newest == older
    assert bench.disk.listdir(DIRECTORY) == [each.path.rpartition("/")[2] for each in (older, newest)]
    bench.store.set_aside()
    assert bench.store.files() == [older]
    assert bench.disk.content(newest.path + ".damaged")
    assert bench.reopened().files() == [older]


def test_broken_snapshots_never_mean_an_empty_state() -> None:
    bench = Bench()
    for log_index in (10, 20):
        bench.disk.flip_bit(bench.taken(log_index).path, 8 * 200)
    for _ in range(2):
        with pytest.raises(SnapshotDamagedError) as caught:
            bench.reopened().load_newest(load)
        assert caught.value.path == f"{DIRECTORY}/{20:020d}-{2:020d}.snapshot"


def test_a_file_that_cannot_be_read_counts_as_broken_until_the_next_start() -> None:
    bench = Bench()
    older, newest = bench.taken(10), bench.taken(20)
    bench.disk.fail("pread", errno.EIO, path_part=newest.path)
    found = bench.store.load_newest(load)
    assert found is not None
    assert found[0] == older
    bench.store.set_aside()
    assert bench.store.newest == older
    found = bench.reopened().load_newest(load)
    assert found is not None
    assert found[0] == newest


def test_content_that_the_loader_refuses_counts_as_broken() -> None:
    bench = Bench()
    bench.taken(10)
    bench.taken(20)

    def refuse(reader: SnapshotReader) -> int:
        if reader.header.log_index == 20:
            raise ValueError("no such record")
        return reader.header.log_index

    found = bench.store.load_newest(refuse, refusals=(ValueError,))
    assert found is not None
    assert found[1] == 10


def test_a_file_under_another_name_is_refused() -> None:
    bench = Bench()
    snapshot = bench.taken(10)
    bench.disk.plant(f"{DIRECTORY}/{11:020d}-{2:020d}.snapshot", bench.disk.content(snapshot.path))
    found = bench.reopened().load_newest(load)
    assert found is not None
    assert found[0] == snapshot


def test_two_are_kept_and_the_journal_may_compact_to_the_older_one() -> None:
    bench = Bench()
    taken = [bench.taken(log_index) for log_index in (10, 20, 30, 40)]
    assert bench.purge() == 30
    assert bench.store.files() == taken[2:]
    assert bench.reopened().files() == taken[2:]


def test_a_pinned_snapshot_stays_with_the_log_behind_it() -> None:
    bench = Bench()
    first = bench.taken(10)
    bench.store.pin(10)
    bench.store.pin(10)
    for log_index in (20, 30):
        bench.taken(log_index)
    assert bench.purge() == 10
    bench.store.unpin(10)
    assert bench.purge() == 10
    assert bench.store.read_range(10, 0, 1 << 20) == bench.disk.content(first.path)
    bench.store.unpin(10)
    assert bench.purge() == 20
    with pytest.raises(SnapshotTransferError):
        bench.store.pin(10)
    with pytest.raises(SnapshotTransferError):
        bench.store.read_range(20, 0, 10)


def test_what_was_set_aside_goes_when_it_is_old() -> None:
    bench = Bench()
    bench.taken(10)
    bench.disk.flip_bit(bench.taken(20).path, 8 * 200)
    bench.store.load_newest(load)
    bench.store.set_aside()
    bench.taken(30)
    bench.taken(40)
    assert bench.purge() == 30
    assert len(bench.disk.listdir(DIRECTORY)) == 2


def test_what_could_not_be_removed_goes_with_the_next_ones() -> None:
    bench = Bench()
    first = bench.taken(10)
    for log_index in (20, 30):
        bench.taken(log_index)
    oldest_index, paths = bench.store.detach(APPLIED)
    bench.disk.fail("unlink", errno.ENOSPC, path_part=first.path)
    with pytest.raises(OSError, match="No space"):
        bench.store.remove(paths, oldest_index)
    assert bench.store.detach(APPLIED) == (20, [first.path])
    bench.store.remove([first.path], 20)
    assert bench.store.detach(APPLIED) == (20, [])
    assert len(bench.disk.listdir(DIRECTORY)) == 2


def test_what_was_verified_is_what_is_sent() -> None:
    """A pinned file may be damaged, and another one of the same place have its name by now."""
    bench = Bench()
    snapshot = bench.taken(10)
    bench.store.pin(10)
    bench.disk.flip_bit(snapshot.path, 8 * 200)
    with pytest.raises(SnapshotDamagedError):
        bench.store.verify(snapshot)
    again = bench.taken(10)
    whole = bench.disk.content(again.path)
    bench.store.pin(10)
    assert bench.store.read_range(10, 0, 1 << 20) != whole
    bench.store.verify(again)
    assert bench.store.read_range(10, 0, 1 << 20) == whole
    bench.store.unpin(10)
    assert bench.store.read_range(10, 0, 1 << 20) == whole
    bench.store.unpin(10)


def test_a_disk_that_refuses_is_named_at_the_start() -> None:
    bench = Bench()
    bench.disk.fail("fsync_dir", errno.ENOSPC, path_part=DIRECTORY)
    with pytest.raises(DataDirError, match=DIRECTORY) as refused:
        bench.reopened()
    assert refused.value.remedy == "free space on that disk"


def test_a_snapshot_travels_in_pieces() -> None:
    sender, receiver = Bench(), Bench()
    snapshot = sender.taken(extra=20_000)
    sender.store.pin(snapshot.log_index)
    incoming = PartialSnapshot(receiver.store, 10, 2, "received")
    while incoming.size < snapshot.size_bytes:
        incoming.append([sender.store.read_range(10, incoming.size, 3000)])
    assert receiver.store.files() == []
    received = incoming.finish()
    assert receiver.store.newest == received
    receiver.disk.power_cut(Cut.NOTHING)
    assert receiver.disk.content(received.path) == sender.disk.content(snapshot.path)
    assert receiver.reopened().load_newest(load) == (received, (10, [*CHUNKS, [b"\x0a" * 20_000]]))


@pytest.mark.parametrize(("log_index", "term", "bit"), [(11, 2, None), (10, 3, None), (10, 2, 8 * 300)])
def test_what_arrives_is_verified_before_it_counts(log_index: int, term: int, bit: int | None) -> None:
    sender, receiver = Bench(), Bench()
    snapshot = sender.taken()
    if bit is not None:
        sender.disk.flip_bit(snapshot.path, bit)
    incoming = PartialSnapshot(receiver.store, log_index, term, "received")
    incoming.append([sender.disk.content(snapshot.path)])
    with pytest.raises(SnapshotDamagedError):
        incoming.finish()
    assert receiver.store.newest is None
    assert receiver.disk.listdir(DIRECTORY) == []


def test_a_received_snapshot_replaces_the_one_of_the_same_place() -> None:
    sender, receiver = Bench(), Bench()
    snapshot = sender.taken(extra=50)
    own = receiver.taken()
    incoming = PartialSnapshot(receiver.store, 10, 2, "received")
    incoming.append([sender.disk.content(snapshot.path)])
    received = incoming.finish()
    assert received.path == own.path
    assert receiver.store.files() == [received]


def test_the_walker_pauses_while_the_disk_is_behind() -> None:
    bench = Bench()
    writer = bench.writer(queue_bytes_max=20_000)
    chunk: list[object] = [b"x" * 8000]
    assert [writer.write(chunk) for _ in range(3)] == [True, True, False]
    assert writer.queued_bytes > 20_000
    bench.runtime.work(SNAPSHOT_LANE)
    bench.runtime.work(SNAPSHOT_LANE)
    bench.runtime.turn()
    assert bench.rooms == 0
    bench.runtime.work(SNAPSHOT_LANE)
    bench.runtime.turn()
    assert (bench.rooms, writer.write(chunk)) == (1, True)
    writer.finish()
    bench.runtime.settle()
    assert bench.rooms == 1
    assert bench.done[0][0] is not None


def test_many_small_chunks_are_bounded_too() -> None:
    bench = Bench()
    writer = bench.writer(queue_bytes_max=20_000)
    assert [writer.write([1]) for _ in range(5)] == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("operation", "skip"),
    [("create", 0), ("pwrite", 0), ("pwrite", 2), ("fdatasync", 0), ("rename", 0), ("fsync_dir", 0)],
)
def test_a_failure_costs_the_snapshot_and_nothing_else(operation: str, skip: int) -> None:
    bench = Bench()
    older = bench.taken(5)
    bench.disk.fail(operation, errno.EIO, skip=skip)
    writer = bench.writer()
    for chunk in CHUNKS:
        writer.write(chunk)
    writer.finish()
    bench.runtime.settle()
    assert len(bench.done) == 1
    assert isinstance(bench.done.pop()[1], OSError)
    assert bench.store.files() == [older]
    assert bench.taken(20) == bench.store.newest


def test_a_full_disk_leaves_no_partial_file() -> None:
    bench = Bench()
    bench.disk.capacity_bytes = 3000
    writer = bench.writer()
    for chunk in CHUNKS:
        writer.write(chunk)
    writer.finish()
    bench.runtime.settle()
    error = bench.done[0][1]
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert bench.disk.listdir(DIRECTORY) == []


def test_a_failure_removes_the_file_before_anybody_finishes_it() -> None:
    bench = Bench()
    bench.disk.fail("pwrite", errno.EIO, skip=1)
    writer = bench.writer()
    for chunk in CHUNKS:
        writer.write(chunk)
    bench.runtime.settle()
    assert isinstance(bench.done[0][1], OSError)
    assert bench.disk.listdir(DIRECTORY) == []
    assert writer.queued_bytes == 0


def test_an_abandoned_snapshot_leaves_nothing_and_says_nothing() -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(CHUNKS[0])
    writer.abandon()
    writer.write(CHUNKS[1])
    writer.finish()
    bench.runtime.settle()
    assert (bench.done, bench.disk.listdir(DIRECTORY)) == ([], [])


def test_a_large_file_is_synced_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.raft.snapshots.snapshots.SYNC_BYTES", 10_000)
    bench = Bench()
    fsyncs = bench.disk.fsyncs
    bench.taken(extra=9000)
    few = bench.disk.fsyncs - fsyncs
    writer = bench.writer(20)
    for _ in range(10):
        writer.write([b"x" * 9000])
    writer.finish()
    bench.runtime.settle()
    assert bench.disk.fsyncs - fsyncs - few >= few + 4


def verifying(bench: Bench, monkeypatch: pytest.MonkeyPatch, *, damaged: bool = False) -> SnapshotWriter:
    """A snapshot that is written and verified in part; damaged near its end if so asked."""
    monkeypatch.setattr("quorum.raft.snapshots.snapshots.VERIFY_BYTES", 10_000)
    writer = bench.writer()
    for _ in range(10):
        writer.write([b"x" * 6000])
    bench.runtime.settle()
    if damaged:
        [name] = bench.disk.listdir(DIRECTORY)
        file = bench.disk.open(f"{DIRECTORY}/{name}", writable=True)
        file.pwrite([b"y"], file.size() - 100)
    writer.finish()
    bench.runtime.settle()
    assert bench.done == [], "the verification rests"
    assert bench.store.newest is None
    return writer


def test_a_large_file_is_verified_in_steps_with_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    verifying(bench, monkeypatch)
    rests = 0
    while not bench.done:
        rests += 1
        bench.runtime.advance(VERIFY_REST_MS - 1)
        bench.runtime.settle()
        assert bench.done == []
        bench.runtime.advance(1)
        bench.runtime.settle()
    assert rests == 5
    assert bench.done[0][0] == bench.store.newest


def test_a_byte_that_changed_is_found_by_the_last_step_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    verifying(bench, monkeypatch, damaged=True)
    while not bench.done:
        bench.runtime.advance(VERIFY_REST_MS)
        bench.runtime.settle()
    assert isinstance(bench.done[0][1], SnapshotDamagedError)
    assert bench.disk.listdir(DIRECTORY) == []


def test_a_snapshot_may_be_abandoned_while_it_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    writer = verifying(bench, monkeypatch)
    writer.abandon()
    bench.runtime.advance(VERIFY_REST_MS)
    bench.runtime.settle()
    assert (bench.done, bench.disk.listdir(DIRECTORY), bench.store.newest) == ([], [], None)


def test_a_received_snapshot_that_is_not_installed_counts_as_none_of_the_two() -> None:
    bench = Bench()
    taken = [bench.taken(log_index) for log_index in (10, 20, 30, 1000)]
    assert bench.store.detach(30) == (20, [taken[0].path])
    bench.store.drop_received(taken[3])
    assert bench.store.files() == taken[1:3]
    assert taken[3] not in bench.reopened().files()


def test_a_damaged_snapshot_is_not_offered_and_counts_as_none_of_the_two() -> None:
    bench = Bench()
    taken = [bench.taken(log_index) for log_index in (10, 20, 30)]
    bench.store.verify(taken[2])
    bench.disk.flip_bit(taken[2].path, 8 * (taken[2].size_bytes // 2))
    with pytest.raises(SnapshotDamagedError):
        bench.store.verify(taken[2])
    assert bench.store.newest == taken[1]
    assert bench.store.detach(APPLIED) == (10, [taken[2].path])


def test_a_snapshot_that_cannot_be_read_is_not_called_damaged() -> None:
    bench = Bench()
    taken = bench.taken(10)
    bench.disk.fail("pread", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        bench.store.verify(taken)
    assert bench.store.newest == taken


def test_what_must_be_durable_first_is_asked_for_before_the_file_has_its_name() -> None:
    bench = Bench()
    names: list[list[str]] = []
    bench.store.before_finish = lambda: names.append(bench.disk.listdir(DIRECTORY))
    snapshot = bench.taken()
    [before] = names
    assert snapshot.path.rpartition("/")[2] not in before
