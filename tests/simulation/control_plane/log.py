"""A broker's disk: logs whose records are (leader epoch, value), and what it notes beside them.

A record's value is a number that no other record of the world has. What a process wrote outlives it; what was
not flushed does not outlive a loss of power, and the next start knows only that something may be missing.
Records of transactional producers, and the markers that end their transactions, have their batch; what a log
knows of producers by them is the shipped state (`broker/log/producers.py`).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from broker.log.batches import CONTROL, PREFIX, BatchHeader, parse_header
from broker.log.errors import AppendError
from broker.log.markers import EndMarker, end_marker_in
from broker.log.opened import opened
from broker.log.produced import CheckedBatch, ProducedBatch, produced_batch
from broker.log.producers import Producers
from broker.log.results import Appended
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings

#: of a marker, as a record
MARKER = -1
_SETTINGS = TopicSettings()
#: There is one segment.
_SEGMENT = 0


class Record(NamedTuple):
    """One record, which is a batch of its own."""

    leader_epoch: int
    value: int
    #: of a transactional producer, as in the shipped log; else b""
    batch: bytes = b""

    @property
    def header(self) -> BatchHeader:
        """Of its batch."""
        return parse_header(self.batch, 0)

    @property
    def marker(self) -> EndMarker | None:
        """What it says, if it ends a transaction."""
        header = self.header
        return end_marker_in(header, (self.batch,)) if header.attributes & CONTROL else None


class SimLog:
    """A partition's log, from offset 0."""

    def __init__(self, key: PartitionKey, topic_id: uuid.UUID | None) -> None:
        self._key = key
        self.topic_id = topic_id
        self.records: list[Record] = []
        #: [(leader epoch, its first offset)], rising
        self._epochs: list[tuple[int, int]] = []
        #: what a loss of power leaves at least
        self.flushed = 0
        #: of transactional producers
        self.producers = Producers()
        #: [(end of the log, producers, aborted transactions)] as written, rising
        self._snapshots: list[tuple[int, bytes, bytes]] = []

    @property
    def log_start_offset(self) -> int:
        """Nothing is deleted here."""
        return 0

    @property
    def log_end_offset(self) -> int:
        """Where the next record goes."""
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        """Of the last record; -1 if there is none."""
        return self._epochs[-1][0] if self._epochs else -1

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """Return the end of what a reader of committed records may see."""
        return self.producers.last_stable_offset(high_watermark)

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """Return (largest epoch not above this one, its end), as the shipped log does."""
        known = self._epochs
        if not known or leader_epoch < 0 or leader_epoch > known[-1][0]:
            return -1, -1
        if leader_epoch == known[-1][0]:
            return leader_epoch, self.log_end_offset
        above = next(index for index, (epoch, _) in enumerate(known) if epoch > leader_epoch)
        return (known[above - 1][0] if above else leader_epoch), known[above][1]

    def append(self, records: Sequence[Record]) -> None:
        """Append records; their epochs never fall, as the shipped log sees to."""
        for record in records:
            assert record.leader_epoch >= self.latest_epoch, (record, self._epochs)
            if record.leader_epoch > self.latest_epoch:
                self._epochs.append((record.leader_epoch, len(self.records)))
            self.records.append(record)
            if record.batch:
                self._note(record)

    def _note(self, record: Record) -> None:
        """Remember what a record says of its producer; the state reads no time here."""
        aborted = self.producers.record(record.header, 0, record.marker)
        if aborted is not None:
            self.producers.aborted.note(_SEGMENT, aborted)

    def truncate(self, end_offset: int) -> None:
        """Cut everything from an offset on."""
        del self.records[end_offset:]
        while self._epochs and self._epochs[-1][1] >= end_offset:
            self._epochs.pop()
        self.flushed = min(self.flushed, end_offset)
        self._snapshots = [each for each in self._snapshots if each[0] <= end_offset]
        if not self.producers.truncate_to(end_offset, _SEGMENT):
            self.recover()

    def recover(self) -> None:
        """Build the state of producers as a start does: from a snapshot, and the batches behind it."""
        end, self.producers = 0, Producers()
        if self._snapshots:
            end, content, aborted = self._snapshots[-1]
            self.producers = Producers.parse(content, end)
            self.producers.aborted.lists[_SEGMENT] = bytearray(aborted)
        for record in self.records[end:]:
            if record.batch:
                self._note(record)

    def flush(self) -> None:
        """Make it durable, with a snapshot of the producers."""
        self.flushed = end = self.log_end_offset
        if len(self.producers) and (not self._snapshots or self._snapshots[-1][0] < end):
            aborted = bytes(self.producers.aborted.lists.get(_SEGMENT) or b"")
            self._snapshots.append((end, self.producers.to_bytes(), aborted))

    # -- as the shipped code appends batches of producers ----------------------------------------------------

    def check(self, records: bytes | memoryview) -> ProducedBatch:
        """Look at what was sent."""
        return produced_batch(records, _SETTINGS, self._key)

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer of an epoch has one."""
        return self.producers.is_open(producer_id, producer_epoch)

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of a producer is known."""
        return self.producers.is_fenced(producer_id, producer_epoch)

    def must_wait(self, size_bytes: int, records_count: int) -> bool:  # noqa: ARG002 - as the real one
        """The disk lets nobody wait."""
        return False

    async def before_append(self, size_bytes: int, records_count: int) -> None:
        """Return at once."""

    def append_produced(
        self,
        batch: CheckedBatch,
        leader_epoch: int,
        now_ms: int,  # noqa: ARG002 - as the real one
        *,
        must_be_open: bool = False,
    ) -> Appended:
        """Append a batch of one record, unless it is a repeat."""
        content = bytes(batch.content)
        marker = Record(leader_epoch, MARKER, content).marker
        known = self.producers.check(batch.header, marker)
        if known is not None:
            return Appended(known.base_offset, known.last_offset, True)
        header = batch.header
        if must_be_open and not self.producers.is_open(header.producer_id, header.producer_epoch):
            raise AppendError(ErrorCode.INVALID_TXN_STATE, "the transaction ended before")
        value = MARKER if marker is not None else _value(batch.header, content)
        offset = self.log_end_offset
        prefix = PREFIX.pack(offset, batch.header.batch_length, leader_epoch)
        self.append([Record(leader_epoch, value, prefix + content[PREFIX.size :])])
        return Appended(offset, offset, False)


def _value(header: BatchHeader, content: bytes) -> int:
    """Return the number that a producer's record is: eight bytes, behind which are no headers."""
    return int.from_bytes(opened(header, content)[0].whole[-9:-1], "big")


class Disk:
    """The data directory of a broker."""

    def __init__(self, number: int) -> None:
        """Be empty; the number is that of no other disk."""
        self.incarnation = f"{number:032x}"
        self.logs: dict[PartitionKey, SimLog] = {}
        #: as checkpointed last
        self.high_watermarks: dict[PartitionKey, int] = {}
        #: logs that may lack what they had acknowledged
        self.shortened: dict[PartitionKey, None] = {}

    def checkpoint(self, high_watermarks: dict[PartitionKey, int]) -> None:
        """Write the high watermarks, and flush all logs."""
        self.high_watermarks = high_watermarks
        for log in self.logs.values():
            log.flush()

    def lose_power(self, rng: random.Random, *, all_of_it: bool = False) -> int:
        """Lose some of what was not flushed, or all of it; returns how many records."""
        lost = 0
        for key, log in self.logs.items():
            kept = log.flushed if all_of_it else rng.randint(log.flushed, log.log_end_offset)
            lost += log.log_end_offset - kept
            self.cut(key, kept)
            self.shortened[key] = None
        return lost

    def damage(self, key: PartitionKey, kept: int) -> None:
        """Let a log end early, as a start finds it out."""
        self.cut(key, kept)
        self.shortened[key] = None

    def cut(self, key: PartitionKey, end_offset: int) -> None:
        """Cut a log; what is committed of it ends there, too."""
        self.logs[key].truncate(end_offset)
        if self.high_watermarks.get(key, 0) > end_offset:
            self.high_watermarks[key] = end_offset

    def delete(self, key: PartitionKey) -> None:
        """Remove a log, or set it aside."""
        self.logs.pop(key, None)
        self.high_watermarks.pop(key, None)
        self.shortened.pop(key, None)
