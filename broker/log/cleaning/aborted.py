"""What one pass over a log meets of each transaction, from the log's start on. Pure.

Compaction drops the records of aborted transactions, and a marker once no batch of its transaction is left:
a reader that begins at the log's start takes a transaction without a marker for an open one.
Source: KIP-98, KIP-534; Kafka's CleanedTransactionMetadata (3.9).
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.log.aborted import AbortedTransaction
from broker.log.batches import CONTROL, TRANSACTIONAL, BatchHeader


class Transactions:
    """The transactions of a log, each batch of which is met in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Take those that were aborted."""
        #: the one that begins first is the last one
        self._ahead = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        #: {producer id: the last one that has begun}
        self._aborted: dict[int, AbortedTransaction] = {}
        #: producers of which batches were met since their last marker
        self._met: set[int] = set()
        #: aborted ones of which batches were met, whose markers were met since this was taken
        self._ended: list[AbortedTransaction] = []

    def aborts(self, header: BatchHeader) -> bool:
        """Meet a batch that is no marker; returns whether its records were aborted."""
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return False
        while self._ahead and self._ahead[-1].first_offset <= header.base_offset:
            begun = self._ahead.pop()
            self._aborted[begun.producer_id] = begun
        self._met.add(header.producer_id)
        found = self._aborted.get(header.producer_id)
        return found is not None and header.base_offset <= found.last_offset

    def ends_any(self, header: BatchHeader) -> bool:
        """Meet a marker; returns whether batches of its transaction were met."""
        if header.producer_id not in self._met:
            return False
        self._met.remove(header.producer_id)
        found = self._aborted.get(header.producer_id)
        if found is not None and found.last_offset == header.base_offset:
            self._ended.append(found)
        return True

    def take_ended(self) -> bytes:
        """Return the list for the segment that has the markers since the last call."""
        content = b"".join(each.pack() for each in self._ended)
        self._ended.clear()
        return content
