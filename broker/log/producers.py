"""What a partition remembers of its producers: their last batches, and the transactions that they have open.

Keeps the last five batches of each producer id: as many as a client may have in flight. A repeat of one
of them gets the offsets of the first time; anything else must continue the sequence. A producer id that
is not known may begin with any number: its state may have expired or been evicted.

A producer's first transactional batch begins a transaction, a marker ends it. Records from the first
transaction on that is open, or whose marker is not committed yet, are not stable. A producer with an open
transaction is not forgotten; at most TRANSACTIONS_MAX are open, so that there is always another to forget.

The state is a function of the log: followers build it from the batches they copy, a start from a snapshot
and the batches behind it.

Kafka 3.9 answers neither UNKNOWN_PRODUCER_ID (since KIP-360) nor DUPLICATE_SEQUENCE_NUMBER: a repeat of a
batch older than the five is out of order.
Source: KIP-98, KIP-360; Kafka's ProducerStateManager (3.9), whose snapshot format this is, but with one
row for each batch, and one without a producer for each ended transaction whose marker is not known to be
committed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.aborted import AbortedLists, AbortedTransaction
from broker.log.batches import CONTROL, NO_PRODUCER, TRANSACTIONAL, BatchHeader
from broker.log.errors import AppendError, fenced
from broker.log.markers import EndMarker
from controller.wire.codes import ErrorCode

BATCHES_MAX: Final = 5
PRODUCERS_MAX: Final = 5_000
#: that are open in one partition; what would begin another one has to try again
TRANSACTIONS_MAX: Final = 4_000
EXPIRATION_MS: Final = 86_400_000
_SEQUENCE_MAX: Final = 2**31 - 1
_NO_SEQUENCE: Final = -1
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1

_VERSION: Final = 1
#: version, crc of what follows, number of rows
_SNAPSHOT: Final = Struct(">hIi")
#: producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first offset of
#: the open transaction; of an ended one: no producer, its marker's offset as the last one, its first offset
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


class ActiveProducer(NamedTuple):
    """One producer, as DescribeProducers names it."""

    producer_id: int
    producer_epoch: int
    #: -1: no batch of its epoch is known
    last_sequence: int
    #: of the last append, by the clock of the broker that appended
    last_timestamp: int
    #: of its last marker; -1: none
    coordinator_epoch: int
    #: -1: it has no open transaction
    current_txn_start_offset: int


class _Producer:
    """One producer id: its epoch and its last batches in that epoch, oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_append_ms", "transaction_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.last_append_ms = 0
        #: of its last marker
        self.coordinator_epoch = _NO_EPOCH
        #: where its open transaction began
        self.transaction_offset = _NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE


class _Ended(NamedTuple):
    """An ended transaction."""

    first_offset: int
    marker_offset: int


class Producers:
    """The producers of one partition; at most PRODUCERS_MAX.

    Beyond that the one idle longest goes, of those that have sent one batch if there are any: a client that
    takes a new id for each batch does not make the broker forget the others.
    """

    __slots__ = ("_beginners", "_ended", "_last_marker_offset", "_open", "_producers", "_was_cut", "aborted")

    def __init__(self, folder: str = "") -> None:
        """Know none; `folder` is the log's."""
        #: {producer id: its state}, the one that wrote longest ago first; none is in two of the three
        self._producers: OrderedDict[int, _Producer] = OrderedDict()
        #: those that have sent one batch
        self._beginners: OrderedDict[int, _Producer] = OrderedDict()
        #: those with an open transaction, the one that began first first
        self._open: OrderedDict[int, _Producer] = OrderedDict()
        #: by both offsets, rising: one that began after a later one ended hides nothing
        self._ended: deque[_Ended] = deque()
        #: at least that of the last marker; what is cut below it cannot be undone here
        self._last_marker_offset = _NO_OFFSET
        #: the log was cut and this state does not fit it any more
        self._was_cut = False
        self.aborted = AbortedLists(folder)

    def __len__(self) -> int:
        return len(self._producers) + len(self._beginners) + len(self._open)

    def _known(self, producer_id: int) -> _Producer | None:
        return (
            self._producers.get(producer_id)
            or self._beginners.get(producer_id)
            or self._open.get(producer_id)
        )

    def _all(self) -> Iterator[tuple[int, _Producer]]:
        return chain(self._beginners.items(), self._producers.items(), self._open.items())

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer of an epoch has an open transaction."""
        producer = self._open.get(producer_id)
        return producer is not None and producer.epoch == producer_epoch

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a later epoch of a producer is known."""
        producer = self._known(producer_id)
        return producer is not None and producer.epoch > producer_epoch

    def oldest_open_ms(self) -> int | None:
        """Return when the transaction that is open for longest was last appended to; None: none is open."""
        return next((each.last_append_ms for each in self._open.values()), None)

    def check(self, header: BatchHeader, marker: EndMarker | None = None) -> KnownBatch | None:
        """Check a batch of a producer that a leader is to append.

        Args:
            header: the batch's.
            marker: what it says, if it ends a transaction.

        Returns:
            The batch as it was appended before if this is a repeat; None: append it.
        """
        producer = self._known(header.producer_id)
        if producer is not None:
            if header.producer_epoch < producer.epoch:
                raise fenced(header.producer_id, header.producer_epoch, producer.epoch)
            if marker is not None:
                _check_marker(header, marker, producer)
                return None
            known = _check_sequence(header, producer)
            if known is not None:
                return known
        is_open = producer is not None and producer.transaction_offset != _NO_OFFSET
        is_transactional = header.attributes & TRANSACTIONAL
        if is_open and not is_transactional:
            raise AppendError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id}: a batch outside of its open transaction",
            )
        if is_transactional and not is_open and marker is None and len(self._open) >= TRANSACTIONS_MAX:
            # Every client takes this code for one that passes.
            raise AppendError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{TRANSACTIONS_MAX} transactions are open in this partition: try again when one has ended",
            )
        return None

    def record(
        self, header: BatchHeader, now_ms: int, marker: EndMarker | None = None
    ) -> AbortedTransaction | None:
        """Remember a batch of a producer that was appended.

        Args:
            header: the batch's.
            now_ms: the time.
            marker: what it says, if it ends a transaction.

        Returns:
            The transaction that it has aborted.
        """
        attributes = header.attributes
        if attributes & CONTROL:
            return None if marker is None else self._record_marker(header, now_ms, marker)
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
        if attributes & TRANSACTIONAL and producer.transaction_offset == _NO_OFFSET:
            self._begin(header.producer_id, producer, header.base_offset)
        return None

    def _producer(self, producer_id: int, producer_epoch: int) -> _Producer:
        producer = self._known(producer_id)
        if producer is None:
            if len(self) >= PRODUCERS_MAX and len(self) > len(self._open):
                (self._beginners or self._producers).popitem(last=False)
            producer = self._beginners[producer_id] = _Producer(producer_epoch)
        elif producer.transaction_offset == _NO_OFFSET:
            self._beginners.pop(producer_id, None)
            self._producers[producer_id] = producer
            self._producers.move_to_end(producer_id)
        if producer.epoch != producer_epoch:
            producer.epoch = producer_epoch
            producer.batches.clear()
        return producer

    def _begin(self, producer_id: int, producer: _Producer, offset: int) -> None:
        self._beginners.pop(producer_id, None)
        self._producers.pop(producer_id, None)
        self._open[producer_id] = producer
        producer.transaction_offset = offset

    def _record_marker(
        self, header: BatchHeader, now_ms: int, marker: EndMarker
    ) -> AbortedTransaction | None:
        producer_id, offset = header.producer_id, header.base_offset
        producer = self._producer(producer_id, header.producer_epoch)
        producer.last_append_ms = now_ms
        producer.coordinator_epoch = marker.coordinator_epoch
        self._last_marker_offset = offset
        first_offset = producer.transaction_offset
        if first_offset == _NO_OFFSET:
            return None
        del self._open[producer_id]
        producer.transaction_offset = _NO_OFFSET
        # A client that takes a new id for each transaction does not make the broker forget the others.
        (self._beginners if len(producer.batches) <= 1 else self._producers)[producer_id] = producer
        self._note_ended(_Ended(first_offset, offset))
        if marker.is_commit:
            return None
        stable_offset = next((each.transaction_offset for each in self._open.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, stable_offset)

    def _note_ended(self, ended: _Ended) -> None:
        while self._ended and self._ended[-1].first_offset >= ended.first_offset:
            self._ended.pop()
        self._ended.append(ended)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the end (exclusive) of what a reader of committed records may see.

        Every transaction that begins below it has ended, by a marker below the high watermark.
        """
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        if self._was_cut:
            return 0
        if ended and ended[0].first_offset < high_watermark:
            high_watermark = ended[0].first_offset
        for producer in self._open.values():
            return min(high_watermark, producer.transaction_offset)
        return high_watermark

    def active(self) -> list[ActiveProducer]:
        """Return those that have a batch or a marker."""
        return [
            ActiveProducer(
                producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_append_ms,
                producer.coordinator_epoch,
                producer.transaction_offset,
            )
            for producer_id, producer in self._all()
        ]

    def last_offsets(self) -> list[tuple[int, int]]:
        """Return (producer id, last offset) of every batch whose repeat would be known."""
        return [
            (producer_id, batch.last_offset)
            for producer_id, producer in self._all()
            for batch in producer.batches
        ]

    def fencing_epochs(self) -> list[tuple[int, int]]:
        """Return (producer id, epoch) of those of which nothing but a marker is known."""
        return [(producer_id, each.epoch) for producer_id, each in self._all() if not each.batches]

    def truncate_to(self, end_offset: int, base_offset: int) -> bool:
        """Forget the batches from an offset on.

        Args:
            end_offset: exclusive.
            base_offset: of the segment that is the newest one now.

        Returns:
            False if memory does not suffice: of some producer nothing is left that may have written before,
            or a transaction began or ended there. The state must be built anew from a snapshot then, and
            until then nothing is stable.
        """
        exact = self._last_marker_offset < end_offset and self.aborted.is_held(base_offset)
        for _, producer in self._all():
            exact = exact and producer.transaction_offset < end_offset
            was_empty = not producer.batches
            while producer.batches and producer.batches[-1].last_offset >= end_offset:
                producer.batches.pop()
            exact = exact and (was_empty or bool(producer.batches))
        self._was_cut = not exact
        return exact

    def expire(self, now_ms: int) -> None:
        """Forget producers that have written nothing for a day."""
        for producers in (self._beginners, self._producers):
            while producers:
                producer_id, producer = next(iter(producers.items()))
                if now_ms - producer.last_append_ms < EXPIRATION_MS:
                    break
                del producers[producer_id]

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
                producer.coordinator_epoch,
                producer.transaction_offset,
            )
            for producer_id, producer in self._all()
            for batch in producer.batches or (_NO_BATCH,)
        ]
        rows += [
            _ROW.pack(NO_PRODUCER, _NO_EPOCH, _NO_SEQUENCE, marker_offset, 0, 0, _NO_EPOCH, first_offset)
            for first_offset, marker_offset in self._ended
        ]
        content = b"".join([_SNAPSHOT.pack(_VERSION, 0, len(rows)), *rows])
        return _SNAPSHOT.pack(_VERSION, crc32c(content[_CRC_END:]), len(rows)) + content[_SNAPSHOT.size :]

    @classmethod
    def parse(cls, content: bytes, end_offset: int, folder: str = "") -> Producers:
        """Read a snapshot that was taken where the log ended at an offset; `folder` is the log's."""
        if len(content) < _SNAPSHOT.size:
            raise ValueError(f"{len(content)} bytes")
        version, crc, count = _SNAPSHOT.unpack_from(content)
        if version != _VERSION or len(content) != _SNAPSHOT.size + count * _ROW.size:
            raise ValueError(f"version {version} with {count} rows in {len(content)} bytes")
        if crc != crc32c(content[_CRC_END:]):
            raise ValueError("checksum")
        found = cls(folder)
        for row in _ROW.iter_unpack(content[_SNAPSHOT.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first = row
            if producer_id == NO_PRODUCER:
                found._ended.append(_Ended(first, last_offset))
                continue
            producer = found._producer(producer_id, epoch)
            producer.last_append_ms = timestamp
            producer.coordinator_epoch = coordinator_epoch
            if coordinator_epoch != _NO_EPOCH:
                found._last_marker_offset = end_offset - 1
            if last_offset != _NO_OFFSET:
                base_sequence = (last_sequence - delta) & _SEQUENCE_MAX
                producer.batches.append(
                    KnownBatch(base_sequence, last_sequence, last_offset - delta, last_offset)
                )
            if first != _NO_OFFSET:
                found._begin(producer_id, producer, first)
        return found


#: the row of a producer of which nothing but a marker is known
_NO_BATCH: Final = KnownBatch(_NO_SEQUENCE, _NO_SEQUENCE, _NO_OFFSET, _NO_OFFSET)


def _check_sequence(header: BatchHeader, producer: _Producer) -> KnownBatch | None:
    """Return the batch as it was appended before, if it is a repeat; one that is not the next is refused."""
    expected = 0
    if header.producer_epoch == producer.epoch:
        for known in producer.batches:
            if known.base_sequence == header.base_sequence and known.last_sequence == header.last_sequence:
                return known
        last = producer.batches[-1].last_sequence if producer.batches else _NO_SEQUENCE
        expected = 0 if last == _SEQUENCE_MAX else last + 1
    if header.base_sequence != expected:
        raise AppendError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} with epoch {header.producer_epoch}: sequence number "
            f"{header.base_sequence} where {expected} comes next",
        )
    return None


def _check_marker(header: BatchHeader, marker: EndMarker, producer: _Producer) -> None:
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise AppendError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"producer {header.producer_id}: coordinator epoch {marker.coordinator_epoch} after "
            f"{producer.coordinator_epoch}",
        )
