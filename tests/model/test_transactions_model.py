"""Transactions in a log against a scan of all its batches, under markers, cuts, kills and clean ends.

The scan reads the log from its first batch to its last and knows no state. After each step the log must have
the same last stable offset for each high watermark, and the same aborted transactions for each read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.log.errors import AppendError
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.samples import Broker, fill, truncate
from tests.unit.broker_log.transactions import end, scan, write

PRODUCERS = st.integers(0, 2)
EPOCHS = st.sampled_from([0, 0, 0, 0, 1])


class TransactionsMachine(RuleBasedStateMachine):
    """One log."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda _descriptor: None)
        self.path = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.broker = Broker(self.path / "data", open_files_max=4)
        self.high_watermark = 0

    @initialize(segment_bytes=st.sampled_from([300, 900, 4000]))
    def create(self, segment_bytes: int) -> None:
        self.broker.create(segment_bytes=segment_bytes, max_message_bytes=250)

    def teardown(self) -> None:
        self.broker.directory.abandon()
        shutil.rmtree(self.path)
        self.patch.undo()

    @property
    def log(self) -> PartitionLog:
        return self.broker.log

    def next_of(self, producer_id: int, producer_epoch: int) -> int:
        for each in self.log.active_producers():
            if (each.producer_id, each.producer_epoch) == (producer_id, producer_epoch):
                return each.last_sequence + 1
        return 0

    @rule(
        producer_id=PRODUCERS,
        producer_epoch=EPOCHS,
        count=st.integers(1, 2),
        transactional=st.sampled_from([True, True, True, False]),
    )
    def append(self, producer_id: int, producer_epoch: int, count: int, transactional: bool) -> None:
        sequence = self.next_of(producer_id, producer_epoch)
        # One of a former epoch is refused, and one outside of its open transaction.
        with suppress(AppendError):
            write(
                self.log,
                producer_id,
                sequence,
                count=count,
                producer_epoch=producer_epoch,
                transactional=transactional,
            )

    @rule(
        producer_id=PRODUCERS,
        producer_epoch=EPOCHS,
        is_commit=st.booleans(),
        epoch=st.sampled_from([0, 0, 1]),
    )
    def mark(self, producer_id: int, producer_epoch: int, is_commit: bool, epoch: int) -> None:
        with suppress(AppendError):
            end(
                self.log,
                producer_id,
                is_commit=is_commit,
                producer_epoch=producer_epoch,
                coordinator_epoch=epoch,
            )

    @rule(count=st.integers(1, 3))
    def append_others(self, count: int) -> None:
        fill(self.log, count)

    @rule(part=st.sampled_from([0.1, 0.3, 1]))
    def commit(self, part: float) -> None:
        left = self.log.log_end_offset - self.high_watermark
        self.high_watermark += int(left * part)
        self.log.last_stable_offset(self.high_watermark)

    @rule(part=st.floats(0, 1))
    def cut(self, part: float) -> None:
        left = self.log.log_end_offset - self.high_watermark
        truncate(self.log, self.high_watermark + int(left * part))
        # A batch goes as a whole, also one that was committed in part.
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.broker.restart()
        else:
            self.broker.revive()

    @rule()
    def settle(self) -> None:
        self.log.settle_flushes()

    @invariant()
    def is_as_scanned(self) -> None:
        log = self.log
        if not log.log_end_offset:
            return
        scanned, end_offset = scan(log), log.log_end_offset
        stable = log.last_stable_offset(self.high_watermark)
        assert stable == scanned.last_stable_offset(self.high_watermark)
        for offset in range(0, end_offset, max(end_offset // 5, 1)):
            read = log.segments.read(offset, 200, below=end_offset, at_least_one=True, with_aborted=True)
            assert read.aborted == scanned.aborted_between(offset, read.next_offset)
        open_ones = {
            each.producer_id: each.current_txn_start_offset
            for each in log.active_producers()
            if each.current_txn_start_offset >= 0
        }
        assert open_ones == scanned.open


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
