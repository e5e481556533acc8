"""Folds records by a codec, as Kafka's clients unfold them.

Source: Kafka protocol guide, "Record Batch"; xerial snappy-java, SnappyOutputStream.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cramjam

#: magic, version, oldest compatible version; blocks with an int32 length follow
_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + Struct(">ii").pack(1, 1)
_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")


def folded(records: bytes, codec: int) -> bytes:
    """Return records as a batch with this codec holds them."""
    if codec == 0:
        return records
    if codec == 1:
        return bytes(cramjam.gzip.compress(records))
    if codec == 2:
        return _XERIAL_HEADER + b"".join(
            _block(records[first : first + _BLOCK_BYTES]) for first in range(0, len(records), _BLOCK_BYTES)
        )
    return bytes(cramjam.lz4.compress(records) if codec == 3 else cramjam.zstd.compress(records))


def _block(part: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(part))
    return _BLOCK_LENGTH.pack(len(block)) + block
