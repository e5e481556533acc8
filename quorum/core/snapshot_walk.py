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

Source: raft ("Snapshots"), architecture (invariant I7: a snapshot equals the replay of its prefix).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias

from quorum.core.machine import StateMachine
from quorum.core.tree import Directory, FrozenNode, Node, Tree, freeze

FORMAT: Final = 1
#: about what an overlay entry costs beside its path and record
_ENTRY_BYTES: Final = 250
CHUNK_BYTES_MAX: Final = 1024 * 1024

Chunk: TypeAlias = list[object]


class SnapshotOverflowError(Exception):
    """Too much changed during the walk; nothing of it is usable. Begin another, in larger steps."""


class _Overlay:
    """Nodes by path as they were when the walk began; None: absent then, or written already."""

    def __init__(self, tree: Tree, bytes_max: int) -> None:
        self.old: dict[str, FrozenNode | None] = {}
        self.overflown = False
        self._tree = tree
        self._bytes = 0
        self._bytes_max = bytes_max

    def note(self, path: str, old: FrozenNode | None) -> None:
        """Keep a node that is about to change, unless it is known; drop all when the bound is passed."""
        if path in self.old:
            return
        self.old[path] = old
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

    A step takes time for the nodes that it looks at; only the names of a directory are listed all at once
    (tens of milliseconds for a million children).

    Args:
        machine: the state; goes on being used while the walk lasts.

    Raises:
        ValueError: an entry is half applied, or another walk is under way.
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
        machine.tree.overlay = self._overlay
        #: nodes and bytes that the chunk under way still takes
        self._room = 0
        self._bytes_room = 0
        self._chunks = self._produce(_header(machine))

    @property
    def overflown(self) -> bool:
        """Whether the overlay passed its bound: the walk has failed."""
        return self._overlay.overflown

    def next_chunk(self, records_max: int, bytes_max: int = CHUNK_BYTES_MAX) -> Chunk | None:
        """Go one step further.

        Args:
            records_max: nodes to look at, at least 1.
            bytes_max: the chunk ends with the record that passes this many bytes.

        Returns:
            The next chunk, None behind the last one.

        Raises:
            SnapshotOverflowError: the overlay passed its bound.
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
            path, node = old.popitem()
            self._room -= 1
            if node is not None:
                record, creates = node if isinstance(node, tuple) else (node, None)
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
        own = old[path] if path in old else freeze(directory)
        # what was absent or a leaf when the walk began is never visited: see _before
        assert isinstance(own, tuple)
        if path in old:
            old[path] = None
        leaves: list[object] = []
        group: Chunk = [path, *own, leaves]
        self._room -= 1
        self._bytes_room -= len(path) + len(own[0])
        below: list[str] = []
        for name in list(directory.children):
            if self._room <= 0 or self._bytes_room <= 0:
                yield group
                leaves = []
                group = [path, None, 0, leaves]
            self._room -= 1
            node = directory.children.get(name)
            if old:
                child_path = f"{prefix}/{name}"
                if node is not None and child_path in old:
                    node = self._before(child_path, node)
            if isinstance(node, bytes):
                leaves += (name, node)
                self._bytes_room -= len(name) + len(node)
            elif node is not None:
                below.append(name)
        yield group
        return below

    def _before(self, path: str, node: Node) -> Node | None:
        """Return what to make of a changed child: an old record, a directory to visit, or nothing now."""
        old = self._overlay.old
        frozen = old[path]
        if isinstance(frozen, bytes):
            old[path] = None
            return frozen
        return node if frozen is not None and isinstance(node, Directory) else None


def _header(machine: StateMachine) -> Chunk:
    """Copy what is not in the tree."""
    acls = [
        [number, [[perms, scheme, name] for perms, scheme, name in acl]]
        for number, acl, _ in machine.tree.acls.stored()
    ]
    origins = [[node_id, incarnation, number] for node_id, (incarnation, number) in machine.origins.items()]
    sessions = [
        [session.session_id, session.timeout_ms, session.node_id, session.nonce, session.last_index]
        for session in machine.sessions.values()
    ]
    return [
        "header",
        FORMAT,
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
    ]
