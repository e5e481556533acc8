"""The partition log against a list of batches, under truncation, retention, kills, torn ends and clean ends.

The model is the list of every batch that counts, with its bytes. After each step the log must have
exactly those from its start on, find each by its offset, answer for each leader epoch as a walk over the
list does, and treat every producer's next batch, repeat and gap as the list says.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.log.errors import AppendError, OffsetOutOfRangeError
from broker.log.partition_log import PartitionLog
from broker.log.results import Appended
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from tests.unit.broker_log.samples import (
    EVERYTHING,
    LZ4,
    NONE,
    NOW_MS,
    Broker,
    append_batch,
    batch,
    expire,
    headers,
    start_anew,
    truncate,
)

PRODUCERS = 3
SEGMENT_BYTES = 12_000
SIZES = st.sampled_from([0, 1, 80, 400, 2500, 5900])


class Stored(NamedTuple):
    """One batch that the log must hold, or held before retention took it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes
    #: id, -1 for none; then first and last sequence number
    producer: tuple[int, int, int]


class LogMachine(RuleBasedStateMachine):
    """One log, and the list."""

    def __init__(self) -> None:
        super().__init__()
        # No power cut is played here, so fsyncs would only cost time.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda _descriptor: None)
        self.path = Path(tempfile.mkdtemp(prefix="partition-log-"))
        self.broker = Broker(self.path / "data", open_files_max=4)
        #: also what retention has taken: producers are remembered longer than their batches
        self.stored: list[Stored] = []
        self.start = 0
        self.leader_epoch = 0

    @initialize(limit=st.sampled_from([5_000, 30_000]))
    def create(self, limit: int) -> None:
        self.broker.create(segment_bytes=SEGMENT_BYTES, retention_bytes=limit, retention_ms=-1)

    def teardown(self) -> None:
        self.broker.directory.abandon()
        shutil.rmtree(self.path)
        self.patch.undo()

    @property
    def log(self) -> PartitionLog:
        return self.broker.log

    @property
    def end(self) -> int:
        return self.stored[-1].last_offset + 1 if self.stored else self.start

    def expect(self, sent: bytes, count: int, producer: tuple[int, int, int]) -> None:
        prefix = self.end.to_bytes(8, "big") + sent[8:12] + self.leader_epoch.to_bytes(4, "big")
        content = prefix + sent[16:]
        self.stored.append(Stored(self.end, self.end + count - 1, self.leader_epoch, content, producer))

    @rule(count=st.integers(1, 2), size=SIZES, codec=st.sampled_from([NONE, LZ4]), repeat=st.integers(1, 6))
    def append(self, count: int, size: int, codec: int, repeat: int) -> None:
        sent = batch([NOW_MS + self.end] * count, value=b"x" * size, codec=codec)
        for _ in range(repeat):
            base_offset = self.end
            self.expect(sent, count, (-1, -1, -1))
            appended = append_batch(self.log, sent, LeaderEpoch(self.leader_epoch), NOW_MS)
            assert appended == Appended(base_offset, self.end - 1, False)

    @rule(count=st.integers(1, 4), size=SIZES)
    def copy_from_leader(self, count: int, size: int) -> None:
        records = b""
        for _ in range(count):
            self.expect(batch([NOW_MS + self.end] * 2, value=b"y" * size), 2, (-1, -1, -1))
            records += self.stored[-1].content
        self.log.append_as_follower(records, NOW_MS)

    @rule(more=st.integers(1, 3))
    def begin_leader_epoch(self, more: int) -> None:
        self.leader_epoch += more

    def known(self, producer_id: int) -> list[Stored]:
        return [each for each in self.stored if each.producer[0] == producer_id]

    def send(self, producer_id: int, sequence: int, count: int) -> tuple[bytes, Appended]:
        sent = batch([NOW_MS] * count, producer=(producer_id, 0, sequence))
        return sent, append_batch(self.log, sent, LeaderEpoch(self.leader_epoch), NOW_MS)

    @rule(producer_id=st.integers(0, PRODUCERS), count=st.integers(1, 3))
    def produce_next(self, producer_id: int, count: int) -> None:
        known = self.known(producer_id)
        sequence = known[-1].producer[2] + 1 if known else 0
        sent, appended = self.send(producer_id, sequence, count)
        assert appended == Appended(self.end, self.end + count - 1, False)
        self.expect(sent, count, (producer_id, sequence, sequence + count - 1))

    @rule(producer_id=st.integers(0, PRODUCERS))
    def produce_again(self, producer_id: int) -> None:
        if known := self.known(producer_id):
            last = known[-1]
            _, appended = self.send(producer_id, last.producer[1], last.producer[2] - last.producer[1] + 1)
            assert appended == Appended(last.base_offset, last.last_offset, True)

    @rule(producer_id=st.integers(0, PRODUCERS), beyond=st.integers(1, 5))
    def produce_with_a_gap(self, producer_id: int, beyond: int) -> None:
        if known := self.known(producer_id):
            with pytest.raises(AppendError) as caught:
                self.send(producer_id, known[-1].producer[2] + 1 + beyond, 1)
            assert caught.value.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(back=st.integers(0, 40))
    def truncate(self, back: int) -> None:
        offset = self.end - back
        if offset <= self.start:
            return
        truncate(self.log, offset)
        self.forget_from(offset)

    def forget_from(self, offset: int) -> None:
        while self.stored and self.stored[-1].last_offset >= offset:
            self.stored.pop()

    @rule(ahead=st.integers(-5, 50))
    def start_anew(self, ahead: int) -> None:
        self.start = max(self.end + ahead, 0)
        self.stored = []
        start_anew(self.log, self.start)

    @rule(back=st.integers(0, 60))
    def remove_old(self, back: int) -> None:
        high_watermark = max(self.end - back, self.start)
        start = expire(self.log, high_watermark=high_watermark, now_ms=NOW_MS)
        assert self.start <= start <= high_watermark
        size = sum(len(each.content) for each in self.stored if each.base_offset >= start)
        if start != self.start:
            assert size >= self.broker.settings.retention_bytes
        self.start = start

    @rule()
    def kill(self) -> None:
        self.broker.revive()

    @rule()
    def end_cleanly(self) -> None:
        self.broker.restart()

    @precondition(lambda self: self.stored and self.stored[-1].base_offset >= self.start)
    @rule(clean=st.booleans(), torn=st.integers(1, 9000))
    def tear_the_end(self, clean: bool, torn: int) -> None:
        self.broker.directory.close() if clean else self.broker.directory.abandon()
        last = self.broker.folder / f"{self.broker.names('.log')[-1]}.log"
        base_offset, size = int(last.stem), last.stat().st_size
        kept = max(size - torn, 0)
        os.truncate(last, kept)
        position = 0
        for each in [each for each in self.stored if each.base_offset >= base_offset]:
            position += len(each.content)
            if position > kept:
                self.forget_from(each.base_offset)
                break
        self.broker.open()

    @invariant()
    def the_log_has_what_the_list_has(self) -> None:
        if self.broker.directory.logs:
            log = self.log
            assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
            left = [each for each in self.stored if each.base_offset >= self.start]
            assert log.size_bytes == sum(len(each.content) for each in left)
            self.check_reads(left)
            self.check_epochs(left)

    def check_reads(self, left: list[Stored]) -> None:
        offset, parts = self.start, []
        while offset < self.end:
            found = self.log.segments.read(offset, 7000, below=EVERYTHING, at_least_one=True)
            assert found.next_offset > offset
            offset = found.next_offset
            parts.append(found.records)
        assert b"".join(parts) == b"".join(each.content for each in left)
        for each in left[:: max(len(left) // 5, 1)]:
            records = self.log.segments.read(each.last_offset, 1, below=self.end, at_least_one=True).records
            assert records == each.content
            below = self.log.segments.read(self.start, EVERYTHING, below=each.last_offset, at_least_one=True)
            assert [header.last_offset for header in headers(below.records)] == [
                other.last_offset for other in left if other.last_offset < each.last_offset
            ][: len(headers(below.records))]
        with pytest.raises(OffsetOutOfRangeError):
            self.log.segments.read(self.end + 1, 100, below=EVERYTHING, at_least_one=True)

    def check_epochs(self, left: list[Stored]) -> None:
        known = sorted({each.leader_epoch for each in left})
        if not known:
            return
        assert self.log.latest_epoch == known[-1]
        assert self.log.end_offset_for_epoch(known[-1]) == (known[-1], self.end)
        for asked, above in pairwise(known):
            first_above = next(each.base_offset for each in left if each.leader_epoch == above)
            assert self.log.end_offset_for_epoch(asked) == (asked, first_above)


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPartitionLog = LogMachine.TestCase
