"""Which containers and TTL nodes are to go: judged by the leader before it proposes, and again at apply.

A container goes once it has had children and has none; a TTL node goes once its data is older than its TTL
and it has no children. The rule is pure; what is due is looked for in rounds, a bounded piece at a time, so
that a million such nodes stop nobody. The rounds are soft state of the leader.

Source: ZooKeeper 3.9 ContainerManager.
"""

from __future__ import annotations

from quorum.core.acl import CONTAINER
from quorum.core.codes import BAD_ARGUMENTS, BAD_VERSION, NO_NODE
from quorum.core.records import ACL_MASK, acl_field_of, czxid_of, mtime_of
from quorum.core.tree import Directory, Node, Tree, record_of

#: nodes that one look judges at most, a few milliseconds of the loop; the others come with the next
NODES_PER_LOOK_MAX = 1000


def is_due(tree: Tree, node: Node, stamp_ms: int) -> bool:
    """Tell whether a node is to go.

    Args:
        tree: that holds it.
        node: any node.
        stamp_ms: the time by the stamps of the log, in milliseconds.
    """
    if isinstance(node, Directory) and node.children:
        return False
    record = record_of(node)
    lifetime = tree.acls.lifetime_of(acl_field_of(record) & ACL_MASK)
    if lifetime == CONTAINER:
        # only what has or had children is a directory
        return isinstance(node, Directory)
    return lifetime > 0 and mtime_of(record) + lifetime <= stamp_ms


def find_due(tree: Tree, arguments: list[object], stamp_ms: int) -> str | int:
    """Judge a proposal to delete a node once more.

    Args:
        tree: what it is applied to.
        arguments: [path, czxid] as proposed.
        stamp_ms: of the entry that holds the proposal.

    Returns:
        The path, or why the proposal is void: NO_NODE (the node is gone, or another one), BAD_VERSION (it is
        not due, or not any more) or BAD_ARGUMENTS.
    """
    match arguments:
        case [str(path), int(czxid)]:
            node = tree.get(path)
        case _:
            return BAD_ARGUMENTS
    if node is None or czxid_of(record_of(node)) != czxid:
        return NO_NODE
    return path if is_due(tree, node, stamp_ms) else BAD_VERSION


class Rounds:
    """Goes through all containers and TTL nodes, again and again, at an interval."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        #: when the last round began
        self._began_ms = float("-inf")
        #: paths that this round has not looked at, the next one last
        self._left: list[str] = []

    def restart(self, now_ms: float) -> None:
        """Begin anew: the state is another, or somebody else proposed until now."""
        self._left = []
        self._began_ms = now_ms

    def look(
        self, tree: Tree, now_ms: float, stamp_ms: int, due_max: int, path_bytes_max: int
    ) -> list[tuple[str, int]]:
        """Judge the next nodes of this round; begin the next one when it is time.

        Args:
            tree: what to look at.
            now_ms: a clock that never goes back.
            stamp_ms: the time by the stamps of the log.
            due_max: how many nodes to name at most.
            path_bytes_max: no more are named once their paths are as long; the last one may exceed it.

        Returns:
            (path, czxid) of nodes that are to go.
        """
        if not self._left:
            if now_ms - self._began_ms < self._interval_ms:
                return []
            self._began_ms = now_ms
            self._left = list(tree.expirable)
        due: list[tuple[str, int]] = []
        path_bytes = 0
        for _ in range(min(len(self._left), NODES_PER_LOOK_MAX)):
            path = self._left.pop()
            node = tree.get(path)
            if node is not None and is_due(tree, node, stamp_ms):
                due.append((path, czxid_of(record_of(node))))
                path_bytes += len(path.encode())
                if len(due) >= due_max or path_bytes >= path_bytes_max:
                    break
        return due
