"""Configurations of the log: which one counts at which index.

Decides that a configuration counts from its append, falls with its truncation, and when the entry that
carries it is known to be committed. Does not know how votes and matches are counted. Derived from hard state
(log and snapshot).

A new configuration is appended only when the one before it is committed, so at most the latest one may not
be.

Source: dissertation §4.1.
"""

from collections.abc import Iterable

from quorum.raft.core.configuration import Configuration, parse_configuration
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, EntryKind
from quorum.raft.core.errors import ConfigurationError, InvariantError, MessageError
from quorum.raft.core.messages import SnapshotMark


class ConfigurationHistory:
    """(index, configuration) of the snapshot, if any, and of each configuration entry after it,
    ascending."""

    def __init__(self, mark: SnapshotMark | None, entries: Iterable[Entry]) -> None:
        """Start with the snapshot's configuration and the configuration entries after it."""
        self._items: list[tuple[int, Configuration]] = []
        if mark is not None and mark.configuration is not None:
            self._items.append((mark.snapshot_index, mark.configuration))
        self._look()
        base = mark.snapshot_index if mark is not None else 0
        for entry in entries:
            if entry.index > base:
                try:
                    self.append(entry.index, parse_configuration(entry.payload))
                except ConfigurationError as error:
                    raise InvariantError(f"entry {entry.index} of the own journal: {error}") from error

    def _look(self) -> None:
        """Note what is asked with every commit."""
        #: None before the founding: the configuration that counts, committed or not
        self.latest = self._items[-1][1] if self._items else None
        #: index of the entry or snapshot with the latest configuration, 0 if there is none
        self.latest_index = self._items[-1][0] if self._items else 0
        #: index from which on a configuration is known
        self.first_index = self._items[0][0] if self._items else float("inf")

    def before(self, commit_index: int) -> Configuration | None:
        """Return what counted before the latest configuration if that is not known to be committed; None
        before the one of a forced start, which takes the place of a cluster."""
        if len(self._items) < 2 or self.latest_index <= commit_index:
            return None
        before, latest = self._items[-2][1], self._items[-1][1]
        return before if before.cluster_id == latest.cluster_id else None

    def at(self, index: int) -> Configuration | None:
        """Return the configuration as of ``index`` (a snapshot stores the one at its own index), None if
        unknown."""
        for start, configuration in reversed(self._items):
            if start <= index:
                return configuration
        return None

    def append(self, index: int, configuration: Configuration) -> None:
        """Add the configuration of a new entry."""
        if index <= self.latest_index:
            raise InvariantError(f"a configuration at {index} cannot follow one at {self.latest_index}")
        self._items.append((index, configuration))
        self._look()

    def truncate(self, index: int) -> None:
        """Revert to the configuration before ``index``."""
        while self._items and self._items[-1][0] >= index:
            self._items.pop()
        self._look()

    def install(self, index: int, configuration: Configuration | None, keep_beyond: bool) -> None:
        """Begin again with a snapshot's configuration, if it has one; later ones stay only if the log beyond
        it stays."""
        beyond = [item for item in self._items if item[0] > index] if keep_beyond else []
        first = [] if configuration is None else [(index, configuration)]
        self._items = [*first, *beyond]
        self._look()

    def compact(self, first_index: int) -> None:
        """Forget configurations that no remaining index has."""
        while len(self._items) > 1 and self._items[1][0] < first_index:
            del self._items[0]
        self._look()


def read_configurations(entries: Iterable[Entry], founded: bool) -> list[tuple[int, Configuration]]:
    """Return (index, configuration) of the configuration entries among these, which a peer sent.

    Args:
        entries: contiguous.
        founded: whether a configuration counts at the index before them.
    """
    found: list[tuple[int, Configuration]] = []
    for entry in entries:
        if founded == (entry.kind is EntryKind.FOUND):
            problem = "the first entry founds the cluster, and no other one does"
            raise MessageError(f"entry {entry.index} is {entry.kind.name}; {problem}")
        founded = True
        if entry.kind in CONFIGURATION_KINDS:
            try:
                found.append((entry.index, parse_configuration(entry.payload)))
            except ConfigurationError as error:
                raise MessageError(f"entry {entry.index}: {error}") from error
    return found
