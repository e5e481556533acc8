"""What a start makes of torn, damaged and missing files, and of a process that was killed while it wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.log import partition_log, segment
from broker.log.batches import BatchHeader, checked_batches
from broker.log.errors import AppendError, DamagedSegmentError, LogStorageError
from broker.log.partition_log import PartitionLog
from broker.log.producers import Producers
from broker.log.results import Appended
from broker.log.segment import Segment, distrust
from broker.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from quorum.metadata.numbers import LeaderEpoch
from tests.support.nodes import REPOSITORY, eventually
from tests.unit.broker_log.samples import (
    EPOCH,
    KEY,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    fill,
    headers,
    make_durable,
    offset_for_time,
    read_all,
)

FIRST = "00000000000000000000"
KILL_DEADLINE_S = 30.0


def offsets(log: PartitionLog) -> list[int]:
    return [each.base_offset for each in headers(read_all(log, 100_000))]


def test_a_torn_end_is_cut_wherever_it_is_torn(broker: Broker) -> None:
    log = broker.create()
    fill(log, 3)
    broker.directory.abandon()
    path = broker.folder / f"{FIRST}.log"
    whole = path.read_bytes()
    size = len(whole) // 3
    for end in range(2 * size, 3 * size):
        path.write_bytes(whole[:end])
        log = broker.open().logs[KEY]
        assert (log.log_end_offset, log.size_bytes, path.stat().st_size) == (2, 2 * size, 2 * size)
        broker.directory.abandon()
    log = broker.open().logs[KEY]
    fill(log, 5)
    assert offsets(broker.revive()) == list(range(7))


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_a_flipped_byte_ends_the_log_before_its_batch(broker: Broker, end: str) -> None:
    log = broker.create()
    fill(log, 4)
    broker.directory.close() if end == "clean" else broker.directory.abandon()
    path = broker.folder / f"{FIRST}.log"
    whole = path.read_bytes()
    size = len(whole) // 4
    # All but the leader epoch, which no checksum covers, of the third batch.
    for place in (*range(12), *range(16, size)):
        damaged = bytearray(whole)
        damaged[2 * size + place] ^= 0x40
        path.write_bytes(damaged)
        for index in broker.folder.glob("*index"):
            index.unlink()
        assert broker.open().logs[KEY].log_end_offset == 2
        broker.directory.abandon()
    assert offsets(broker.open().logs[KEY]) == [0, 1]


def test_zeros_behind_the_end_are_cut(broker: Broker) -> None:
    log = broker.create()
    fill(log, 3)
    broker.directory.abandon()
    with (broker.folder / f"{FIRST}.log").open("ab") as file:
        file.write(bytes(10_000))
    assert offsets(broker.open().logs[KEY]) == [0, 1, 2]


def test_segments_behind_a_tear_are_set_aside(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000)
    fill(log, 50)
    stems = broker.names(".log")
    broker.directory.abandon()
    path = broker.folder / f"{stems[4]}.log"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    behind = {stem: (broker.folder / f"{stem}.log").read_bytes() for stem in stems[5:]}
    log = broker.open().logs[KEY]
    assert log.log_end_offset == int(stems[5]) - 1
    assert offsets(log) == list(range(int(stems[5]) - 1))
    assert broker.names(".log") == stems[:5]
    assert set(broker.names(".index")) <= set(stems[:5])
    assert list(broker.directory.shortened) == [KEY]
    (stray,) = broker.path.glob("orders-3.*-stray")
    assert {each.stem: each.read_bytes() for each in stray.glob("*.log")} == behind
    fill(log, 3, leader_epoch=2)
    assert offsets(broker.revive()) == list(range(int(stems[5]) + 2))


def test_segments_behind_a_missing_one_are_set_aside(broker: Broker) -> None:
    log = broker.create(segment_bytes=1000)
    fill(log, 50)
    stems = broker.names(".log")
    broker.directory.abandon()
    (broker.folder / f"{stems[4]}.log").unlink()
    assert broker.open().logs[KEY].log_end_offset == int(stems[4])
    assert broker.names(".log") == stems[:4]
    assert set(broker.names(".index")) <= set(stems[:4])
    assert list(broker.directory.shortened) == [KEY]
    (stray,) = broker.path.glob("orders-3.*-stray")
    assert sorted(each.stem for each in stray.glob("*.log")) == stems[5:]


def test_a_log_is_named_as_shortened_before_it_is_cut(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker.create(segment_bytes=1000)
    fill(log, 50)
    sizes = {each.name: each.stat().st_size for each in broker.folder.glob("*.log")}
    broker.directory.abandon()
    damaged = broker.folder / f"{broker.names('.log')[4]}.log"
    damaged.write_bytes(bytes(damaged.stat().st_size))

    def crash(_segment: Segment, _position: int, _end_offset: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "truncate", crash)
        with pytest.raises(KeyboardInterrupt):
            broker.open()
    assert {each.name: each.stat().st_size for each in broker.folder.glob("*.log")} == sizes
    assert (broker.path / "shortened-checkpoint").read_text() == "0\n1\norders 3 0\n"


def test_after_a_clean_end_closed_segments_are_not_read(broker: Broker) -> None:
    log = broker.create(segment_bytes=20_000)
    fill(log, 250)
    stems = broker.names(".log")
    broker.directory.close()
    for stem in stems[:-1]:
        path = broker.folder / f"{stem}.log"
        path.write_bytes(bytes(path.stat().st_size))
    log = broker.open().logs[KEY]
    assert (log.log_start_offset, log.log_end_offset) == (0, 250)
    assert broker.directory.shortened == {}
    assert broker.names(".log") == stems


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_read_of_a_damaged_segment_ends_the_log_there_at_the_next_start(broker: Broker, end: str) -> None:
    log = broker.create(segment_bytes=20_000)
    fill(log, 250)
    stems = broker.names(".log")
    broker.directory.close()
    path = broker.folder / f"{stems[1]}.log"
    content = bytearray(path.read_bytes())
    content[200 * 40 : 200 * 42] = bytes(400)
    path.write_bytes(content)
    log = broker.open().logs[KEY]
    first = int(stems[1])
    for max_bytes in range(8000, 20_000, 100):
        assert log.segments.read(first, max_bytes, below=250, at_least_one=True).next_offset == first + 40
    with pytest.raises(DamagedSegmentError, match="holds no whole record batch at byte 7840") as raised:
        read_all(log)
    distrust(raised.value)
    broker.directory.close() if end == "stopped" else broker.directory.abandon()
    log = broker.open().logs[KEY]
    assert first < log.log_end_offset <= first + 41
    assert offsets(log) == list(range(log.log_end_offset))
    assert list(broker.directory.shortened) == [KEY]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_what_an_index_vouches_for_is_checked_at_the_first_read(
    broker: Broker, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.create(segment_bytes=20_000), 250)
    wanted = read_all(broker.log)
    broker.directory.close()
    path = broker.folder / f"{FIRST}.log"
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[196 * 30 + 100] ^= 1
    path.write_bytes(damaged)
    broker.open()
    with pytest.raises(DamagedSegmentError):
        read_all(broker.log)
    with pytest.raises(DamagedSegmentError):
        broker.log.segments.read(30, 1, below=250, at_least_one=True)
    # A large read gets what is whole in front of the damage.
    for below in (250, 20):
        found = broker.log.segments.read(0, 20_000, below=below, at_least_one=True)
        assert (len(headers(found.records)), found.next_offset) == (min(30, below), min(30, below))
    broker.directory.close() if end == "stopped" else broker.directory.abandon()
    # Nobody wanted it repaired: it stays as it is, and what is behind it can be read.
    broker.open()
    assert (broker.log.log_end_offset, broker.directory.shortened) == (250, {})
    path.write_bytes(whole)
    checked = [0]

    def count(records: memoryview) -> list[BatchHeader]:
        checked[0] += len(records)
        return checked_batches(records)

    monkeypatch.setattr(segment, "checked_batches", count)
    for _ in range(3):
        assert read_all(broker.log) == wanted
    fill(broker.log, 10)
    read_all(broker.log)
    assert 0 < checked[0] < 2 * len(wanted)


def test_a_flipped_bit_of_an_index_misleads_no_reader(broker: Broker) -> None:
    log = broker.create(segment_bytes=40_000)
    fill(log, 150)
    wanted = read_all(log)
    broker.directory.close()
    path = broker.folder / f"{FIRST}.index"
    whole = path.read_bytes()
    assert len(whole) > 2 * OFFSET_ENTRY.size
    for place in range(len(whole)):
        for bit in (0x01, 0x10, 0x80):
            damaged = bytearray(whole)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            log = broker.open().logs[KEY]
            assert read_all(log, 3000) == wanted
            for offset in (0, 50, 100, 149):
                found = log.segments.read(offset, 1, below=1000, at_least_one=True)
                assert headers(found.records)[0].base_offset == offset
            assert broker.directory.shortened == {}
            broker.directory.close()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff" * 80, id="garbage"),
        pytest.param(OFFSET_ENTRY.pack(1, 17), id="no batch there"),
        pytest.param(OFFSET_ENTRY.pack(1, 0), id="another offset"),
        pytest.param(OFFSET_ENTRY.pack(1, 1 << 30), id="behind the end"),
        pytest.param(b"\0" * 5, id="half an entry"),
    ],
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_made_anew(broker: Broker, content: bytes | None, suffix: str) -> None:
    log = broker.create(segment_bytes=20_000)
    fill(log, 250)
    wanted = read_all(log)
    broker.directory.close()
    for path in broker.folder.glob(f"*{suffix}"):
        path.unlink() if content is None else path.write_bytes(content)
    for opened in (broker.open().logs[KEY], broker.restart()):
        assert read_all(opened) == wanted
        if suffix == ".index":
            assert offset_for_time(opened, NOW_MS + 77) == (NOW_MS + 77, 77)


def test_an_index_vouches_only_for_what_was_made_durable(broker: Broker) -> None:
    log = broker.create()
    fill(log, 99)
    make_durable(log)
    index = SparseIndex(OFFSET_ENTRY, (broker.folder / f"{FIRST}.index").read_bytes())
    times = SparseIndex(TIME_ENTRY, (broker.folder / f"{FIRST}.timeindex").read_bytes())
    fill(log, 100)
    last = index.last
    assert last is not None and last[1] < log.size_bytes // 2
    assert times.last is not None and times.last[0] == NOW_MS + last[0]
    broker.directory.abandon()
    path = broker.folder / f"{FIRST}.log"
    damaged = bytearray(path.read_bytes())
    size = len(damaged) // 200
    damaged[150 * size + 100] ^= 1
    path.write_bytes(damaged)
    assert offsets(broker.open().logs[KEY]) == list(range(150))


@pytest.mark.parametrize("moment", ["flush", "roll", "close"])
def test_records_are_durable_before_the_index_vouches_for_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    log = broker.create(segment_bytes=30_000)
    fill(log, 100)
    synced: list[str] = []

    def watch(descriptor: int) -> None:
        if f"{FIRST}.index" not in {each.name for each in broker.folder.iterdir()}:
            synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", watch)
    if moment == "flush":
        make_durable(log)
    elif moment == "roll":
        fill(log, 100)
    broker.directory.close()
    names = [name.removesuffix(".tmp") for name in synced]
    assert names[0] == f"{FIRST}.log"
    assert names[1:3] == ["partition.metadata", "leader-epoch-checkpoint"]
    assert [name.endswith(".snapshot") for name in names[3:-2]] == [True] * (moment != "flush")
    assert names[-2:] == [f"{FIRST}.timeindex", f"{FIRST}.index"]


def test_files_are_made_durable_while_a_segment_grows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "FLUSH_BYTES", 20_000)
    log = broker.create()
    fill(log, 300)
    broker.directory.abandon()
    index = SparseIndex(OFFSET_ENTRY, (broker.folder / f"{FIRST}.index").read_bytes())
    assert index.last is not None and index.last[1] > 10_000


def test_what_a_crash_left_of_other_files_is_removed(broker: Broker) -> None:
    log = broker.create()
    fill(log, 3)
    broker.directory.abandon()
    left = ("00000000000000000007.index", "00000000000000000007.timeindex", f"{FIRST}.index.tmp", "x.deleted")
    for name in left:
        (broker.folder / name).write_bytes(b"x" * 80)
    assert offsets(broker.open().logs[KEY]) == [0, 1, 2]
    assert not [name for name in left if (broker.folder / name).exists()]


def test_a_full_disk_stops_the_log_and_loses_nothing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.create()
    fill(log, 3)
    real = os.pwrite

    def take_a_part(descriptor: int, _buffers: object, position: int) -> int:
        return real(descriptor, b"PART", position)

    def refuse(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", take_a_part)
        patched.setattr(os, "pwrite", refuse)
        with pytest.raises(LogStorageError, match="No space left") as caught:
            fill(log, 1)
    assert "free space" in caught.value.remedy
    assert not caught.value.definite
    assert log.log_end_offset == 3
    assert offsets(broker.revive()) == [0, 1, 2]


def test_a_failing_fsync_is_raised_by_an_append(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    log = broker.create(segment_bytes=1000)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        # the sixth batch begins another segment
        fill(log, 6)
        eventually(lambda: broker.directory.flusher.failure is not None, 60, "a failed fsync")
        with pytest.raises(LogStorageError, match="Input/output error"):
            fill(log, 1)
        broker.directory.abandon()
    assert offsets(broker.open().logs[KEY]) == list(range(broker.log.log_end_offset))


def test_a_start_with_an_empty_segment_has_its_producers_written_at_the_end(broker: Broker) -> None:
    fill(broker.create(), 3)
    broker.restart().settle_flushes()
    (snapshot,) = broker.folder.glob("*3.snapshot")
    broker.directory.close()
    # Killed between a roll and its flush.
    snapshot.unlink()
    (broker.folder / f"{3:020d}.log").touch()
    broker.open()
    broker.directory.close()
    assert snapshot.exists()


CHILD = """
import sys
from pathlib import Path
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import NOW_MS, Broker, append_batch, batch

broker = Broker(Path(sys.argv[1]))
log = broker.create(segment_bytes=50_000)
for number in range(1_000_000):
    records = batch([NOW_MS], value=b"x" * (number % 700), producer=(number % 4, 0, number // 4))
    append_batch(log, records, LeaderEpoch(number // 500), NOW_MS)
    if number % 100 == 0:
        print(log.log_end_offset, flush=True)
"""


@pytest.mark.parametrize("lines", [3, 40])
def test_a_killed_process_loses_nothing_that_it_answered(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as child:
        assert child.stdout is not None
        answered = 0
        for _ in range(lines):
            answered = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = [int(line) for line in child.stdout.read().splitlines() if line]
        child.wait(KILL_DEADLINE_S)
    answered = max([answered, *rest])
    broker = Broker(path)
    log = broker.log
    assert not broker.started_clean()
    assert log.log_end_offset >= answered
    found = headers(read_all(log, 1 << 20))
    assert [each.base_offset for each in found] == list(range(log.log_end_offset))
    assert [each.partition_leader_epoch for each in found] == [
        number // 500 for number in range(log.log_end_offset)
    ]
    assert log.end_offset_for_epoch(0) == (0, min(500, log.log_end_offset))
    last = log.log_end_offset - 1
    repeat = batch([NOW_MS], value=b"x" * (last % 700), producer=(last % 4, 0, last // 4))
    assert append_batch(log, repeat, LeaderEpoch(9999), NOW_MS) == Appended(last, last, True)
    with pytest.raises(AppendError):
        append_batch(log, batch(producer=(last % 4, 0, last // 4 + 2)), EPOCH, NOW_MS)
    broker.directory.close()
    assert Producers.parse((broker.folder / f"{last + 1:020d}.snapshot").read_bytes(), last + 1)
