"""What a transaction of ZooKeeper's log does to the tree; one that was done already does nothing.

Source: ZooKeeper 3.9 DataTree (processTxn, createNode, deleteNode), zookeeper.jute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quorum.core.acl import Acl
from quorum.core.codes import TTL_MAX_MS
from quorum.importing.logs import LoggedTransaction
from quorum.importing.snapshots import FileNode, FileTree, acl_of
from quorum.wire.errors import WireError
from quorum.wire.jute import JuteReader

_CLOSE_SESSION: Final = -11
_ERROR: Final = -1
_MULTI: Final = 14
_CONTAINER_OWNER: Final = -(1 << 63)
#: added to a TTL it says that this is one
_TTL_OWNER: Final = -(1 << 56)


class UnreadableError(ValueError):
    """A transaction of no known form."""


def apply(tree: FileTree, transaction: LoggedTransaction) -> None:
    """Apply a transaction.

    Raises:
        UnreadableError: it is of no known form.
    """
    reader = JuteReader(transaction.body, 0, len(transaction.body), "transaction")
    try:
        _apply(tree, transaction, reader)
    except WireError as error:
        raise UnreadableError(str(error)) from error


def _apply(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    kind = transaction.type
    if kind == _CLOSE_SESSION:
        for path in sorted(tree.ephemerals.get(transaction.session_id, ()), reverse=True):
            _delete(tree, path, transaction.zxid)
    elif kind == _MULTI:
        parts = [
            (reader.int32("type"), reader.buffer("data") or b"") for _ in range(reader.count("parts", 8))
        ]
        # One that failed holds errors alone, and did nothing.
        if all(part != _ERROR for part, _ in parts):
            for part, body in parts:
                apply(tree, transaction._replace(type=part, body=body))
    elif kind in _APPLIED:
        _APPLIED[kind](tree, transaction, reader)
    elif kind not in _WITHOUT_EFFECT:
        raise UnreadableError(f"a transaction of type {kind}")


def _create(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    path, data, acl = reader.string("path"), reader.buffer("data"), acl_of(reader)
    owner = transaction.session_id if reader.boolean("ephemeral") else 0
    # Before 3.4 there was no count.
    creates = reader.int32("parentCVersion") if reader.remaining >= 4 else -1
    _insert(tree, transaction, path, data, acl, owner, creates)


def _create_container(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    path, data, acl = reader.string("path"), reader.buffer("data"), acl_of(reader)
    _insert(tree, transaction, path, data, acl, _CONTAINER_OWNER, reader.int32("parentCVersion"))


def _create_ttl(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    path, data, acl = reader.string("path"), reader.buffer("data"), acl_of(reader)
    creates, ttl_ms = reader.int32("parentCVersion"), reader.int64("ttl")
    if not 0 < ttl_ms <= TTL_MAX_MS:
        raise UnreadableError(f"{path} has a TTL of {ttl_ms} ms")
    _insert(tree, transaction, path, data, acl, _TTL_OWNER + ttl_ms, creates)


def _insert(
    tree: FileTree,
    transaction: LoggedTransaction,
    path: str,
    data: bytes | None,
    acl: Acl,
    owner: int,
    creates: int,
) -> None:
    parent_path = path.rpartition("/")[0]
    parent = tree.nodes.get(parent_path)
    if parent is None or not path.startswith("/"):
        return
    if creates == -1:
        creates = parent.creates + 1
    if creates > parent.creates:
        parent.creates, parent.pzxid = creates, transaction.zxid
    if path in tree.nodes:
        return
    zxid, time_ms = transaction.zxid, transaction.time_ms
    tree.nodes[path] = FileNode(data, acl, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, zxid)
    tree.children[parent_path] = tree.children.get(parent_path, 0) + 1
    if owner:
        tree.ephemerals.setdefault(owner, {})[path] = None


def _delete_node(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    _delete(tree, reader.string("path"), transaction.zxid)


def _delete(tree: FileTree, path: str, zxid: int) -> None:
    node = tree.nodes.pop(path, None)
    parent_path = path.rpartition("/")[0]
    parent = tree.nodes.get(parent_path)
    if node is None or parent is None:
        return
    parent.pzxid = max(parent.pzxid, zxid)
    tree.children[parent_path] = tree.children.get(parent_path, 1) - 1
    if node.owner:
        tree.ephemerals.get(node.owner, {}).pop(path, None)


def _set_data(tree: FileTree, transaction: LoggedTransaction, reader: JuteReader) -> None:
    path, data, version = reader.string("path"), reader.buffer("data"), reader.int32("version")
    node = tree.nodes.get("" if path == "/" else path)
    if node is not None:
        node.data, node.version = data, version
        node.mzxid, node.mtime_ms = transaction.zxid, transaction.time_ms


def _set_acl(tree: FileTree, _transaction: LoggedTransaction, reader: JuteReader) -> None:
    path, acl, version = reader.string("path"), acl_of(reader), reader.int32("version")
    node = tree.nodes.get("" if path == "/" else path)
    if node is not None:
        node.acl, node.aversion = acl, version


#: {type: what it does}
_APPLIED: Final[Mapping[int, Callable[[FileTree, LoggedTransaction, JuteReader], None]]] = {
    1: _create,
    15: _create,
    19: _create_container,
    21: _create_ttl,
    2: _delete_node,
    20: _delete_node,
    5: _set_data,
    16: _set_data,
    7: _set_acl,
}
#: a session's begin, a check, an error
_WITHOUT_EFFECT: Final = (-10, 13, _ERROR)
