"""What a write does to the tree: the checks in ZooKeeper's order, then the change with its events.

A method per operation takes the command as it came out of the log and returns the value, or an error code (an
int below zero) after which nothing has changed. Nothing a command holds can raise: shapes and types are
checked here. Within a multi each change leaves an undo record, so a failed one leaves no trace. The state
(tree, sessions) is hard; the rest of the attributes is the context of one command, set by the machine.

Source: ZooKeeper 3.9 PrepRequestProcessor.pRequest2Txn and DataTree.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from quorum.core.acl import OPEN_ACL, Acl, permits, resolve_acl
from quorum.core.codes import (
    ANY_VERSION,
    BAD_ARGUMENTS,
    BAD_VERSION,
    CREATE_FLAGS_MAX,
    EVENT_CHILDREN_CHANGED,
    EVENT_CREATED,
    EVENT_DATA_CHANGED,
    EVENT_DELETED,
    FLAG_EPHEMERAL,
    FLAG_SEQUENTIAL,
    INT32_MAX,
    KNOWN_FLAGS_MAX,
    MARSHALLING_ERROR,
    NO_AUTH,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    OK,
    OP_CHECK,
    OP_CREATE,
    OP_CREATE2,
    OP_DELETE,
    OP_ERROR,
    OP_SET_DATA,
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    RUNTIME_INCONSISTENCY,
)
from quorum.core.paths import SPECIAL_PATHS, is_valid_path, is_valid_segment, parent_of
from quorum.core.records import (
    ACL_MASK,
    CHANGED,
    HEADER,
    HEADER_BYTES,
    KEPT,
    NULL_DATA,
    STAT_BYTES,
    acl_field_of,
    next_version,
    owner_of,
    pzxid_of,
    version_of,
)
from quorum.core.results import Event, MultiItem, WriteValue
from quorum.core.sessions import Session
from quorum.core.tree import Directory, Node, Tree, descend, freeze, record_of

Command: TypeAlias = list[object]

#: in the digest of results, before (position of the failing operation, its error, zxid) of a failed multi
FAILED_MULTI: Final = -1000
_ABSENT_MARK: Final = b"\0\0"
_UNDELETABLE: Final = SPECIAL_PATHS | {""}


class _Replaced(NamedTuple):
    """A node's record was replaced."""

    parent: Directory
    name: str
    old: bytes


class _Inserted(NamedTuple):
    """A child was added; `leaf` is the parent's record where the child made a directory of it."""

    holder: Directory
    parent_name: str
    leaf: bytes | None
    parent: Directory
    name: str
    path: str
    old_pzxid: int
    record: bytes


class _Removed(NamedTuple):
    """A child was removed."""

    parent: Directory
    name: str
    path: str
    old_pzxid: int
    node: Node


class Transaction:
    """The writes on one tree, and the context in which they run."""

    def __init__(self, tree: Tree) -> None:
        self.tree: Final = tree
        #: {session id: session}; hard state
        self.sessions: Final[dict[int, Session]] = {}
        #: zxid of the last transaction; hard state
        self.zxid = 0
        #: stamp of the open entry, in milliseconds
        self.stamp_ms = 0
        #: the session whose commands are applied
        self.session: Session | None = None
        #: [[scheme, id], …] of the connection whose commands are applied, or None
        self.identities: object = None
        #: of the transaction under way
        self.events: list[Event] = []
        #: err and zxid of every command of the open entry, for its apply digest; errors are negative
        self.outcomes: list[int] = []
        self._undo: list[_Replaced | _Inserted | _Removed] | None = None
        self._operations: Final = {
            OP_CREATE: (OP_CREATE, self.create),
            OP_CREATE2: (OP_CREATE2, self.create2),
            OP_DELETE: (OP_DELETE, self.delete),
            OP_SET_DATA: (OP_SET_DATA, self.set_data),
            OP_CHECK: (OP_CHECK, self.check),
        }

    def describe_members(self, path: str, data: bytes) -> None:
        """Replace the data of the node that describes the members; its version stays -1.

        Source: the SetDataTxn of a reconfig in PrepRequestProcessor of ZooKeeper 3.9.
        """
        tree = self.tree
        *above, name = path.split("/")
        parent = descend(tree.top, above)
        node = parent.children[name]
        old = record_of(node)
        if tree.overlay is not None:
            tree.overlay.note(path, freeze(node))
        czxid, ctime, _, middle, tail, field = KEPT.unpack_from(old)
        number = field & ACL_MASK
        header = CHANGED.pack(czxid, self.zxid, ctime, self.stamp_ms, -1, middle, len(data), tail, number)
        if isinstance(node, bytes):
            parent.children[name] = header + data
        else:
            node.record = header + data
        tree.data_bytes += len(data) - len(old) + HEADER_BYTES
        stat = header[:STAT_BYTES] if isinstance(node, bytes) else node.stat()
        tree.changes += (path.encode(), tree.acls.marks[number], stat, data)
        self.events.append((EVENT_DATA_CHANGED, path))

    def set_data(self, command: Command) -> bytes | int:
        """Apply [5, path, data or None, version]; returns the new Stat."""
        if len(command) != 4:
            return BAD_ARGUMENTS
        _, path, data, expected = command
        if type(path) is not str or not path or type(expected) is not int:
            return BAD_ARGUMENTS
        tree = self.tree
        names = path.split("/")
        name = names.pop()
        try:
            parent = descend(tree.top, names)
            node = parent.children[name]
        except (KeyError, AttributeError):
            if path != "/":
                return NO_NODE if is_valid_path(path) else BAD_ARGUMENTS
            parent, name, node = tree.top, "", tree.root
        old = node if isinstance(node, bytes) else record_of(node)
        czxid, ctime, version, middle, tail, field = KEPT.unpack_from(old)
        number = field & ACL_MASK
        field = number
        if type(data) is not bytes:
            if data is not None:
                return BAD_ARGUMENTS
            field |= NULL_DATA
            data = b""
        if number and not permits(tree.acls[number], PERM_WRITE, self.identities):
            return NO_AUTH
        if expected not in (version, ANY_VERSION):
            return BAD_VERSION
        overlay = tree.overlay
        if overlay is not None:
            overlay.note(path, freeze(node))
        if self._undo is not None:
            self._undo.append(_Replaced(parent, name, old))
        version = version + 1 if 0 <= version < INT32_MAX else next_version(version)
        header = CHANGED.pack(czxid, self.zxid, ctime, self.stamp_ms, version, middle, len(data), tail, field)
        if isinstance(node, bytes):
            parent.children[name] = header + data
            stat = header[:STAT_BYTES]
        else:
            node.record = header + data
            stat = node.stat()
        tree.data_bytes += len(data) - len(old) + HEADER_BYTES
        tree.changes += (path.encode(), tree.acls.marks[field], stat, data)
        self.events.append((EVENT_DATA_CHANGED, path))
        return stat

    def create(self, command: Command) -> str | int:
        """Apply [1, path, data or None, acl, flags]; returns the path of the new node."""
        created = self._create(command)
        return created if isinstance(created, int) else created[0]

    def create2(self, command: Command) -> tuple[str, bytes] | int:
        """Apply [15, path, data or None, acl, flags]; returns (path, Stat) of the new node."""
        created = self._create(command)
        return created if isinstance(created, int) else (created[0], created[1][:STAT_BYTES])

    def _create(self, command: Command) -> tuple[str, bytes] | int:
        """Check a create in ZooKeeper's order; returns (path, record) of the new node."""
        if len(command) != 5:
            return BAD_ARGUMENTS
        _, path, data, requested, flags = command
        if type(path) is not str or type(flags) is not int or (data is not None and type(data) is not bytes):
            return BAD_ARGUMENTS
        if not 0 <= flags <= CREATE_FLAGS_MAX or "\0" in path or "/" not in path:
            return BAD_ARGUMENTS
        acl = OPEN_ACL if requested is None else resolve_acl(requested, self.identities)
        if isinstance(acl, int):
            return acl
        names = path.split("/")
        name = names.pop()
        parent_name = names.pop()
        try:
            holder = descend(self.tree.top, names)
            parent = holder.children[parent_name]
        except (KeyError, AttributeError):
            # the parent of "//a" is "/", the root; the path is invalid for another reason
            return BAD_ARGUMENTS if parent_of(path) == "/" else NO_NODE
        field = acl_field_of(parent if isinstance(parent, bytes) else record_of(parent))
        if field & ACL_MASK and not permits(self.tree.acls[field & ACL_MASK], PERM_CREATE, self.identities):
            return NO_AUTH
        if flags & FLAG_SEQUENTIAL:
            creates = 0 if isinstance(parent, bytes) else parent.creates
            suffix = f"{creates:010d}"
            name += suffix
            path += suffix
        if not is_valid_segment(name):
            return NODE_EXISTS if path == "/" else BAD_ARGUMENTS
        if isinstance(parent, bytes):
            if owner_of(parent):
                return NO_CHILDREN_FOR_EPHEMERALS
        elif name in parent.children:
            return NODE_EXISTS
        return self._insert(holder, parent_name, name, path, data, acl, flags)

    def _insert(
        self,
        holder: Directory,
        parent_name: str,
        name: str,
        path: str,
        data: bytes | None,
        acl: Acl,
        flags: int,
    ) -> tuple[str, bytes]:
        """Add a child below `holder`'s child `parent_name`; returns (path, record)."""
        tree = self.tree
        zxid = self.zxid
        session = self.session if flags & FLAG_EPHEMERAL else None
        field = 0 if acl is OPEN_ACL else tree.acls.acquire(acl)
        if data is None:
            field |= NULL_DATA
            data = b""
        owner = 0 if session is None else session.session_id
        stamp_ms = self.stamp_ms
        header = HEADER.pack(zxid, zxid, stamp_ms, stamp_ms, 0, 0, 0, owner, len(data), 0, zxid, field)
        record = header + data
        parent_path = path[: -len(name) - 1] or "/"
        node = holder.children[parent_name]
        overlay = tree.overlay
        if overlay is not None:
            overlay.note(parent_path, freeze(node))
            overlay.note(path, None)
        parent = Directory(node, 0, pzxid_of(node)) if isinstance(node, bytes) else node
        if self._undo is not None:
            leaf = node if isinstance(node, bytes) else None
            self._undo.append(_Inserted(holder, parent_name, leaf, parent, name, path, parent.pzxid, record))
        if parent is not node:
            holder.children[parent_name] = parent
        parent.children[name] = record
        parent.creates += 1
        parent.pzxid = zxid
        if session is not None:
            session.ephemerals[path] = None
        tree.node_count += 1
        tree.data_bytes += len(path) + len(data)
        tree.changes += (path.encode(), tree.acls.marks[field], header[:STAT_BYTES], data)
        self.events += ((EVENT_CREATED, path), (EVENT_CHILDREN_CHANGED, parent_path))
        return path, record

    def delete(self, command: Command) -> int | None:
        """Apply [2, path, version]."""
        if len(command) != 3:
            return BAD_ARGUMENTS
        _, path, expected = command
        if type(path) is not str or type(expected) is not int or path in _UNDELETABLE:
            return BAD_ARGUMENTS
        names = path.split("/")
        name = names.pop()
        try:
            parent = descend(self.tree.top, names)
            node = parent.children[name]
        except (KeyError, AttributeError):
            return self._refuse_delete(path)
        field = acl_field_of(parent.record)
        if field & ACL_MASK and not permits(self.tree.acls[field & ACL_MASK], PERM_DELETE, self.identities):
            return NO_AUTH
        if expected not in (ANY_VERSION, version_of(node if isinstance(node, bytes) else record_of(node))):
            return BAD_VERSION
        if not isinstance(node, bytes) and node.children:
            return NOT_EMPTY
        self._remove(parent, name, path, node)
        return None

    def _refuse_delete(self, path: str) -> int:
        """Return why a path that is not there cannot be deleted."""
        if "/" not in path or "\0" in path:
            return BAD_ARGUMENTS
        parent = self.tree.get(path.rpartition("/")[0])
        if parent is None:
            return NO_NODE
        acl = self.tree.acls[acl_field_of(record_of(parent)) & ACL_MASK]
        return NO_NODE if permits(acl, PERM_DELETE, self.identities) else NO_AUTH

    def _remove(self, parent: Directory, name: str, path: str, node: Node) -> None:
        """Remove a node without children."""
        tree = self.tree
        parent_path = path[: -len(name) - 1] or "/"
        record = node if isinstance(node, bytes) else record_of(node)
        overlay = tree.overlay
        if overlay is not None:
            overlay.note(parent_path, freeze(parent))
            overlay.note(path, freeze(node))
        if self._undo is None:
            tree.acls.release(acl_field_of(record) & ACL_MASK)
        else:
            self._undo.append(_Removed(parent, name, path, parent.pzxid, node))
        del parent.children[name]
        if not parent.children:
            # a dict keeps the size that it once had
            parent.children = {}
        parent.pzxid = self.zxid
        owner = owner_of(record)
        if owner:
            del self.sessions[owner].ephemerals[path]
        tree.node_count -= 1
        tree.data_bytes -= len(path) + len(record) - HEADER_BYTES
        tree.changes += (path.encode(), _ABSENT_MARK)
        self.events += ((EVENT_DELETED, path), (EVENT_CHILDREN_CHANGED, parent_path))

    def check(self, command: Command) -> int | None:
        """Apply [13, path, version], an operation of a multi only."""
        if len(command) != 3:
            return BAD_ARGUMENTS
        _, path, expected = command
        if type(path) is not str or not path or type(expected) is not int:
            return BAD_ARGUMENTS
        node = self.tree.get(path)
        if node is None:
            return NO_NODE if is_valid_path(path) else BAD_ARGUMENTS
        record = node if isinstance(node, bytes) else record_of(node)
        field = acl_field_of(record)
        if field & ACL_MASK and not permits(self.tree.acls[field & ACL_MASK], PERM_READ, self.identities):
            return NO_AUTH
        return None if expected in (ANY_VERSION, version_of(record)) else BAD_VERSION

    def multi(self, command: Command) -> list[MultiItem] | int:
        """Apply [14, [operation, …]]: all or nothing; returns an item per operation.

        An operation that ZooKeeper could not even read fails the request as a whole.
        """
        if len(command) != 2:
            return BAD_ARGUMENTS
        _, operations = command
        if type(operations) is not list:
            return BAD_ARGUMENTS
        tree = self.tree
        before = (len(tree.changes), tree.node_count, tree.data_bytes, tree.acls.next_number)
        undo = self._undo = []
        items: list[MultiItem] = []
        known = self._operations
        for operation in operations:
            value: WriteValue | int
            try:
                op, write = known[operation[0]]
            except (LookupError, TypeError):
                value = MARSHALLING_ERROR
            else:
                value = write(operation)
            if isinstance(value, int):
                self._undo = None
                self._roll_back(undo, *before)
                if not all(map(self._is_readable, operations)):
                    return MARSHALLING_ERROR
                self.outcomes += (FAILED_MULTI, len(items), value)
                return _failed_items(len(items), value, len(operations))
            items.append((op, OK, value))
        self._undo = None
        for change in undo:
            if isinstance(change, _Removed):
                # only now, so that a rolled back deletion finds its ACL under the old number
                tree.acls.release(acl_field_of(record_of(change.node)) & ACL_MASK)
        return items

    def _is_readable(self, operation: object) -> bool:
        """Tell whether ZooKeeper could read an operation of a multi at all; else the multi is malformed."""
        if type(operation) is not list or not operation:
            return False
        op = operation[0]
        if type(op) is not int or op not in self._operations:
            return False
        if op not in {OP_CREATE, OP_CREATE2} or len(operation) != 5:
            return True
        flags = operation[4]
        return type(flags) is int and 0 <= flags <= KNOWN_FLAGS_MAX

    def _roll_back(
        self,
        undo: list[_Replaced | _Inserted | _Removed],
        changes: int,
        node_count: int,
        data_bytes: int,
        next_acl_number: int,
    ) -> None:
        """Undo the changes of a failed multi, the last one first; the numbers are those from before it."""
        tree = self.tree
        for change in reversed(undo):
            match change:
                case _Replaced(parent, name, old):
                    node = parent.children[name]
                    if isinstance(node, bytes):
                        parent.children[name] = old
                    else:
                        node.record = old
                case _Inserted(holder, parent_name, leaf, parent, name, path, old_pzxid, record):
                    del parent.children[name]
                    parent.creates -= 1
                    parent.pzxid = old_pzxid
                    if leaf is not None:
                        holder.children[parent_name] = leaf
                    if owner_of(record):
                        del self.sessions[owner_of(record)].ephemerals[path]
                    tree.acls.release(acl_field_of(record) & ACL_MASK)
                case _Removed(parent, name, path, old_pzxid, node):
                    parent.children[name] = node
                    parent.pzxid = old_pzxid
                    owner = owner_of(record_of(node))
                    if owner:
                        self.sessions[owner].ephemerals[path] = None
        del tree.changes[changes:]
        self.events.clear()
        tree.node_count = node_count
        tree.data_bytes = data_bytes
        tree.acls.next_number = next_acl_number

    def close_session(self, session: Session) -> None:
        """Forget a session and remove its ephemerals, by their paths' order, in the transaction under way."""
        for path in sorted(session.ephemerals):
            *segments, name = path.split("/")
            parent = descend(self.tree.top, segments)
            self._remove(parent, name, path, parent.children[name])
        del self.sessions[session.session_id]


def _failed_items(position: int, error: int, count: int) -> list[MultiItem]:
    """Return the items of a failed multi: OK before the failing operation, an inconsistency behind."""
    return [
        (OP_ERROR, OK if index < position else error if index == position else RUNTIME_INCONSISTENCY, None)
        for index in range(count)
    ]
