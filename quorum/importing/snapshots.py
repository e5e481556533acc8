"""A snapshot of a ZooKeeper server, read as a whole and checked.

Source: ZooKeeper 3.9 FileSnap, SnapStream, DataTree (serialize), StatPersisted of zookeeper.jute.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from quorum.core.acl import OPEN_ACL, Acl
from quorum.importing.errors import SourceFileError
from quorum.wire.errors import WireError
from quorum.wire.jute import JuteReader

_MAGIC: Final = 0x5A4B534E
_VERSION: Final = 2
#: czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, pzxid
_STAT: Final = Struct(">qqqqiiiqq")
#: the number that says that everybody may do everything
_OPEN: Final = -1
_REMEDY: Final = "take the files of another server of the ensemble"


class CutShortError(Exception):
    """A snapshot that ends before it is whole, as far as its lengths can be believed."""


@dataclass(slots=True)
class FileNode:
    """A node as the files have it; `creates` counts the children that it ever had."""

    data: bytes | None
    acl: Acl
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    creates: int
    aversion: int
    owner: int
    pzxid: int


def _root() -> dict[str, FileNode]:
    nodes = {"": FileNode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0)}
    for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        nodes[path] = FileNode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return nodes


@dataclass(slots=True)
class FileTree:
    """The state of a server."""

    #: {path: node}; the root's path is empty
    nodes: dict[str, FileNode] = field(default_factory=_root)
    #: the last transaction
    zxid: int = 0
    #: {path: number of its children}
    children: dict[str, int] = field(default_factory=dict)
    #: {session: paths of its ephemerals}
    ephemerals: dict[int, dict[str, None]] = field(default_factory=dict)


def read_snapshot(path: Path) -> FileTree:
    """Read a snapshot.

    Raises:
        CutShortError: it ends too early.
        SourceFileError: it is damaged, or none.
    """
    content = _content(path)
    reader = JuteReader(content, 0, len(content), "snapshot")
    try:
        if reader.remaining < 16:
            raise CutShortError
        if (reader.int32("magic"), reader.int32("version")) != (_MAGIC, _VERSION):
            raise SourceFileError(f"{path} is no snapshot of a ZooKeeper server", _REMEDY)
        reader.int64("dbid")
        for _ in range(reader.count("sessions", 12)):
            reader.int64("session")
            reader.int32("timeout")
        tree = _read_nodes(reader, _read_acls(reader), path)
        checked = zlib.adler32(content[: reader.position])
        if reader.int64("checksum") != checked:
            raise SourceFileError(f"{path} is damaged: its checksum does not fit", _REMEDY)
    except WireError as error:
        raise CutShortError from error
    return tree


def _content(path: Path) -> bytes:
    try:
        if path.suffix == ".snappy":
            remedy = "set snapshot.compression.method to gz or to nothing, and let the server write one"
            raise SourceFileError(f"{path} is compressed by snappy, which is not read", remedy)
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except EOFError as error:
        raise CutShortError from error
    except (OSError, zlib.error) as error:
        raise SourceFileError(f"{path} cannot be read: {error}", _REMEDY) from error


def _read_acls(reader: JuteReader) -> dict[int, Acl]:
    acls: dict[int, Acl] = {_OPEN: OPEN_ACL}
    for _ in range(reader.count("acls", 12)):
        number = reader.int64("acl")
        acls[number] = acl_of(reader)
    return acls


def acl_of(reader: JuteReader) -> Acl:
    """Read an access list."""
    return tuple((int(perms), str(scheme), str(name)) for perms, scheme, name in reader.acl("acl"))


def _read_nodes(reader: JuteReader, acls: dict[int, Acl], file: Path) -> FileTree:
    tree = FileTree(nodes={})
    while (path := reader.string("path")) != "/":
        data = reader.buffer("data")
        number = reader.int64("acl")
        stat = reader.struct(_STAT, "stat")
        czxid, mzxid, ctime, mtime, version, creates, aversion, owner, pzxid = stat
        acl = acls.get(number)
        if acl is None:
            problem = f"{file} is damaged: {path} has the access list {number}, which is not there"
            raise SourceFileError(problem, _REMEDY)
        tree.nodes[path] = FileNode(
            data, acl, czxid, mzxid, ctime, mtime, version, creates, aversion, owner, pzxid
        )
        if path:
            parent = path.rpartition("/")[0]
            tree.children[parent] = tree.children.get(parent, 0) + 1
        if owner:
            tree.ephemerals.setdefault(owner, {})[path] = None
    if "" not in tree.nodes:
        raise SourceFileError(f"{file} is damaged: the root is not there", _REMEDY)
    return tree
