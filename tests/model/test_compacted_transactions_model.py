"""Compaction of logs with transactions against a model that knows only who wrote what and how it ended.

A reader of committed records must find the same last record of each key whatever was compacted, killed or
forgotten between two steps, and the same last stable offset.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker.log.batches import CONTROL, TRANSACTIONAL
from broker.log.opened import opened
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.compacting import check_continuous, compact
from tests.unit.broker_log.samples import (
    EPOCH,
    GZIP,
    NONE,
    NOW_MS,
    Broker,
    altered,
    append_batch,
    headers,
    keyed,
)
from tests.unit.broker_log.transactions import end

PRODUCERS = st.integers(0, 3)
RETENTION_MS = 100
#: offset, key, what follows its time if it has a value
Row = tuple[int, bytes, bytes | None]
ITEMS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([None, b"one", b"two" * 20])),
    min_size=1,
    max_size=3,
)


def committed(log: PartitionLog) -> list[Row]:
    """Read a log as Kafka's consumer reads committed records."""
    found: list[Row] = []
    offset, stable_offset = log.log_start_offset, log.last_stable_offset(log.log_end_offset)
    while offset < stable_offset:
        read = log.segments.read(offset, 300, below=stable_offset, at_least_one=True, with_aborted=True)
        begins = deque(sorted((each.first_offset, each.producer_id) for each in read.aborted or ()))
        aborting: set[int] = set()
        position = 0
        for header in headers(read.records):
            content = read.records[position : position + header.size]
            position += header.size
            while begins and begins[0][0] <= header.last_offset:
                aborting.add(begins.popleft()[1])
            records = opened(header, content) if header.records_count else []
            if header.attributes & CONTROL:
                if not int.from_bytes((records[0].key or b"")[2:4], "big"):
                    aborting.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
                for each in records:
                    value = each.whole[each.rest :] if each.has_value else None
                    found.append((header.base_offset + each.offset_delta, each.key or b"", value))
        offset = read.next_offset
    return found


def last_of_each(rows: list[Row]) -> dict[bytes, Row]:
    return {row[1]: row for row in rows}


class CompactedMachine(RuleBasedStateMachine):
    """One log."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(os, "fsync", lambda _descriptor: None)
        self.path = Path(tempfile.mkdtemp(prefix="compacted-"))
        self.broker = Broker(self.path / "data", open_files_max=4)
        self.first_dirty = 0
        self.now_ms = NOW_MS
        #: {producer: [epoch, next sequence number]}
        self.producers = {number: [0, 0] for number in range(4)}
        #: {producer: (offset, key) of what its open transaction has}
        self.open: dict[int, list[tuple[int, bytes]]] = {}
        #: {offset: key} of what was committed
        self.model: dict[int, bytes] = {}

    @initialize(segment_bytes=st.sampled_from([300, 900]))
    def create(self, segment_bytes: int) -> None:
        self.broker.create(segment_bytes=segment_bytes, max_message_bytes=280, cleanup_policy="compact")

    def teardown(self) -> None:
        try:
            for producer in list(self.open):
                self.end_one(producer, True)
            for _ in range(30):
                self.append_plain([(b"z", b"one")], NONE)
            for _ in range(8):
                self.compact_once(1000, RETENTION_MS)
            self.start_without_snapshots()
            self.check_markers()
        finally:
            self.broker.directory.abandon()
            shutil.rmtree(self.path)
            self.patch.undo()

    @property
    def log(self) -> PartitionLog:
        return self.broker.log

    @rule(producer=PRODUCERS, items=ITEMS, codec=st.sampled_from([NONE, GZIP]))
    def append(self, producer: int, items: list[tuple[bytes, bytes | None]], codec: int) -> None:
        epoch, sequence = self.producers[producer]
        records = keyed(list(items), codec=codec, producer=(producer, epoch, sequence), at_ms=self.now_ms)
        appended = append_batch(
            self.log, altered(records, attributes=TRANSACTIONAL | codec & 7), EPOCH, self.now_ms
        )
        self.producers[producer][1] += len(items)
        self.open.setdefault(producer, []).extend(
            (appended.base_offset + number, key) for number, (key, _) in enumerate(items)
        )

    @rule(items=ITEMS, codec=st.sampled_from([NONE, GZIP]))
    def append_plain(self, items: list[tuple[bytes, bytes | None]], codec: int) -> None:
        appended = append_batch(
            self.log, keyed(list(items), codec=codec, at_ms=self.now_ms), EPOCH, self.now_ms
        )
        self.model |= {appended.base_offset + number: key for number, (key, _) in enumerate(items)}

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end_one(self, producer: int, is_commit: bool) -> None:
        end(self.log, producer, is_commit=is_commit, producer_epoch=self.producers[producer][0])
        wrote = self.open.pop(producer, [])
        if is_commit:
            self.model |= dict(wrote)

    @rule(producer=PRODUCERS)
    def fence(self, producer: int) -> None:
        self.producers[producer] = [self.producers[producer][0] + 1, 0]
        self.end_one(producer, False)

    @rule(keys_max=st.sampled_from([1, 2, 1000]), later_ms=st.sampled_from([0, RETENTION_MS]))
    def compact_once(self, keys_max: int, later_ms: int) -> None:
        self.log.settle_flushes()
        self.now_ms += later_ms
        before, stable_offset = committed(self.log), self.log.last_stable_offset(self.log.log_end_offset)
        self.first_dirty = compact(
            self.log,
            first_dirty=self.first_dirty,
            keys_max=keys_max,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
        )
        assert self.first_dirty <= stable_offset
        after = committed(self.log)
        cleaned = last_of_each([row for row in before if row[0] < self.first_dirty])
        wanted = sorted([*cleaned.values(), *(row for row in before if row[0] >= self.first_dirty)])
        gone = set(wanted) - set(after)
        assert set(after) <= set(wanted)
        assert all(value is None and offset < self.first_dirty for offset, _, value in gone)
        self.check(stable_offset)

    @rule()
    def kill(self) -> None:
        self.log.settle_flushes()
        self.same_after(self.broker.revive)

    @rule()
    def restart(self) -> None:
        self.same_after(self.broker.restart)

    @rule()
    def start_without_snapshots(self) -> None:
        def opens() -> PartitionLog:
            self.broker.directory.close()
            for each in self.broker.folder.glob("*.snapshot"):
                each.unlink()
            return self.broker.open().logs[self.log.key]

        self.same_after(opens)

    def same_after(self, opens: object) -> None:
        before, stable_offset = committed(self.log), self.log.last_stable_offset(self.log.log_end_offset)
        opens()  # type: ignore[operator]  # a function
        assert committed(self.log) == before
        self.check(stable_offset)

    def check(self, stable_offset: int) -> None:
        check_continuous(self.log)
        assert self.log.last_stable_offset(self.log.log_end_offset) == stable_offset
        found = committed(self.log)
        known = {offset: key for offset, key in self.model.items() if offset < stable_offset}
        assert all(known[offset] == key for offset, key, _ in found)
        newest = {key: offset for offset, key in sorted(known.items())}
        for key, (offset, _, value) in last_of_each(found).items():
            # A key is not there where its tombstone has gone.
            assert offset == newest[key] or value is None

    def check_markers(self) -> None:
        """A marker is left only where a batch of its transaction is, or nothing else says the epoch."""
        met: set[int] = set()
        fencing = set(self.log.cleanable().fencing)
        for read in self.reads():
            for header in headers(read):
                if header.attributes & CONTROL:
                    if header.base_offset < self.first_dirty:
                        known = (header.producer_id, header.producer_epoch) in fencing
                        assert header.producer_id in met or known
                    met.discard(header.producer_id)
                elif header.attributes & TRANSACTIONAL:
                    met.add(header.producer_id)

    def reads(self) -> list[bytes]:
        offset, found = self.log.log_start_offset, []
        while offset < self.log.log_end_offset:
            read = self.log.segments.read(offset, 1, below=self.log.log_end_offset, at_least_one=True)
            found.append(read.records)
            offset = read.next_offset
        return found


CompactedMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestCompactedTransactions = CompactedMachine.TestCase
