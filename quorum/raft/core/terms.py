"""Terms of log indexes, as runs.

Decides which term an index has, also for entries that are no longer in memory. Does not hold entries. There
is one run per leader that appended something, so the whole log since the snapshot fits in a few tuples.
Derived from hard state.
"""

from bisect import bisect_right
from collections.abc import Iterable

from quorum.raft.core.errors import InvariantError


class TermRuns:
    """Ascending runs of equal terms over a contiguous range that its owner bounds."""

    __slots__ = ("starts", "terms")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """Take over ``(first index, term)`` pairs, ascending in both."""
        self.starts: list[int] = []  #: strictly ascending first indexes
        self.terms: list[int] = []  #: strictly ascending terms, same length
        for start, term in runs:
            self.extend(start, term)

    @property
    def first_known(self) -> int | None:
        """Return the first index whose term is known, or None."""
        return self.starts[0] if self.starts else None

    def extend(self, index: int, term: int) -> None:
        """Note that the log goes on at ``index`` with an entry of ``term``."""
        if self.terms and self.terms[-1] == term:
            return
        if self.terms and (term < self.terms[-1] or index <= self.starts[-1]):
            raise InvariantError(
                f"term {term} at index {index} follows term {self.terms[-1]} at index {self.starts[-1]}: "
                "terms and indexes of a log only rise"
            )
        self.starts.append(index)
        self.terms.append(term)

    def prepend(self, index: int, term: int) -> None:
        """Note the term of the entry right before everything that is known."""
        if self.terms and self.terms[0] == term:
            self.starts[0] = index
            return
        if self.terms and (term > self.terms[0] or index >= self.starts[0]):
            raise InvariantError(
                f"term {term} at index {index} cannot come before term {self.terms[0]} at {self.starts[0]}"
            )
        self.starts.insert(0, index)
        self.terms.insert(0, term)

    def term_at(self, index: int) -> int | None:
        """Return the term at ``index``, which must not be after the log's end; None before the first run."""
        position = bisect_right(self.starts, index) - 1
        return self.terms[position] if position >= 0 else None

    def truncate(self, index: int) -> None:
        """Forget everything from ``index`` on."""
        while self.starts and self.starts[-1] >= index:
            self.starts.pop()
            self.terms.pop()

    def compact(self, index: int) -> None:
        """Forget everything before ``index``, which stays known if it was."""
        position = bisect_right(self.starts, index) - 1
        if position >= 0:
            del self.starts[:position], self.terms[:position]
            self.starts[0] = index

    def last_at_most(self, index: int, term: int) -> int:
        """Return the largest index up to ``index`` whose term is at most ``term``.

        Returns:
            That index; the one before the first run if no run fits.
        """
        position = bisect_right(self.starts, index) - 1
        while position >= 0 and self.terms[position] > term:
            index = self.starts[position] - 1
            position -= 1
        return index
