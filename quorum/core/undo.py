"""What a failed multi takes back: a record per change, and the way back through them.

Each change of the tree within a multi leaves a record of each change; `roll_back` undoes them, the last one
first, until tree, ACL table and sessions are as they were. Until the multi is through, no ACL is released, so
that what comes back finds its ACL under the old number. Decides nothing; the records live as long as one
command.

Source: DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from quorum.core.quotas import Quota
from quorum.core.records import ACL_MASK, acl_field_of, owner_of
from quorum.core.sessions import Session
from quorum.core.tree import Directory, Node, Tree, record_of


class Replaced(NamedTuple):
    """A node's record was replaced."""

    parent: Directory
    name: str
    old: bytes


class Inserted(NamedTuple):
    """A child was added; `leaf` is the parent's record where the child made a directory of it."""

    holder: Directory
    parent_name: str
    leaf: bytes | None
    parent: Directory
    name: str
    path: str
    old_pzxid: int
    record: bytes


class Removed(NamedTuple):
    """A child was removed."""

    parent: Directory
    name: str
    path: str
    old_pzxid: int
    node: Node


class Counted(NamedTuple):
    """What is used of a quota changed; None: there was none."""

    path: str
    old: Quota | None


Change: TypeAlias = Replaced | Inserted | Removed | Counted


class Totals(NamedTuple):
    """What a tree counted before a multi began."""

    changes: int
    traced: int
    node_count: int
    data_bytes: int
    next_acl_number: int


def totals_of(tree: Tree) -> Totals:
    """Return what a tree counts now."""
    traced = 0 if tree.trace is None else len(tree.trace)
    return Totals(len(tree.changes), traced, tree.node_count, tree.data_bytes, tree.acls.next_number)


def release_removed(tree: Tree, changes: list[Change]) -> None:
    """Release the ACLs of what a multi removed: it is through, nothing of it comes back."""
    for change in changes:
        if isinstance(change, Removed):
            tree.acls.release(acl_field_of(record_of(change.node)) & ACL_MASK)


def roll_back(tree: Tree, sessions: Mapping[int, Session], changes: list[Change], before: Totals) -> None:
    """Undo the changes of a failed multi, the last one first.

    Args:
        tree: what was changed.
        sessions: the owners of ephemerals.
        changes: in the order in which they were made.
        before: the tree's totals from before the first of them.
    """
    for change in reversed(changes):
        match change:
            case Replaced(parent, name, old):
                node = parent.children[name]
                if isinstance(node, bytes):
                    parent.children[name] = old
                else:
                    node.record = old
            case Inserted(holder, parent_name, leaf, parent, name, path, old_pzxid, record):
                del parent.children[name]
                parent.creates -= 1
                parent.pzxid = old_pzxid
                if leaf is not None:
                    holder.children[parent_name] = leaf
                if owner_of(record):
                    del sessions[owner_of(record)].ephemerals[path]
                tree.expirable.pop(path, None)
                tree.acls.release(acl_field_of(record) & ACL_MASK)
            case Removed(parent, name, path, old_pzxid, node):
                parent.children[name] = node
                parent.pzxid = old_pzxid
                record = record_of(node)
                if owner_of(record):
                    sessions[owner_of(record)].ephemerals[path] = None
                if tree.acls.lifetime_of(acl_field_of(record) & ACL_MASK):
                    tree.expirable[path] = None
            case Counted(path, None):
                del tree.quotas[path]
            case Counted(path, Quota() as quota):
                tree.quotas[path] = quota
    del tree.changes[before.changes :]
    if tree.trace is not None:
        del tree.trace[before.traced :]
    tree.node_count = before.node_count
    tree.data_bytes = before.data_bytes
    tree.acls.next_number = before.next_acl_number
