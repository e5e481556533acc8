"""Snapshots of the state: a walk in small steps while entries go on being applied, and the loader.

The walk writes the state as it was when it began. What is small (counters, sessions, ACLs, origins, digests,
configuration) is copied then; the tree is walked. Before a node changes, the tree hands its old form to the
walk's overlay; the walk takes a node from there first, and at its end writes what it never met. The overlay
is bounded: when it is full the walk has failed and the shell begins another. Chunks are lists of plain
values, ready for msgpack; bytes, files and checksums are the shell's.

    ["header", format, …counters…]            once, first
    ["nodes", [path, record, creates, [segment, record, …]], …]   a directory and its leaves; record None:
    continued ["changed", [path, record, creates or None], …]               nodes that changed meanwhile, in
    any order ["end", node count]                       once, last

Source: docs/internals/consensus.md, "Snapshots"; docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator
from itertools import accumulate, chain, islice
from operator import add
from typing import Final, TypeAlias

from quorum.core.feature_levels import BASE_LEVEL
from quorum.core.machine import StateMachine
from quorum.core.tree import Directory, FrozenNode, Node, Tree, freeze

#: 2: an ACL comes with the lifetime of its znodes; before, all were UNLIMITED
FORMAT: Final = 2
#: the same with the feature level, the source and the floor of an import at the end of the header; written
#: only where one of the first two is not as in a new cluster, so that every build reads the snapshots of a
#: cluster that it may be a member of
EXTENDED_FORMAT: Final = 3
#: about what an overlay entry costs on top of its path and record
_ENTRY_BYTES: Final = 250
CHUNK_BYTES_MAX: Final = 1024 * 1024

Chunk: TypeAlias = list[object]


class SnapshotOverflowError(Exception):
    """Too much changed during the walk; nothing of it is usable. Begin another, in larger steps."""


class SnapshotIncompleteError(Exception):
    """The walk lost nodes, which is a defect of it; nothing of it is usable."""


class _Listing:
    """The names of a directory's children, copied in pieces while none of them comes or goes.

    A dict that changes its size must not be iterated further, so `settle` copies the rest right before.
    """

    def __init__(self, path: str, children: dict[str, Node]) -> None:
        #: the directory that is listed
        self.path: Final = path
        self._names: Iterator[str] = iter(children)
        #: names that were taken and not used, they come next
        self._back: list[str] = []
        #: how many were not taken yet
        self.left = len(children)
        self._settled = False

    def settle(self) -> None:
        """Copy the names that were not taken yet: a child is about to come or go."""
        if not self._settled:
            self._settled = True
            self._names = iter(list(self._names))

    def take(self, count: int) -> list[str]:
        """Return the next names, as many as there are up to `count`."""
        names = self._back[:count]
        del self._back[:count]
        names += islice(self._names, count - len(names))
        if len(names) != min(count, self.left):
            raise SnapshotIncompleteError(f"{self.left} names of {self.path!r} were left, {len(names)} came")
        self.left -= len(names)
        return names

    def put_back(self, names: list[str]) -> None:
        """Return names that were taken and not used."""
        self._back = names + self._back
        self.left += len(names)


class _Overlay:
    """Nodes as they were when the walk began; None: absent then, or written already."""

    def __init__(self, tree: Tree, bytes_max: int) -> None:
        #: {path of the parent, empty for the root: {last segment: node}}; the root itself is "" under ""
        self.old: dict[str, dict[str, FrozenNode | None]] = {}
        self.overflown = False
        #: the directory that is being walked, if it has children
        self.listing: _Listing | None = None
        self._tree = tree
        self._bytes = 0
        self._bytes_max = bytes_max

    @property
    def fill(self) -> float:
        """How full it is, from 0 to 1."""
        return min(1.0, self._bytes / self._bytes_max) if self._bytes_max else 1.0

    def note(self, path: str, old: FrozenNode | None) -> None:
        """Keep a node that is about to change, unless it is known; drop all when the bound is passed."""
        # Whenever a child comes or goes, its parent is noted first, each time.
        if self.listing is not None and self.listing.path == path:
            self.listing.settle()
        prefix, _, name = path.rpartition("/")
        known = self.old.get(prefix)
        if known is None:
            known = self.old[prefix] = {}
        elif name in known:
            return
        known[name] = old
        record = old[0] if isinstance(old, tuple) else old
        self._bytes += len(path) + _ENTRY_BYTES + (len(record) if record is not None else 0)
        if self._bytes > self._bytes_max:
            self.overflown = True
            self.old.clear()
            self.detach()

    def detach(self) -> None:
        """Let the tree change without telling."""
        if self._tree.overlay is self:
            self._tree.overlay = None


class SnapshotWalk:
    """One walk over a machine's state, begun between two entries.

    A step takes time for the nodes that it looks at. Only when a child is created or deleted in the very
    directory that is being walked, the names that are left there are copied all at once (20 ms for a
    million).

    Args:
        machine: the state; goes on being used while the walk lasts.
    """

    def __init__(self, machine: StateMachine) -> None:
        if machine.entry_is_open:
            raise ValueError("a snapshot cannot begin while an entry is half applied")
        if machine.tree.overlay is not None:
            raise ValueError("a snapshot cannot begin while another is under way")
        self.index: Final = machine.applied_index
        self.term: Final = machine.applied_term
        self._tree = machine.tree
        self._overlay = _Overlay(machine.tree, machine.snapshot_overlay_bytes_max)
        self._node_count = machine.tree.node_count
        self._looked_at = 0
        machine.tree.overlay = self._overlay
        #: nodes and bytes that the chunk under way still takes
        self._room = 0
        self._bytes_room = 0
        self._chunks = self._produce(_header(machine))

    @property
    def overflown(self) -> bool:
        """Whether the overlay passed its bound: the walk has failed."""
        return self._overlay.overflown

    @property
    def ahead(self) -> bool:
        """Whether a larger part of the tree was looked at than of the overlay is full.

        While that is so, the walk is likely to end before the overlay is full, however slowly it goes on.
        """
        return self._looked_at > self._overlay.fill * self._node_count

    def next_chunk(self, records_max: int, bytes_max: int = CHUNK_BYTES_MAX) -> Chunk | None:
        """Go one step further.

        Args:
            records_max: nodes to look at, at least 1.
            bytes_max: the chunk ends with the record that passes this many bytes.

        Returns:
            The next chunk, None after the last one.
        """
        if self.overflown:
            raise SnapshotOverflowError(
                f"more changed than snapshot_overlay_bytes_max during the snapshot at index {self.index}"
            )
        self._room = records_max
        self._bytes_room = bytes_max
        return next(self._chunks, None)

    def close(self) -> None:
        """Give the walk up; what it kept is freed."""
        self._chunks.close()
        self._overlay.detach()
        self._overlay.old.clear()

    def _produce(self, header: Chunk) -> Generator[Chunk, None, None]:
        yield header
        chunk: Chunk = ["nodes"]
        for group in self._walk():
            chunk.append(group)
            if self._room <= 0 or self._bytes_room <= 0:
                yield chunk
                chunk = ["nodes"]
        # every node of the start is written or in the overlay: later changes do not matter any more
        self._overlay.detach()
        if len(chunk) > 1:
            yield chunk
        chunk = ["changed"]
        old = self._overlay.old
        while old:
            prefix, nodes = old.popitem()
            while nodes:
                name, node = nodes.popitem()
                self._room -= 1
                if node is not None:
                    record, creates = node if isinstance(node, tuple) else (node, None)
                    path = f"{prefix}/{name}"
                    self._bytes_room -= len(path) + len(record)
                    chunk.append([path, record, creates])
                if self._room <= 0 or self._bytes_room <= 0:
                    yield chunk
                    chunk = ["changed"]
        if len(chunk) > 1:
            yield chunk
        yield ["end", self._node_count]

    def _walk(self) -> Iterator[Chunk]:
        """Go through all directories, depth first; yields groups no larger than what the chunk takes."""
        stack: list[tuple[str, Directory, Iterator[str]]] = [("", self._tree.top, iter(("",)))]
        while stack:
            prefix, directory, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                continue
            child = directory.children.get(name)
            if isinstance(child, Directory):
                path = f"{prefix}/{name}" if name else ""
                below = yield from self._visit(path, child)
                stack.append((path, child, iter(below)))

    def _visit(self, prefix: str, directory: Directory) -> Generator[Chunk, None, list[str]]:
        """Yield a directory and its leaves as groups; returns the segments of the directories below it.

        Args:
            prefix: the directory's path; empty for the root.
            directory: the node at that path now.
        """
        old = self._overlay.old
        path = prefix or "/"
        above, _, own_name = prefix.rpartition("/")
        known = old.get(above, {})
        own = known[own_name] if own_name in known else freeze(directory)
        # what was absent or a leaf when the walk began is never visited: see _take_changed
        assert isinstance(own, tuple)
        if own_name in known:
            known[own_name] = None
        leaves: list[object] = []
        group: Chunk = [path, *own, leaves]
        self._room -= 1
        self._bytes_room -= len(path) + len(own[0])
        self._looked_at += 1
        below: list[str] = []
        listing = self._overlay.listing = _Listing(path, directory.children)
        while listing.left:
            if self._room <= 0 or self._bytes_room <= 0:
                yield group
                leaves = []
                group = [path, None, 0, leaves]
            names = listing.take(self._room)
            if prefix in old:
                names = self._take_changed(old[prefix], directory, names, leaves, below)
            self._take_unchanged(directory, names, leaves, below, listing)
        self._overlay.listing = None
        yield group
        return below

    def _take_changed(
        self,
        old: dict[str, FrozenNode | None],
        directory: Directory,
        names: list[str],
        leaves: list[object],
        below: list[str],
    ) -> list[str]:
        """Take those children that changed since the walk began; returns the names of the others.

        Args:
            old: children that changed, as they were.
            directory: their parent.
            names: children of it when they were listed.
            leaves: gets name and old record of leaves.
            below: gets the names of directories.
        """
        changed = [name for name in names if name in old]
        if not changed:
            return names
        for name in changed:
            frozen, node = old[name], directory.children.get(name)
            # A child that is gone, or that has another form now, is written from the overlay at the end.
            if isinstance(frozen, bytes) and node is not None:
                old[name] = None
                leaves += (name, frozen)
                self._bytes_room -= len(name) + len(frozen)
                self._looked_at += 1
            elif frozen is not None and isinstance(node, Directory):
                below.append(name)
        self._room -= len(changed)
        return [name for name in names if name not in old]

    def _take_unchanged(
        self,
        directory: Directory,
        names: list[str],
        leaves: list[object],
        below: list[str],
        listing: _Listing,
    ) -> None:
        """Take children that are as they were, up to the one that fills the chunk; put the others back."""
        children = directory.children
        nodes = [children[name] for name in names]
        if Directory in map(type, nodes):
            pairs = list(zip(names, nodes, strict=True))
            below += [name for name, node in pairs if isinstance(node, Directory)]
            pairs = [pair for pair in pairs if isinstance(pair[1], bytes)]
            self._room -= len(nodes) - len(pairs)
            names, nodes = [name for name, _ in pairs], [node for _, node in pairs]
        # only leaves from here on
        records: list[bytes] = nodes  # type: ignore[assignment]  # their type as a whole tells them apart
        used = sum(map(len, names)) + sum(map(len, records))
        if used > self._bytes_room:
            sums = list(accumulate(map(add, map(len, names), map(len, records))))
            fit = bisect_left(sums, self._bytes_room) + 1 if self._bytes_room > 0 else 0
            listing.put_back(names[fit:])
            names, records = names[:fit], records[:fit]
            used = sums[fit - 1] if fit else 0
        leaves += chain.from_iterable(zip(names, records, strict=True))
        self._room -= len(names)
        self._bytes_room -= used
        self._looked_at += len(names)


def _header(machine: StateMachine) -> Chunk:
    """Copy what is not in the tree."""
    acls = [
        [
            number,
            [[perms, scheme, name] for perms, scheme, name in acl],
            machine.tree.acls.lifetime_of(number),
        ]
        for number, acl, _ in machine.tree.acls.stored()
    ]
    origins = [[node_id, incarnation, number] for node_id, (incarnation, number) in machine.origins.items()]
    sessions = [
        [session.session_id, session.timeout_ms, session.node_id, session.nonce, session.last_index]
        for session in machine.sessions.values()
    ]
    transaction = machine.transaction
    extension = [machine.feature_level, transaction.import_source, transaction.import_floor]
    if extension[:2] == [BASE_LEVEL, ""]:
        extension = []
    return [
        "header",
        EXTENDED_FORMAT if extension else FORMAT,
        machine.applied_index,
        machine.applied_term,
        machine.last_stamp_ms,
        machine.zxid,
        machine.session_counter,
        machine.tree.node_count,
        machine.tree.data_bytes,
        machine.tree.acls.next_number,
        machine.cluster_id,
        machine.session_key,
        machine.configuration,
        machine.state_digest,
        machine.apply_digest,
        acls,
        origins,
        sessions,
        *extension,
    ]
