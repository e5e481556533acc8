"""The digests of a node's last applied entries, to be looked up by log index. Pure.

Every node keeps them, because each may be asked by a leader or become one. Soft state: it begins with the
state that was restored or installed, and holds the last ENTRIES_MAX entries since.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Entries that are remembered: seconds of a busy log, while a report is under way for milliseconds.
ENTRIES_MAX: Final = 32 * 1024
_DIGEST_BYTES: Final = 16
_PAIR_BYTES: Final = 2 * _DIGEST_BYTES


class Digests(NamedTuple):
    """The two digest chains of a state as of one applied entry.

    Attributes:
        log_index: of the entry.
        state_digest: 16 bytes; the znodes.
        apply_digest: 16 bytes; results, counters, sessions, origins.
    """

    log_index: int
    state_digest: bytes
    apply_digest: bytes


class DigestHistory:
    """The digests of the newest applied entries, without gaps.

    Attributes:
        newest_index: the last entry that was noted.
    """

    __slots__ = ("_entries_max", "_first_index", "_ring", "newest_index")

    def __init__(self, now: Digests, *, entries_max: int = ENTRIES_MAX) -> None:
        """Begin with a state.

        Args:
            now: the digests of the restored state, at its applied index (0 for an empty one).
            entries_max: entries that are remembered.
        """
        self._entries_max = entries_max
        self._ring = bytearray(entries_max * _PAIR_BYTES)
        self.newest_index = 0
        self._first_index = 0
        self.restart(now)

    def restart(self, now: Digests) -> None:
        """Forget everything: the state was replaced by that of a snapshot."""
        self._first_index = now.log_index
        self.note(*now)

    def note(self, log_index: int, state_digest: bytes, apply_digest: bytes) -> None:
        """Remember the digests after the next entry; on the path of every entry."""
        start = log_index % self._entries_max * _PAIR_BYTES
        self._ring[start : start + _PAIR_BYTES] = state_digest + apply_digest
        self.newest_index = log_index

    def at(self, log_index: int) -> Digests | None:
        """Return the digests after an entry, None if it is not applied yet, or forgotten."""
        newest = self.newest_index
        if not max(self._first_index, newest - self._entries_max + 1) <= log_index <= newest:
            return None
        start = log_index % self._entries_max * _PAIR_BYTES
        middle = start + _DIGEST_BYTES
        ring = self._ring
        return Digests(log_index, bytes(ring[start:middle]), bytes(ring[middle : middle + _DIGEST_BYTES]))

    def newest(self) -> Digests:
        """Return the digests of the state as it is."""
        found = self.at(self.newest_index)
        assert found is not None
        return found
