"""How many bytes of what a leader appended have not come far enough yet.

Decides nothing: `raft.py` refuses proposals beyond a bound. Soft state of one leadership.
"""

from collections import deque


class Backlog:
    """Entries that were appended and are not settled: committed, or durable here, whatever it is kept for.

    Attributes:
        size_bytes: of all of them.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.size_bytes = 0
        #: (index, bytes), ascending
        self._entries: deque[tuple[int, int]] = deque()

    def add(self, index: int, size_bytes: int) -> None:
        """Count an entry that was appended after all others."""
        self._entries.append((index, size_bytes))
        self.size_bytes += size_bytes

    def settle(self, index: int) -> None:
        """Count the entries up to this index no more."""
        while self._entries and self._entries[0][0] <= index:
            self.size_bytes -= self._entries.popleft()[1]

    def clear(self) -> None:
        """Forget all: the leadership is over."""
        self._entries.clear()
        self.size_bytes = 0
