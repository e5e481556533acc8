"""Numbers that look random and follow from a seed, so that a recorded term replays to the same effects."""

from __future__ import annotations

import hashlib


class Draws:
    """One sequence of numbers."""

    def __init__(self, seed: int) -> None:
        """Begin it."""
        self._seed = seed
        self._drawn = 0

    def bits(self) -> int:
        """Return the next 128 bits."""
        self._drawn += 1
        digest = hashlib.blake2b(f"{self._seed}:{self._drawn}".encode(), digest_size=16).digest()
        return int.from_bytes(digest, "big")

    def below(self, limit: int) -> int:
        """Return the next number from 0 to below a limit."""
        return self.bits() % limit
