"""What a partition remembers of its idempotent producers, so that a repeated batch is appended once.

Keeps the last five batches of each producer id: as many as a client may have in flight. A repeat of one
of them gets the offsets of the first time; anything else must continue the sequence. A producer id that
is not known may begin with any number: its state may have expired or been evicted. The state is a
function of the log: followers build it from the batches they copy, a start from a snapshot and the
batches behind it.

Kafka 3.9 answers neither UNKNOWN_PRODUCER_ID (since KIP-360) nor DUPLICATE_SEQUENCE_NUMBER: a repeat of a
batch older than the five is out of order.
Source: KIP-98, KIP-360; Kafka's ProducerStateManager (3.9), whose snapshot format this is, but with one
row for each batch.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.batches import NO_PRODUCER, BatchHeader
from broker.log.errors import AppendError
from controller.wire.codes import ErrorCode

BATCHES_MAX: Final = 5
PRODUCERS_MAX: Final = 5_000
EXPIRATION_MS: Final = 86_400_000
_SEQUENCE_MAX: Final = 2**31 - 1

_VERSION: Final = 1
#: version, crc of what follows, number of rows
_SNAPSHOT: Final = Struct(">hIi")
#: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of
#: a transaction; the last two are for transactions only
_ROW: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6


class KnownBatch(NamedTuple):
    """One batch of a producer, as remembered."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    #: where its records have that as their time; -1: they do not, or the batch is known from a snapshot
    append_time_ms: int = -1


class _Producer:
    """One producer id: its epoch and its last batches in that epoch, oldest first."""

    __slots__ = ("batches", "epoch", "last_append_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.last_append_ms = 0


class Producers:
    """The idempotent producers of one partition; at most PRODUCERS_MAX.

    Beyond that the one idle longest goes, of those that have sent one batch if there are any: a client that
    takes a new id for each batch does not make the broker forget the others.
    """

    __slots__ = ("_beginners", "_producers")

    def __init__(self) -> None:
        #: {producer id: its state}, the one that wrote longest ago first; none is in both
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        #: those that have sent one batch
        self._beginners: OrderedDict[int, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers) + len(self._beginners)

    def _known(self, producer_id: int) -> _Producer | None:
        return self._producers.get(producer_id) or self._beginners.get(producer_id)

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """Check the sequence number of a batch that a producer sent.

        Returns:
            The batch as it was appended before if this is a repeat; None: append it.
        """
        producer = self._known(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise AppendError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id}: epoch {header.producer_epoch} after {producer.epoch}",
            )
        expected = 0
        if header.producer_epoch == producer.epoch:
            for known in producer.batches:
                if (
                    known.base_sequence == header.base_sequence
                    and known.last_sequence == header.last_sequence
                ):
                    return known
            last = producer.batches[-1].last_sequence
            expected = 0 if last == _SEQUENCE_MAX else last + 1
        if header.base_sequence != expected:
            raise AppendError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} with epoch {header.producer_epoch}: sequence number "
                f"{header.base_sequence} where {expected} comes next",
            )
        return None

    def record(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch that was appended, if an idempotent producer sent it."""
        if header.producer_id == NO_PRODUCER:
            return
        producer = self._producer(header.producer_id, header.producer_epoch)
        producer.last_append_ms = now_ms
        producer.batches.append(
            KnownBatch(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.append_time_ms,
            )
        )
        if len(producer.batches) > BATCHES_MAX:
            del producer.batches[0]

    def _producer(self, producer_id: int, producer_epoch: int) -> _Producer:
        producer = self._known(producer_id)
        if producer is None:
            if len(self) >= PRODUCERS_MAX:
                (self._beginners or self._producers).popitem(last=False)
            producer = self._beginners[producer_id] = _Producer(producer_epoch)
        else:
            self._beginners.pop(producer_id, None)
            self._producers[producer_id] = producer
            self._producers.move_to_end(producer_id)
        if producer.epoch != producer_epoch:
            producer.epoch = producer_epoch
            producer.batches.clear()
        return producer

    def active(self) -> list[tuple[int, int, int, int]]:
        """Return (producer id, epoch, last sequence, time of the last append) of those that have a batch."""
        return [
            (producer_id, producer.epoch, producer.batches[-1].last_sequence, producer.last_append_ms)
            for producer_id, producer in chain(self._beginners.items(), self._producers.items())
            if producer.batches
        ]

    def last_offsets(self) -> list[tuple[int, int]]:
        """Return (producer id, last offset) of every batch whose repeat would be known."""
        return [
            (producer_id, batch.last_offset)
            for producer_id, producer in chain(self._beginners.items(), self._producers.items())
            for batch in producer.batches
        ]

    def truncate_to(self, end_offset: int) -> bool:
        """Forget the batches from an offset on.

        Returns:
            False if memory does not suffice: of some producer nothing is left that may have written before.
            The state must be built anew from a snapshot then.
        """
        exact = True
        for producer in chain(self._beginners.values(), self._producers.values()):
            while producer.batches and producer.batches[-1].last_offset >= end_offset:
                producer.batches.pop()
            exact = exact and bool(producer.batches)
        return exact

    def expire(self, now_ms: int) -> None:
        """Forget producers that have written nothing for a day."""
        for producers in (self._beginners, self._producers):
            while producers:
                producer_id, producer = next(iter(producers.items()))
                if now_ms - producer.last_append_ms < EXPIRATION_MS:
                    break
                del producers[producer_id]

    def clear(self) -> None:
        """Forget everything."""
        self._producers.clear()
        self._beginners.clear()

    def to_bytes(self) -> bytes:
        """Return a snapshot: every remembered batch, of each producer the oldest first."""
        rows = [
            _ROW.pack(
                producer_id,
                producer.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.base_offset,
                producer.last_append_ms,
                -1,
                -1,
            )
            for producer_id, producer in chain(self._beginners.items(), self._producers.items())
            for batch in producer.batches
        ]
        content = b"".join([_SNAPSHOT.pack(_VERSION, 0, len(rows)), *rows])
        return _SNAPSHOT.pack(_VERSION, crc32c(content[_CRC_END:]), len(rows)) + content[_SNAPSHOT.size :]

    @classmethod
    def parse(cls, content: bytes) -> Producers:
        """Read a snapshot."""
        if len(content) < _SNAPSHOT.size:
            raise ValueError(f"{len(content)} bytes")
        version, crc, count = _SNAPSHOT.unpack_from(content)
        if version != _VERSION or len(content) != _SNAPSHOT.size + count * _ROW.size:
            raise ValueError(f"version {version} with {count} rows in {len(content)} bytes")
        if crc != crc32c(content[_CRC_END:]):
            raise ValueError("checksum")
        found = cls()
        for row in _ROW.iter_unpack(content[_SNAPSHOT.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, _, _ = row
            producer = found._producer(producer_id, epoch)
            producer.last_append_ms = timestamp
            base_sequence = (last_sequence - delta) & _SEQUENCE_MAX
            producer.batches.append(
                KnownBatch(base_sequence, last_sequence, last_offset - delta, last_offset)
            )
        return found
