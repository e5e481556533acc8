"""Cuts many writes into multis that the quorum takes, by number and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

#: Operations of one fenced multi, beside its check; and the bytes of their paths and values together.
CHUNK_OPERATIONS_MAX: Final = 1_000
#: Below the frame limit of an untuned ZooKeeper (1,048,575) by what versions, headers and lengths add.
CHUNK_BYTES_MAX: Final = 768 * 1024
#: Bytes that an operation adds to its path and value: header, lengths, version, a list of two digests.
OPERATION_OVERHEAD_BYTES: Final = 160

T = TypeVar("T")


def chunk_by_size(
    items: Iterable[tuple[T, int]],
    operations_max: int = CHUNK_OPERATIONS_MAX,
    bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[Sequence[T]]:
    """Cut a list of (item, bytes) into runs of at most operations_max items and bytes_max bytes, in order.

    An item larger than bytes_max makes a run of its own; the client refuses it by its own limit.
    """
    chunk: list[T] = []
    used = 0
    for item, size in items:
        if chunk and (len(chunk) >= operations_max or used + size > bytes_max):
            yield chunk
            chunk, used = [], 0
        chunk.append(item)
        used += size
    if chunk:
        yield chunk
