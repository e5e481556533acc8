"""The nodes that are there from the start, as ZooKeeper has them at zxid 0.

Only the first entry of a log plants them. Pure; what the node of the members says comes in as an argument.
Source: ZooKeeper 3.9 DataTree (the root's cversion is -1, and so are both versions of the config).
"""

from __future__ import annotations

from typing import Final

from quorum.core.records import HEADER, STAT_BYTES
from quorum.core.tree import Directory, Tree, descend

_READ_BY_ANYONE: Final = ((1, "world", "anyone"),)


def plant(tree: Tree, config_path: str, description: bytes) -> None:
    """Create `/zookeeper`, its quota, and the node that describes the members.

    Args:
        tree: has the root alone.
        config_path: of that node, directly below `/zookeeper`.
        description: its data.
    """
    _plant(tree, "/zookeeper", b"", 0)
    _plant(tree, "/zookeeper/quota", b"", 0)
    number = tree.acls.acquire(_READ_BY_ANYONE)
    _plant(tree, config_path, description, number, -1)


def _plant(tree: Tree, path: str, data: bytes, acl_number: int, version: int = 0) -> None:
    """Create one of them: zxid and times 0, not counted by its parent."""
    parent_path, _, name = path.rpartition("/")
    parent = tree.get(parent_path)
    if isinstance(parent, bytes):
        *above, parent_name = parent_path.split("/")
        directory = Directory(parent, 0, 0)
        descend(tree.top, above).children[parent_name] = directory
        parent = directory
    assert parent is not None
    record = HEADER.pack(0, 0, 0, 0, version, 0, version, 0, len(data), 0, 0, acl_number) + data
    tree.adopt(parent, name, path, record)
    tree.changes += (path.encode(), tree.acls.marks[acl_number], record[:STAT_BYTES], data)
    if tree.trace is not None:
        tree.trace.append((0, path, None, record))
