"""What one write does to the tree: the checks in ZooKeeper's order, then the change with its events.

A method per operation takes the command as it came out of the log and returns the value, or an error code (an
int below zero) after which nothing has changed. Nothing a command holds can raise: shapes and types are
checked here. Within a multi (transaction.py) each change leaves an undo record. The state
(tree, sessions) is hard; the rest of the attributes is the context of one command, set by the machine.

Source: ZooKeeper 3.9 PrepRequestProcessor.pRequest2Txn and DataTree.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from quorum.core.acl import CONTAINER, OPEN_ACL, UNLIMITED, Acl, resolve_acl
from quorum.core.codes import (
    ANY_VERSION,
    BAD_ARGUMENTS,
    BAD_VERSION,
    EVENT_CHILDREN_CHANGED,
    EVENT_CREATED,
    EVENT_DATA_CHANGED,
    EVENT_DELETED,
    FLAG_CONTAINER,
    FLAG_EPHEMERAL,
    FLAG_SEQUENTIAL,
    FLAG_TTL,
    FLAG_TTL_SEQUENTIAL,
    INT32_MAX,
    NO_AUTH,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    OK,
    PERM_ADMIN,
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    QUOTA_EXCEEDED,
    TTL_MAX_MS,
)
from quorum.core.paths import SPECIAL_PATHS, is_valid_path, is_valid_segment, parent_of
from quorum.core.quotas import LIMITS
from quorum.core.records import (
    ACL_MASK,
    CHANGED,
    HEADER,
    HEADER_BYTES,
    KEPT,
    NULL_DATA,
    STAT_BYTES,
    acl_field_of,
    aversion_of,
    next_version,
    owner_of,
    pzxid_of,
    version_of,
    with_acl,
)
from quorum.core.results import Event
from quorum.core.sessions import Session
from quorum.core.tree import Directory, Node, Tree, descend, freeze, record_of, stat_of
from quorum.core.undo import Inserted, Removed, Replaced
from quorum.core.usage import Usage

Command: TypeAlias = list[object]

_ABSENT_MARK: Final = b"\0\0"
_UNDELETABLE: Final = SPECIAL_PATHS | {""}


class Writes(Usage):
    """The writes on one tree, and the context in which they run."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        #: {session id: session}; hard state
        self.sessions: Final[dict[int, Session]] = {}
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

    def mark(self, session_id: int, node_id: int) -> None:
        """Note whose the transactions from here on are, where that is wanted."""
        if self.tree.trace is not None:
            self.tree.trace.append((self.zxid, session_id, node_id))

    def describe_members(self, path: str, data: bytes) -> list[Event]:
        """Replace the data of the node that describes the members, as a transaction; its version stays -1.

        Source: the SetDataTxn of a reconfig in PrepRequestProcessor of ZooKeeper 3.9.
        """
        tree = self.tree
        self.zxid += 1
        self.events = []
        *above, name = path.split("/")
        parent = descend(tree.top, above)
        node = parent.children[name]
        old = record_of(node)
        if tree.overlay is not None:
            tree.overlay.note(path, freeze(node))
        czxid, ctime, _, middle, tail, field = KEPT.unpack_from(old)
        number = field & ACL_MASK
        header = CHANGED.pack(czxid, self.zxid, ctime, self.stamp_ms, -1, middle, len(data), tail, number)
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, old, header + data))
        if isinstance(node, bytes):
            parent.children[name] = header + data
        else:
            node.record = header + data
        tree.data_bytes += len(data) - len(old) + HEADER_BYTES
        stat = header[:STAT_BYTES] if isinstance(node, bytes) else node.stat()
        tree.changes += (path.encode(), tree.acls.marks[number], stat, data)
        self.events.append(self._event(EVENT_DATA_CHANGED, path, number))
        return self.events

    def _event(self, event_type: int, path: str, number: int) -> Event:
        """Return an event of a node with an ACL; what that grants goes along where it keeps readers out."""
        grants = self.tree.acls.grants(number)
        return (event_type, path) if grants.permit(PERM_READ, None) else (event_type, path, grants)

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
        parent = tree.top
        try:
            for segment in names:
                parent = parent.children[segment]  # type: ignore[assignment]  # a leaf raises
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
        refusal = (
            NO_AUTH
            if number and not tree.acls.permits(number, PERM_WRITE, self.identities)
            else QUOTA_EXCEEDED
            if tree.quotas and self._exceeds(path, 0, len(data) - len(old) + HEADER_BYTES)
            else OK
            if expected in (version, ANY_VERSION)
            else BAD_VERSION
        )
        if refusal:
            return refusal
        overlay = tree.overlay
        if overlay is not None:
            overlay.note(path, freeze(node))
        if self._undo is not None:
            self._undo.append(Replaced(parent, name, old))
        version = version + 1 if 0 <= version < INT32_MAX else next_version(version)
        header = CHANGED.pack(czxid, self.zxid, ctime, self.stamp_ms, version, middle, len(data), tail, field)
        record = header + data
        if isinstance(node, bytes):
            parent.children[name] = record
            stat = header[:STAT_BYTES]
        else:
            node.record = record
            stat = node.stat()
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, old, record))
        tree.data_bytes += len(data) - len(old) + HEADER_BYTES
        tree.changes += (path.encode(), tree.acls.marks[field], stat, data)
        self.events.append(
            self._event(EVENT_DATA_CHANGED, path, number) if number else (EVENT_DATA_CHANGED, path)
        )
        if tree.quotas:
            self._count(path, 0, len(data) - len(old) + HEADER_BYTES, data)
        return stat

    def set_acl(self, command: Command) -> bytes | int:
        """Apply [7, path, acl, aversion]; returns the new Stat. No watch fires: watches are not for ACLs."""
        if len(command) != 4:
            return BAD_ARGUMENTS
        _, path, requested, expected = command
        if type(path) is not str or type(expected) is not int or not is_valid_path(path):
            return BAD_ARGUMENTS
        acl = resolve_acl(requested, self.identities)
        if isinstance(acl, int):
            return acl
        tree = self.tree
        node = tree.get(path)
        if node is None:
            return NO_NODE
        old = record_of(node)
        number = acl_field_of(old) & ACL_MASK
        if number and not tree.acls.permits(number, PERM_ADMIN, self.identities):
            return NO_AUTH
        aversion = aversion_of(old)
        if expected not in (aversion, ANY_VERSION):
            return BAD_VERSION
        if tree.overlay is not None:
            tree.overlay.note(path, freeze(node))
        record = with_acl(old, next_version(aversion), tree.acls.acquire(acl, tree.acls.lifetime_of(number)))
        tree.acls.release(number)
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, old, record))
        if isinstance(node, bytes):
            *above, name = path.split("/")
            descend(tree.top, above).children[name] = node = record
        else:
            node.record = record
        stat = stat_of(node)
        tree.changes += (path.encode(), tree.acls.marks[acl_field_of(record)], stat, record[HEADER_BYTES:])
        return stat

    def create(self, command: Command) -> str | int:
        """Apply [1, path, data or None, acl, flags]; returns the path of the new node."""
        if len(command) != 5:
            return BAD_ARGUMENTS
        _, path, data, requested, flags = command
        created = self._create(path, data, requested, flags, UNLIMITED)
        return created if isinstance(created, int) else created[0]

    def create2(self, command: Command) -> tuple[str, bytes] | int:
        """Apply [15, path, data or None, acl, flags]; returns (path, Stat) of the new node."""
        if len(command) != 5:
            return BAD_ARGUMENTS
        _, path, data, requested, flags = command
        created = self._create(path, data, requested, flags, UNLIMITED)
        return created if isinstance(created, int) else (created[0], created[1][:STAT_BYTES])

    def create_container(self, command: Command) -> tuple[str, bytes] | int:
        """Apply [19, path, data or None, acl, flags]; whatever the flags say, no ephemeral comes of it."""
        if len(command) != 5:
            return BAD_ARGUMENTS
        _, path, data, requested, flags = command
        created = self._create(path, data, requested, flags, CONTAINER)
        return created if isinstance(created, int) else (created[0], created[1][:STAT_BYTES])

    def create_ttl(self, command: Command) -> tuple[str, bytes] | int:
        """Apply [21, path, data or None, acl, flags, ttl in milliseconds]."""
        if len(command) != 6:
            return BAD_ARGUMENTS
        _, path, data, requested, flags, ttl_ms = command
        if flags not in (FLAG_TTL, FLAG_TTL_SEQUENTIAL) or type(ttl_ms) is not int:
            return BAD_ARGUMENTS
        if not 0 < ttl_ms <= TTL_MAX_MS:
            return BAD_ARGUMENTS
        flags = FLAG_SEQUENTIAL if flags == FLAG_TTL_SEQUENTIAL else 0
        created = self._create(path, data, requested, flags, ttl_ms)
        return created if isinstance(created, int) else (created[0], created[1][:STAT_BYTES])

    def _create(
        self, path: object, data: object, requested: object, flags: object, lifetime: int
    ) -> tuple[str, bytes] | int:
        """Check a create in ZooKeeper's order; returns (path, record) of the new node."""
        if type(path) is not str or type(flags) is not int or (data is not None and type(data) is not bytes):
            return BAD_ARGUMENTS
        # A create with the flags of a container makes an ordinary node, as in ZooKeeper.
        if not 0 <= flags <= FLAG_CONTAINER or "\0" in path or "/" not in path:
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
        if field & ACL_MASK and not self.tree.acls.permits(field & ACL_MASK, PERM_CREATE, self.identities):
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
        if self.tree.quotas and self._exceeds(path, 1, len(data or b"")):
            return QUOTA_EXCEEDED
        return self._insert(holder, parent_name, name, path, data, acl, flags, lifetime)

    def _insert(
        self,
        holder: Directory,
        parent_name: str,
        name: str,
        path: str,
        data: bytes | None,
        acl: Acl,
        flags: int,
        lifetime: int,
    ) -> tuple[str, bytes]:
        """Add a child below `holder`'s child `parent_name`; returns (path, record)."""
        tree = self.tree
        zxid = self.zxid
        session = self.session if flags & FLAG_EPHEMERAL and not lifetime else None
        number = field = 0 if acl is OPEN_ACL and not lifetime else tree.acls.acquire(acl, lifetime)
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
            self._undo.append(Inserted(holder, parent_name, leaf, parent, name, path, parent.pzxid, record))
        if parent is not node:
            holder.children[parent_name] = parent
        parent.children[name] = record
        parent.creates += 1
        parent.pzxid = zxid
        if session is not None:
            session.ephemerals[path] = None
        if lifetime:
            tree.expirable[path] = None
        tree.node_count += 1
        tree.data_bytes += len(path) + len(data)
        tree.changes += (path.encode(), tree.acls.marks[field], header[:STAT_BYTES], data)
        if tree.trace is not None:
            tree.trace.append((zxid, path, None, record))
        parent_number = acl_field_of(parent.record) & ACL_MASK
        if number or parent_number:
            self.events += (
                self._event(EVENT_CREATED, path, number),
                self._event(EVENT_CHILDREN_CHANGED, parent_path, parent_number),
            )
        else:
            self.events += ((EVENT_CREATED, path), (EVENT_CHILDREN_CHANGED, parent_path))
        if tree.quotas or name == LIMITS:
            self._count(path, 1, len(data), data)
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
        if field & ACL_MASK and not self.tree.acls.permits(field & ACL_MASK, PERM_DELETE, self.identities):
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
        number = acl_field_of(record_of(parent)) & ACL_MASK
        return NO_NODE if self.tree.acls.permits(number, PERM_DELETE, self.identities) else NO_AUTH

    def _remove(self, parent: Directory, name: str, path: str, node: Node) -> None:
        """Remove a node without children."""
        tree = self.tree
        parent_path = path[: -len(name) - 1] or "/"
        record = node if isinstance(node, bytes) else record_of(node)
        overlay = tree.overlay
        if overlay is not None:
            overlay.note(parent_path, freeze(parent))
            overlay.note(path, freeze(node))
        number = acl_field_of(record) & ACL_MASK
        parent_number = acl_field_of(parent.record) & ACL_MASK
        if number or parent_number:
            self.events += (
                self._event(EVENT_DELETED, path, number),
                self._event(EVENT_CHILDREN_CHANGED, parent_path, parent_number),
            )
            if number in tree.acls.lifetimes:
                del tree.expirable[path]
        else:
            self.events += ((EVENT_DELETED, path), (EVENT_CHILDREN_CHANGED, parent_path))
        if self._undo is None:
            tree.acls.release(number)
        else:
            self._undo.append(Removed(parent, name, path, parent.pzxid, node))
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
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, record, None))
        if tree.quotas:
            self._count(path, -1, HEADER_BYTES - len(record), None)

    def reap(self, path: str) -> None:
        """Remove a container or TTL node that is due, in the transaction under way."""
        *above, name = path.split("/")
        parent = descend(self.tree.top, above)
        self._remove(parent, name, path, parent.children[name])

    def close_session(self, session: Session) -> None:
        """Forget a session and remove its ephemerals, by their paths' order, in the transaction under way."""
        parent_path = None
        parent = self.tree.top
        for path in sorted(session.ephemerals):
            above, _, name = path.rpartition("/")
            if above != parent_path:
                # Those of one session often have one parent, and the way there may be long.
                parent = descend(self.tree.top, above.split("/"))
                parent_path = above
            self._remove(parent, name, path, parent.children[name])
        del self.sessions[session.session_id]
