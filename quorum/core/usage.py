"""What the subtrees with a quota use: counted with each change, and written into their stats nodes.

`Tree.quotas` follows from the tree alone: the limits nodes, and for each the nodes that count in it. So a
snapshot does not hold it, and a loaded tree has the same (`index_quotas`). A stats node is data like any
other, written in the transaction that changes the usage, without a version, a time or an event of its own,
as in ZooKeeper. Whatever a client writes there is replaced by what is used. Entries from before quotas were
kept (`QuotaRule.IGNORED`) leave the stats as they are; the next change sets them right.

Source: ZooKeeper 3.9 DataTree (updateQuotaStat, updateQuotaForPath), ZooKeeperServer.checkQuota.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from quorum.core.quotas import (
    BELOW_ROOT,
    LIMITS,
    ROOT,
    STATS,
    Quota,
    QuotaRule,
    counted_path,
    nearest,
    read_limits,
)
from quorum.core.records import ACL_MASK, HEADER_BYTES, STAT_BYTES, acl_field_of
from quorum.core.tree import Directory, Node, Tree, descend, freeze, record_of, stat_of
from quorum.core.undo import Change, Counted, Replaced

_INT: Final = Struct(">i")
_UINT: Final = Struct(">I")


def used_below(node: Node | None) -> tuple[int, int]:
    """Count a subtree: (nodes, bytes of their data); the node itself counts."""
    if node is None:
        return 0, 0
    nodes, data_bytes = 1, len(record_of(node)) - HEADER_BYTES
    pending = [node] if isinstance(node, Directory) else []
    while pending:
        children = pending.pop().children
        nodes += len(children)
        data_bytes -= HEADER_BYTES * len(children)
        for child in children.values():
            if isinstance(child, bytes):
                data_bytes += len(child)
            else:
                data_bytes += len(child.record)
                pending.append(child)
    return nodes, data_bytes


def limits_nodes(tree: Tree) -> dict[str, bytes]:
    """Return {path with a quota: record of its limits node} as the tree has them."""
    found: dict[str, bytes] = {}
    root = tree.get(ROOT)
    pending = [(ROOT, root)] if isinstance(root, Directory) else []
    while pending:
        path, directory = pending.pop()
        for name, child in directory.children.items():
            below = f"{path}/{name}"
            subject, kind = counted_path(below)
            if kind == LIMITS:
                found[subject] = record_of(child)
            if isinstance(child, Directory):
                pending.append((below, child))
    return found


def index_quotas(tree: Tree) -> None:
    """Find and count all quotas of a tree that was loaded."""
    quotas = tree.quotas
    for path, record in limits_nodes(tree).items():
        quotas[path] = Quota(*used_below(tree.get(path)), read_limits(record[HEADER_BYTES:]))
    whole = dict(quotas)
    for path, inner in whole.items():
        above = nearest(quotas, path.rpartition("/")[0])
        if above is not None:
            outer = quotas[above]
            quotas[above] = outer.plus(-inner.nodes, -inner.data_bytes)


class Usage:
    """The quotas of one tree, as the writes on it change them; the caller asks only where they matter."""

    def __init__(self, tree: Tree) -> None:
        self.tree: Final = tree
        #: zxid of the last transaction; hard state
        self.zxid = 0
        #: of the open entry
        self.quota_rule = QuotaRule.KEPT
        #: writes that a hard limit refused, as this node applied them; soft state
        self.quota_refusals = 0
        self._undo: list[Change] | None = None

    def _exceeds(self, path: str, nodes: int, data_bytes: int) -> bool:
        """Tell whether a hard limit refuses so many nodes and bytes more at a path."""
        if self.quota_rule is not QuotaRule.ENFORCED:
            return False
        quotas = self.tree.quotas
        found = nearest(quotas, path)
        if found is None or not quotas[found].refuses(nodes, data_bytes):
            return False
        self.quota_refusals += 1
        return True

    def _count(self, path: str, nodes: int, data_bytes: int, data: bytes | None) -> None:
        """Count a change that was made, and show it.

        Args:
            path: of the node that came, changed or went.
            nodes: by how many nodes there are more.
            data_bytes: by how many bytes of data there are more.
            data: what the node has now; None: it went.
        """
        if path.startswith(BELOW_ROOT):
            subject, kind = counted_path(path)
            if kind == STATS and data is not None and subject in self.tree.quotas:
                self._show(subject)
            elif kind == LIMITS:
                self._set_quota(subject, data)
            return
        found = nearest(self.tree.quotas, path)
        if found is not None and (nodes or data_bytes):
            self._add(found, nodes, data_bytes)

    def _set_quota(self, path: str, text: bytes | None) -> None:
        """Begin, change or end (None) a quota; what counts elsewhere by that moves there."""
        quotas = self.tree.quotas
        known = quotas.get(path)
        above = nearest(quotas, path.rpartition("/")[0])
        if text is None:
            if known is not None:
                self._put(path, None)
                if above is not None:
                    self._add(above, known.nodes, known.data_bytes)
            return
        limits = read_limits(text)
        if known is not None:
            self._put(path, known._replace(limits=limits))
            return
        nodes, data_bytes = used_below(self.tree.get(path))
        below = f"{path}/"
        for other, inner in quotas.items():
            if other.startswith(below):
                nodes -= inner.nodes
                data_bytes -= inner.data_bytes
        self._put(path, Quota(nodes, data_bytes, limits))
        self._show(path)
        if above is not None:
            self._add(above, -nodes, -data_bytes)

    def _add(self, path: str, nodes: int, data_bytes: int) -> None:
        """Add to what is used of a quota, and show it."""
        self._put(path, self.tree.quotas[path].plus(nodes, data_bytes))
        self._show(path)

    def _put(self, path: str, quota: Quota | None) -> None:
        quotas = self.tree.quotas
        if self._undo is not None:
            self._undo.append(Counted(path, quotas.get(path)))
        if quota is None:
            del quotas[path]
        else:
            quotas[path] = quota

    def _show(self, subject: str) -> None:
        """Write what is used of a quota into its stats node, if it has one."""
        if self.quota_rule is QuotaRule.IGNORED:
            return
        tree = self.tree
        path = f"{ROOT}{subject}/{STATS}"
        *above, name = path.split("/")
        parent = descend(tree.top, above)
        node = parent.children.get(name)
        if node is None:
            return
        old = record_of(node)
        data = tree.quotas[subject].text()
        number = acl_field_of(old) & ACL_MASK
        record = old[:52] + _INT.pack(len(data)) + old[56:STAT_BYTES] + _UINT.pack(number) + data
        if record == old:
            return
        if tree.overlay is not None:
            tree.overlay.note(path, freeze(node))
        if self._undo is not None:
            self._undo.append(Replaced(parent, name, old))
        if isinstance(node, bytes):
            parent.children[name] = node = record
        else:
            node.record = record
        tree.data_bytes += len(record) - len(old)
        tree.changes += (path.encode(), tree.acls.marks[number], stat_of(node), data)
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, old, record))
