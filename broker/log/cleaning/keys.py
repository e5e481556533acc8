"""The last offset of each key in the dirty part of a log, as far as memory allows.

Keys are known by 16 bytes of their hash, shorter ones by themselves. What does not fit is for another round:
the map ends before the first batch whose records may not all have room. Pure.
Source: Kafka's Cleaner.buildOffsetMap and SkimpyOffsetMap (3.9).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from broker.log.batches import CONTROL, BatchHeader, Buffer
from broker.log.cleaning.aborted import Transactions
from broker.log.opened import opened

#: what one key costs in memory, roughly
ENTRY_BYTES: Final = 160
_DIGEST_BYTES: Final = 16


def digest(key: bytes) -> bytes:
    """Return what a key is known by."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastOffsets:
    """The map of one round."""

    def __init__(self, first_offset: int, keys_max: int, transactions: Transactions) -> None:
        """Know no key.

        Args:
            first_offset: where the dirty part begins.
            keys_max: so many, but those of the first batch in any case.
            transactions: of which no batch was met; records of aborted ones do not count.
        """
        #: what was taken ends here; no record from there on is judged
        self.end_offset = first_offset
        #: {digest of a key: twice its last offset, and 1 if that record is a tombstone}
        self.last: dict[bytes, int] = {}
        self._keys_max = keys_max
        self._transactions = transactions

    def take(self, header: BatchHeader, batch: Buffer) -> bool:
        """Take the next batch; False if its keys do not fit: the round ends before it.

        Raises UnreadableBatchError.
        """
        room = self._keys_max - len(self.last)
        if header.records_count > room and self.last:
            return False
        is_aborted = self._transactions.aborts(header)
        if header.records_count and not header.attributes & CONTROL and not is_aborted:
            base_offset, last = header.base_offset, self.last
            for delta, _, key, has_value, _, _ in opened(header, batch):
                if key is not None:
                    last[digest(key)] = base_offset + delta << 1 | (not has_value)
        self.end_offset = header.last_offset + 1
        return True

    def survivors(self) -> Sequence[int]:
        """Return the values of `last`, rising: what stays of the batches that were taken."""
        return array("q", sorted(self.last.values()))
