"""An import: znodes of another cluster are set as they are there, with their Stat and access list.

The steps come from an operator, through the log. `begin` names the source and needs an empty tree; while an
import is under way clients write nothing; `write` sets and deletes znodes; `open` ends it. Each step takes
one zxid, above a floor that it names: what is copied keeps its zxids, and they must lie below. Floors rise
from step to step, so a step that comes late, after its sender gave it up, does nothing. Nothing that a step
holds can raise; one that fails has done what comes before the failing change. `import_source` and
`import_floor` are hard state.

A step is [kind, source, floor, changes]; a change is [path], which deletes, or [path, data or None, acl or
None, numbers, lifetime] with numbers = [czxid, mzxid, pzxid, ctime, mtime, version, aversion, child
creations].
Source: ZooKeeper 3.9 DataTree, DataNode.copyStat (cversion is 2 × creations − children).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from quorum.core.acl import (
    ACL_ENTRIES_MAX,
    CONTAINER,
    OPEN_ACL,
    UNLIMITED,
    Acl,
    AclEntry,
    is_text,
    stored_entry,
)
from quorum.core.codes import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    EVENT_CHILDREN_CHANGED,
    EVENT_CREATED,
    EVENT_DATA_CHANGED,
    INT32_MAX,
    INT64_MAX,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    OK,
    RUNTIME_INCONSISTENCY,
    TTL_MAX_MS,
)
from quorum.core.paths import is_keepable
from quorum.core.records import (
    ACL_MASK,
    HEADER,
    HEADER_BYTES,
    NULL_DATA,
    acl_field_of,
    data_of,
    owner_of,
    pzxid_of,
)
from quorum.core.results import Result
from quorum.core.transaction import TreeTransaction
from quorum.core.tree import Directory, Node, Tree, descend, freeze, record_of, stat_of

BEGIN: Final = "begin"
WRITE: Final = "write"
OPEN: Final = "open"
#: of the name of a source
SOURCE_CHARS_MAX: Final = 2000
#: above all zxids that a cluster ever gets, and far enough below the end of int64 to go on from it
ZXID_MAX: Final = 1 << 62
#: what stays as it is in the target, and is not read from the source
LEFT_OUT: Final = "/zookeeper"
_DIGEST_BYTES: Final = 16


class ImportedNumbers(NamedTuple):
    """The numbers of a znode; the zxids and times are the source's."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    aversion: int
    #: children ever created; the next sequential one gets this number
    creates: int


class ImportedNode(NamedTuple):
    """A znode as it is set."""

    path: str
    data: bytes | None
    acl: Acl
    numbers: ImportedNumbers
    #: UNLIMITED, CONTAINER or a TTL in milliseconds
    lifetime: int = UNLIMITED

    def digest(self) -> bytes:
        """Return a digest of what an import keeps: all but pzxid."""
        parts = [self.path.encode(), b"-" if self.data is None else b"+" + self.data]
        parts += [str(each).encode() for entry in self.acl for each in entry]
        numbers = self.numbers._replace(pzxid=0)
        parts.append(",".join(map(str, (*numbers, self.lifetime))).encode())
        return blake2b(
            b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=_DIGEST_BYTES
        ).digest()

    def change(self) -> list[object]:
        """Return the change that sets it."""
        acl = None if self.acl == OPEN_ACL else [list(entry) for entry in self.acl]
        return [self.path, self.data, acl, list(self.numbers), self.lifetime]


def is_left_out(path: str) -> bool:
    """Tell whether a znode is none of an import's."""
    return path == LEFT_OUT or path.startswith(f"{LEFT_OUT}/")


def imported_node(tree: Tree, path: str, node: Node) -> ImportedNode:
    """Return a znode of a tree as an import would set it."""
    record = record_of(node)
    czxid, mzxid, ctime, mtime, version, _, aversion, _, _, _, pzxid, field = HEADER.unpack_from(record)
    creates = 0
    if not isinstance(node, bytes):
        creates, pzxid = node.creates, node.pzxid
    number = field & ACL_MASK
    numbers = ImportedNumbers(czxid, mzxid, pzxid, ctime, mtime, version, aversion, creates)
    return ImportedNode(path, data_of(record), tree.acls[number], numbers, tree.acls.lifetime_of(number))


def walk(tree: Tree) -> Iterator[ImportedNode]:
    """Yield the znodes of an import, parents before their children; what goes or comes meanwhile may lack."""
    yield imported_node(tree, "/", tree.root)
    stack: list[tuple[str, Directory, list[str]]] = [("", tree.root, list(tree.root.children))]
    while stack:
        prefix, directory, names = stack[-1]
        if not names:
            stack.pop()
            continue
        name = names.pop()
        path, child = f"{prefix}/{name}", directory.children.get(name)
        if child is None or path == LEFT_OUT:
            continue
        yield imported_node(tree, path, child)
        if isinstance(child, Directory):
            stack.append((path, child, list(child.children)))


class _Step(NamedTuple):
    """A step that takes effect; of its changes, a path deletes."""

    kind: str
    source: str
    floor: int
    changes: list[ImportedNode | str]


class _Refusal(NamedTuple):
    """Why a step has no effect, and what that is about."""

    err: int
    about: str | int


_UNKNOWN: Final = _Refusal(BAD_ARGUMENTS, "")


class ImportTransaction(TreeTransaction):
    """The writes on one tree, those of an import included."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        #: the cluster that is being imported; "": none, and clients may write
        self.import_source = ""
        #: the floor of its last step
        self.import_floor = 0
        #: how far the open entry let the zxid jump before its first transaction
        self.zxid_jump = 0

    def import_step(self, step: object) -> Result:
        """Apply one step.

        Returns:
            OK, of `begin` with the last floor; or an error, with what it is about as value: BAD_ARGUMENTS (of
            no known form; nothing was done), NODE_EXISTS (another source is being imported, named),
            BAD_VERSION (no import is under way), RUNTIME_INCONSISTENCY (the floor is not above that of the
            last step), NOT_EMPTY (`begin`: a znode that is there; `write`: one with children), NO_NODE (a
            znode whose parent is not there), NO_CHILDREN_FOR_EPHEMERALS.
        """
        judged = self._judge(step)
        if isinstance(judged, _Refusal):
            # Without a zxid of its own, and without an effect.
            self.outcomes += (judged.err, self.zxid)
            return Result(judged.err, self.zxid, judged.about, None)
        kind, source, floor, parsed = judged
        self._jump(floor)
        self.zxid += 1
        self.events = []
        self.import_source, self.import_floor = ("", 0) if kind == OPEN else (source, floor)
        for change in parsed:
            path = change if isinstance(change, str) else change.path
            error = self._delete_node(path) if isinstance(change, str) else self._set_node(change)
            if error:
                self.outcomes += (error, self.zxid)
                return Result(error, self.zxid, path, self.events or None)
        self.outcomes.append(self.zxid)
        return Result(OK, self.zxid, floor, self.events or None)

    def zxid_of_step(self, step: object) -> int | None:
        """Return the zxid that a step would take now; None: it would be refused."""
        judged = self._judge(step)
        return None if isinstance(judged, _Refusal) else max(judged.floor, self.zxid) + 1

    def _judge(self, step: object) -> _Step | _Refusal:
        if not isinstance(step, list) or len(step) != 4:
            return _UNKNOWN
        kind, source, floor, changes = step
        if not _is_source(source) or type(floor) is not int or not 0 <= floor <= ZXID_MAX:
            return _UNKNOWN
        parsed = _parse_changes(changes, max(floor, self.zxid)) if kind == WRITE else []
        if kind not in (BEGIN, WRITE, OPEN) or parsed is None:
            return _UNKNOWN
        if self.import_source not in ("", source):
            return _Refusal(NODE_EXISTS, self.import_source)
        if kind == BEGIN:
            if self.import_source:
                return _Refusal(OK, self.import_floor)
            others = [name for name in self.tree.root.children if f"/{name}" != LEFT_OUT]
            if others:
                return _Refusal(NOT_EMPTY, f"/{min(others)}")
        elif not self.import_source:
            return _Refusal(BAD_VERSION, "")
        elif floor <= self.import_floor:
            return _Refusal(RUNTIME_INCONSISTENCY, "")
        return _Step(kind, source, floor, parsed)

    def _jump(self, floor: int) -> None:
        """Let the zxid rise to the floor."""
        if floor > self.zxid:
            self.zxid_jump += floor - self.zxid
            self.zxid = floor

    def _delete_node(self, path: str) -> int:
        """Delete a znode; one that is not there is deleted. Returns an error or OK."""
        *above, name = path.split("/")
        try:
            parent = descend(self.tree.top, above)
            node = parent.children[name]
        except (KeyError, AttributeError):
            return OK
        if isinstance(node, Directory) and node.children:
            return NOT_EMPTY
        self._remove(parent, name, path, node)
        return OK

    def _set_node(self, wanted: ImportedNode) -> int:
        """Set a znode, which may be there or not; returns an error or OK."""
        tree, path = self.tree, wanted.path
        parent = tree.top if path == "/" else self._parent_for(path)
        if isinstance(parent, int):
            return parent
        name = path.rpartition("/")[2]
        old = parent.children.get(name)
        old_record = None if old is None else record_of(old)
        if old_record is not None and owner_of(old_record):
            return NODE_EXISTS
        if tree.overlay is not None:
            tree.overlay.note(path, None if old is None else freeze(old))
        record = _record_for(tree, wanted)
        if old_record is not None:
            tree.acls.release(acl_field_of(old_record) & ACL_MASK)
        node = parent.children[name] = _node_for(wanted, record, old)
        tree.expirable.pop(path, None)
        if wanted.lifetime:
            tree.expirable[path] = None
        grown = len(record) - (HEADER_BYTES if old_record is None else len(old_record))
        tree.node_count += old is None
        tree.data_bytes += grown + (len(path) if old is None else 0)
        field, data = acl_field_of(record), record[HEADER_BYTES:]
        tree.changes += (path.encode(), tree.acls.marks[field], stat_of(node), data)
        if tree.trace is not None:
            tree.trace.append((self.zxid, path, old_record, record))
        if old_record is None:
            above = acl_field_of(parent.record) & ACL_MASK
            self.events.append(self._event(EVENT_CREATED, path, field & ACL_MASK))
            parent_path = path[: -len(name) - 1] or "/"
            self.events.append(self._event(EVENT_CHILDREN_CHANGED, parent_path, above))
        elif old_record[:36] != record[:36] or old_record[HEADER_BYTES:] != data:
            self.events.append(self._event(EVENT_DATA_CHANGED, path, field & ACL_MASK))
        if tree.quotas:
            self._count(path, int(old is None), grown, data)
        return OK

    def _parent_for(self, path: str) -> Directory | int:
        """Return the directory in which a child is set, or an error; a leaf becomes one."""
        *above, parent_name, name = path.split("/")
        try:
            holder = descend(self.tree.top, above)
            found = holder.children[parent_name]
        except (KeyError, AttributeError):
            return NO_NODE
        if isinstance(found, bytes):
            if owner_of(found):
                return NO_CHILDREN_FOR_EPHEMERALS
        elif name in found.children:
            return found
        if self.tree.overlay is not None:
            self.tree.overlay.note(path[: -len(name) - 1] or "/", freeze(found))
        if isinstance(found, bytes):
            found = holder.children[parent_name] = Directory(found, 0, pzxid_of(found))
        if found is not self.tree.root:
            # A node that has a child has had one, whatever was read of it before.
            found.creates = max(found.creates, 1)
        return found


def _record_for(tree: Tree, wanted: ImportedNode) -> bytes:
    """Return the record of a znode, whose ACL is counted."""
    number = tree.acls.acquire(wanted.acl, wanted.lifetime)
    data = b"" if wanted.data is None else wanted.data
    field = number | (NULL_DATA if wanted.data is None else 0)
    czxid, mzxid, _, ctime, mtime, version, aversion, _ = wanted.numbers
    return HEADER.pack(czxid, mzxid, ctime, mtime, version, 0, aversion, 0, len(data), 0, czxid, field) + data


def _node_for(wanted: ImportedNode, record: bytes, old: Node | None) -> Node:
    """Return the znode that takes the place of another one, whose children it keeps."""
    creates, pzxid = wanted.numbers.creates, wanted.numbers.pzxid
    if not isinstance(old, Directory):
        return Directory(record, creates, pzxid) if creates else record
    if wanted.path != "/":
        if not creates and not old.children:
            return record
        creates = max(creates, 1)
    old.record, old.creates, old.pzxid = record, creates, pzxid
    return old


def _is_source(candidate: object) -> bool:
    return (
        isinstance(candidate, str)
        and 0 < len(candidate) <= SOURCE_CHARS_MAX
        and candidate.isprintable()
        and candidate.isascii()
    )


def _parse_changes(changes: object, zxid_max: int) -> list[ImportedNode | str] | None:
    """Return the changes of a step, a path to delete it; None if one is of no known form."""
    if not isinstance(changes, list):
        return None
    parsed: list[ImportedNode | str] = []
    for change in changes:
        found = _parse_change(change, zxid_max)
        if found is None:
            return None
        parsed.append(found)
    return parsed


def _parse_change(change: object, zxid_max: int) -> ImportedNode | str | None:
    if not isinstance(change, list) or len(change) not in (1, 5):
        return None
    path = change[0]
    if type(path) is not str or is_left_out(path) or not is_text(path) or not is_keepable(path):
        return None
    if len(change) == 1:
        return path if path != "/" else None
    _, data, entries, values, lifetime = change
    acl, numbers = _parse_acl(entries), _parse_numbers(values, zxid_max)
    if (data is not None and type(data) is not bytes) or acl is None or numbers is None:
        return None
    if type(lifetime) is not int or not CONTAINER <= lifetime <= TTL_MAX_MS or (lifetime and path == "/"):
        return None
    return ImportedNode(path, data, acl, numbers, lifetime)


def _parse_numbers(values: object, zxid_max: int) -> ImportedNumbers | None:
    if not isinstance(values, list) or len(values) != 8 or any(type(value) is not int for value in values):
        return None
    numbers = ImportedNumbers(*values)
    fits = (
        0 <= numbers.czxid <= min(numbers.mzxid, numbers.pzxid)
        and max(numbers.mzxid, numbers.pzxid) <= zxid_max
        and all(abs(time) <= INT64_MAX for time in (numbers.ctime_ms, numbers.mtime_ms))
        and all(-INT32_MAX - 1 <= each <= INT32_MAX for each in (numbers.version, numbers.aversion))
        and 0 <= numbers.creates <= ZXID_MAX
    )
    return numbers if fits else None


def _parse_acl(entries: object) -> Acl | None:
    """Return an ACL as it is stored: as its source has resolved it."""
    if entries is None:
        return OPEN_ACL
    if not isinstance(entries, list) or not 0 < len(entries) <= ACL_ENTRIES_MAX:
        return None
    acl: list[AclEntry] = []
    for candidate in entries:
        entry = stored_entry(candidate)
        if entry is None:
            return None
        acl.append(entry)
    return tuple(acl)
