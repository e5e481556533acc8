"""The znode tree: nested dicts by path segment, packed records as leaves.

A node is either a leaf, one packed `bytes` record (records.py), or a Directory: a node that has or had
children. So the form of a node follows from its history alone, and a restored tree has the same form. The
tree finds nodes and counts them; transaction.py decides which caller may change what. Hard state, except
`changes` (what the open entry changed, for its state digest) and `overlay` (what a running snapshot must
still see as it was) and `trace` (what the change log is made of).

Source: DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from quorum.core.acl import AclTable
from quorum.core.quotas import Quota
from quorum.core.records import ACL_MASK, HEADER, HEADER_BYTES, STAT_BYTES, acl_field_of, patch_children

#: a node as a snapshot keeps it: a leaf's record, or (record with patched Stat, child creations) of a
#: directory
FrozenNode: TypeAlias = "bytes | tuple[bytes, int]"
#: (zxid, path, record before, record after), None where the node is absent; or a mark, (zxid, session id,
#: node id): the transactions after this zxid are of this session, whose client sent them to this node
Traced: TypeAlias = "tuple[int, str, bytes | None, bytes | None] | tuple[int, int, int]"


class Directory:
    """A node that has or had children."""

    __slots__ = ("children", "creates", "pzxid", "record")

    def __init__(self, record: bytes, creates: int, pzxid: int) -> None:
        #: packed record; its cversion, numChildren and pzxid are stale
        self.record = record
        #: {segment: node}
        self.children: dict[str, Node] = {}
        #: children ever created, unbounded; the next sequential child gets this number
        self.creates = creates
        #: zxid of the last creation or deletion of a child
        self.pzxid = pzxid

    def stat(self) -> bytes:
        """Return the Stat, 68 bytes."""
        count = len(self.children)
        return patch_children(self.record, 2 * self.creates - count, count, self.pzxid)


Node: TypeAlias = "bytes | Directory"


def stat_of(node: Node) -> bytes:
    """Return a node's Stat, 68 bytes in jute layout."""
    return node[:STAT_BYTES] if isinstance(node, bytes) else node.stat()


def record_of(node: Node) -> bytes:
    """Return a node's packed record; of a directory with a Stat whose child counters are stale."""
    return node if isinstance(node, bytes) else node.record


def freeze(node: Node) -> FrozenNode:
    """Return what a snapshot keeps of a node, detached from what happens to it later."""
    if isinstance(node, bytes):
        return node
    return node.stat() + node.record[STAT_BYTES:], node.creates


def descend(directory: Directory, segments: Sequence[str]) -> Directory:
    """Follow segments from child to child."""
    for segment in segments:
        directory = directory.children[segment]  # type: ignore[assignment]  # a leaf raises on the next step
    return directory


class Overlay(Protocol):
    """What a running snapshot hears before a node changes."""

    def note(self, path: str, old: FrozenNode | None) -> None:
        """Keep the node as it was (None: it was absent), unless the path is known already."""


class Tree:
    """All znodes."""

    __slots__ = (
        *("acls", "changes", "data_bytes", "expirable", "node_count", "overlay", "quotas", "root", "top"),
        "trace",
    )

    def __init__(self) -> None:
        self.acls: Final = AclTable()
        self.root: Final = Directory(HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 0, 0)
        #: holds the root under the empty segment, so that "/a/b".split("/") can be followed as it is
        self.top: Final = Directory(b"", 0, 0)
        self.top.children[""] = self.root
        #: the root counts
        self.node_count = 1
        #: length of all paths and data; the root's path counts as one
        self.data_bytes = 1
        #: pieces of the open entry's state digest: path, mark (AclTable.marks; b"\0\0": absent), Stat, data
        self.changes: list[bytes] = []
        self.overlay: Overlay | None = None
        #: what happened since its owner put an empty list here; None: nobody wants to know
        self.trace: list[Traced] | None = None
        #: {path: None} of all containers and TTL nodes; follows from the ACL numbers in their records
        self.expirable: dict[str, None] = {}
        #: {path with a quota: what is used of it}; follows from the nodes (usage.py)
        self.quotas: dict[str, Quota] = {}

    def get(self, path: str) -> Node | None:
        """Return the node at a path, or None. The empty path is the root, as in ZooKeeper."""
        if path == "/":
            return self.root
        node: Node | None = self.top
        try:
            for segment in path.split("/"):
                node = node.children[segment]  # type: ignore[union-attr]  # a leaf raises
            return node
        except (KeyError, AttributeError):
            return None

    def adopt(self, parent: Directory, name: str, path: str, node: Node) -> None:
        """Put a node into the tree as it is: no zxid, no event, no counter of the parent changes.

        The ACL number in its record must be in the table; it is counted.
        """
        record = record_of(node)
        parent.children[name] = node
        self.node_count += 1
        self.data_bytes += len(path) + len(record) - HEADER_BYTES
        if self.acls.lifetimes and acl_field_of(record) & ACL_MASK in self.acls.lifetimes:
            self.expirable[path] = None
