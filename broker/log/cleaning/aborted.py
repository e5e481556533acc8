"""Which batches belong to transactions that were aborted: compaction drops their records. Pure.

Source: KIP-98; Kafka's CleanedTransactionMetadata (3.9).
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.log.batches import CONTROL, TRANSACTIONAL, BatchHeader


class AbortedTransactions:
    """The aborted transactions of a log."""

    def __init__(self, transactions: Iterable[tuple[int, int, int]] = ()) -> None:
        """Take (producer id, first offset, offset of the marker) of each."""
        self._of: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in transactions:
            self._of.setdefault(producer_id, []).append((first_offset, last_offset))

    def holds(self, header: BatchHeader) -> bool:
        """Whether the records of a batch were aborted."""
        return header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL and any(
            first <= header.base_offset <= last for first, last in self._of.get(header.producer_id, ())
        )
