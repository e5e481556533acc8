"""The tree as it was after an earlier transaction: what is there now, with the changes since undone.

Decides what the history says of the past. The first change of a path since then holds the image that stood
there; a path without a change stood there as it does now. Readers pass over the changes since once a page and
keep images of that page alone, within a bound. The history holds records as the tree does, so cversion and
pzxid, which a parent counts for itself, are not known of the past, nor is anything below UNRECORDED. Pure.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from typing import Final, NamedTuple, TypeAlias

from quorum.changelog.blocks import Block, body_of
from quorum.changelog.rows import UNRECORDED
from quorum.core.records import HEADER, data_of, owner_of, version_of
from quorum.core.tree import Directory, Node, Tree, record_of
from quorum.errors import QuorateError

#: images of one page that are kept at once
IMAGE_BYTES_MAX: Final = 32 * 1024 * 1024
#: about what one costs on top of its path and record
_ENTRY_BYTES: Final = 200
#: children that came or went since then, of a znode whose children are asked for
CHANGED_CHILDREN_MAX: Final = 100_000
#: of the records of one page
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024

#: the segments of a path; their order is that of a walk from the root
Key: TypeAlias = "tuple[str, ...]"
#: takes one change: path, record before, record after
Visitor: TypeAlias = "Callable[[str, bytes | None, bytes | None], None]"


class TooMuchChangedError(QuorateError):
    """More children came and went since then than one answer counts."""

    definite = True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"more than {CHANGED_CHILDREN_MAX} children of {path} came or went since then",
            "send children=false, or a later as_of_zxid",
        )


def visit_changes(blocks: Iterable[Block], from_zxid: int, to_zxid: int, visit: Visitor) -> int:
    """Pass over the changes of transactions, in their order.

    Args:
        blocks: by rising zxid.
        from_zxid: the first transaction, inclusive.
        to_zxid: the last one, inclusive.
        visit: takes each change.

    Returns:
        The last zxid that was there, at most `to_zxid`.
    """
    last_zxid = from_zxid - 1
    for block in blocks:
        if block.first_zxid > to_zxid:
            break
        for traced in body_of(block).trace:
            if len(traced) == 4 and from_zxid <= traced[0] <= to_zxid:
                visit(*traced[1:])
        last_zxid = max(last_zxid, min(block.last_zxid, to_zxid))
    return last_zxid


def key_of(path: str) -> Key:
    """Return the place of a path in the order of a walk."""
    return () if path == "/" else tuple(path[1:].split("/"))


def walk(tree: Tree, after: str, count: int) -> Iterator[tuple[str, bytes]]:
    """Walk through a tree that does not change meanwhile, parents first, children by name.

    Args:
        tree: where.
        after: a path, after which the walk begins; empty: it begins with the root.
        count: of the nodes that are yielded at most.

    Yields:
        (path, record), of an inner node with stale counters.
    """
    #: of each directory from the root to where the walk is: (path without its slash, children ahead)
    ahead: list[tuple[str, Iterator[tuple[str, Node]]]] = []

    def enter(prefix: str, directory: Directory, behind: str) -> None:
        if f"{prefix}/" in UNRECORDED:
            return
        names = nsmallest(count, (name for name in directory.children if name > behind))
        ahead.append((prefix, ((name, directory.children[name]) for name in names)))

    directory, prefix = tree.root, ""
    for name in key_of(after) if after else ():
        enter(prefix, directory, name)
        child, prefix = directory.children.get(name), f"{prefix}/{name}"
        if not isinstance(child, Directory):
            break
        directory = child
    else:
        enter(prefix, directory, "")
    if not after:
        yield "/", tree.root.record
        count -= 1
    while ahead and count:
        prefix, children = ahead[-1]
        found = next(children, None)
        if found is None:
            ahead.pop()
            continue
        name, node = found
        yield f"{prefix}/{name}", record_of(node)
        count -= 1
        if isinstance(node, Directory):
            enter(f"{prefix}/{name}", node, "")


class PastZnode(NamedTuple):
    """A znode of a page, as it was; its data is None where it is null."""

    path: str
    data: bytes | None
    version: int
    ephemeral_owner: int


class Live(NamedTuple):
    """The nodes of one page as they stand now.

    Attributes:
        nodes: (path, record), in the order of the walk.
        whole: whether there are none after them.
    """

    nodes: list[tuple[str, bytes]]
    whole: bool


def live_page(tree: Tree, after: str, count: int) -> Live:
    """Return the nodes after a path, as many as a page holds; at least one, if there is one."""
    nodes: list[tuple[str, bytes]] = []
    size = 0
    for path, record in walk(tree, after, count + 1):
        size += len(record)
        if len(nodes) == count or (nodes and size > PAGE_BYTES_MAX):
            return Live(nodes, whole=False)
        nodes.append((path, record))
    return Live(nodes, whole=True)


class PastPage:
    """One page of the tree, as it was; `visit` takes the changes since then, in their order."""

    def __init__(self, live: Live, after: str) -> None:
        """Begin with what is there now.

        Args:
            live: the page.
            after: the path after which it begins; empty: it begins with the root.
        """
        self._after: Key | None = key_of(after) if after else None
        #: the last place of the page, inclusive; None: it has no end
        self._end: Key | None = None if live.whole else key_of(live.nodes[-1][0])
        self._live = live.nodes
        #: {place: (path, record that stood there, None where there was none)}
        self._images: dict[Key, tuple[str, bytes | None]] = {}
        self._size = 0

    def visit(self, path: str, before: bytes | None, _after: bytes | None) -> None:
        """Take a change."""
        key = key_of(path)
        after_begin = self._after is None or key > self._after
        if not after_begin or (self._end is not None and key > self._end) or key in self._images:
            return
        self._images[key] = (path, before)
        self._size += _size(path, before)
        if self._size > IMAGE_BYTES_MAX and len(self._images) > 1:
            self._shorten()

    def _shorten(self) -> None:
        """Let the page end in the middle of what changed; what follows comes with the next one."""
        kept = sorted(self._images)[: len(self._images) // 2]
        self._end = kept[-1]
        self._images = {key: self._images[key] for key in kept}
        self._size = sum(_size(*image) for image in self._images.values())

    def nodes(self) -> tuple[list[PastZnode], str | None]:
        """Return the nodes as they were, in the order of a walk, and the path after which the next page
        begins; None: there is none."""
        end = self._end
        found = {key_of(path): (path, record) for path, record in self._live}
        for key, (path, before) in self._images.items():
            if before is None:
                found.pop(key, None)
            else:
                found[key] = (path, before)
        page = [
            PastZnode(path, data_of(record), version_of(record), owner_of(record))
            for path, record in (found[key] for key in sorted(found) if end is None or key <= end)
        ]
        return page, None if end is None else "/" + "/".join(end)


def _size(path: str, record: bytes | None) -> int:
    return len(path) + len(record or b"") + _ENTRY_BYTES


class PastNode:
    """One znode and the names of its children, as they were; `visit` takes the changes since then."""

    def __init__(self, tree: Tree, path: str, *, with_names: bool) -> None:
        """Begin with what is there now.

        Args:
            tree: where.
            path: of the node.
            with_names: whether the children's names are wanted.
        """
        node = tree.get(path)
        self._path = path
        self._prefix = "" if path == "/" else path
        self._record = None if node is None else record_of(node)
        is_recorded = isinstance(node, Directory) and f"{path}/" not in UNRECORDED
        children = node.children if is_recorded else {}  # type: ignore[union-attr]
        self._names = list(children) if with_names else None
        self._count = len(children)
        #: whether the node itself changed, and was deleted, since then
        self._changed = self._deleted = False
        #: children that came less those that went, while the node was the same
        self._growth = 0
        #: {name: whether it was there}
        self._known: dict[str, bool] = {}

    def visit(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Take a change."""
        if path == self._path:
            if not self._changed:
                self._changed, self._record = True, before
            if after is None and not self._deleted:
                # It had no children any more then.
                self._deleted, self._count = True, 0
            return
        parent, _, name = path.rpartition("/")
        if parent != self._prefix or (before is not None and after is not None):
            return
        if not self._deleted:
            self._growth += 1 if before is None else -1
        if self._names is not None and name not in self._known:
            if len(self._known) >= CHANGED_CHILDREN_MAX:
                raise TooMuchChangedError(self._path)
            self._known[name] = before is not None

    def found(self) -> Past | None:
        """Return the node as it was; None: there was none."""
        if self._record is None:
            return None
        names = set(self._names or ()) | self._known.keys()
        there = sorted(name for name in names if self._known.get(name, True))
        czxid, mzxid, ctime, mtime, version, _, aversion, owner, length = HEADER.unpack_from(self._record)[:9]
        stat = {
            "czxid": czxid,
            "mzxid": mzxid,
            "ctime_ms": ctime,
            "mtime_ms": mtime,
            "version": version,
            "aversion": aversion,
            "ephemeral_owner": owner,
            "data_length": length,
            "children_count": self._count - self._growth,
        }
        return Past(data_of(self._record), stat, there)


class Past(NamedTuple):
    """A znode as it was.

    Attributes:
        data: None where it is null.
        stat: the fields of its Stat that are known of the past.
        names: of its children, in order; none where they were not wanted.
    """

    data: bytes | None
    stat: dict[str, int]
    names: list[str]
