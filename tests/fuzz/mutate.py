"""Changes to an input, each small, several at a time: what a broken or hostile sender does to bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import pack
from typing import Final

INPUT_BYTES_MAX: Final = 2048
_LENGTHS: Final = (-(2**31), -2, -1, 0, 1, 2, 3, 4, 8, 12, 68, 255, 65_535, 2**20, 2**31 - 1)


def mutate(data: bytes, corpus: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a changed copy, at most INPUT_BYTES_MAX long.

    Args:
        data: where to begin.
        corpus: other inputs, of which pieces are taken.
        rng: decides.
    """
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 8))):
        _change(changed, corpus, rng)
    return bytes(changed[:INPUT_BYTES_MAX])


def _change(data: bytearray, corpus: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 2, 4, 8, 16, 64)))
    match rng.randrange(9):
        case 0:
            data[at:end] = bytes(0 for _ in range(at, end))
        case 1:
            del data[at:end]
        case 2:
            del data[at:]
        case 3:
            data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8)))
        case 4:
            data[at : at + 4] = pack(">i", rng.choice(_LENGTHS))
        case 5:
            data[at:at] = data[at:end]
        case 6:
            other = rng.choice(corpus)
            begin = rng.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + rng.choice((4, 16, 64, 256))]
        case 7 if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case _ if at < len(data):
            data[at] = rng.randrange(256)
