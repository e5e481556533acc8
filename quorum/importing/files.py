"""The files of a ZooKeeper server as the source of an import: the newest snapshot and the logs after it.

A snapshot that ends too early is one that a crash cut short: the one before counts, as in ZooKeeper. Anything
else that does not fit is damage and ends the import: a wrong checksum, and a log from which transactions are
missing. A transaction is applied as ZooKeeper does it, so that a snapshot that was written while others were
applied comes out right. Nothing is written. No state but the tree that is read.

Source: ZooKeeper 3.9 FileSnap, FileTxnLog, DataTree (processTxn), zookeeper.jute.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

from quorum.core.acl import UNLIMITED
from quorum.core.importing import ImportedNode, ImportedNumbers, is_left_out
from quorum.importing.errors import SourceFileError
from quorum.importing.logs import LoggedTransaction, read_log
from quorum.importing.snapshots import CutShortError, FileNode, FileTree, read_snapshot
from quorum.importing.source import NodeFound, lifetime_of_owner
from quorum.importing.transactions import apply

#: what a dataDir has its files in
VERSION_FOLDER: Final = "version-2"
_REMEDY: Final = "name the dataDir of a ZooKeeper server, whose version-2 holds snapshots and logs"
_LOGS_REMEDY: Final = (
    "name the dataLogDir of its zoo.cfg with --from-logs; if there never was a log, name a folder without one"
)


def read_tree(folder: Path, log_folder: Path | None = None) -> FileTree:
    """Read the state that the files of a server hold.

    Args:
        folder: a dataDir, or its version-2.
        log_folder: the dataLogDir, or its version-2; None: the logs are beside the snapshots.

    Raises:
        SourceFileError: it is none, or a file is damaged.
    """
    files = _files_of(folder)
    snapshots = _numbered(files, "snapshot")
    logs = _numbered(files if log_folder is None else _files_of(log_folder), "log")
    if snapshots and not logs and log_folder is None:
        # A server with a dataLogDir has its logs there, and all that came after its snapshot.
        raise SourceFileError(f"{files} holds snapshots and no transaction log", _LOGS_REMEDY)
    for zxid, path in reversed(snapshots):
        try:
            tree = read_snapshot(path)
        except CutShortError:
            continue
        tree.zxid = zxid
        _replay(tree, logs)
        if tree.zxid < snapshots[-1][0]:
            problem = f"{snapshots[-1][1]} is cut short, and the logs end before it, at 0x{tree.zxid:x}"
            raise SourceFileError(problem, _REMEDY)
        return tree
    if snapshots:
        raise SourceFileError(f"{snapshots[-1][1]} is cut short, and no whole snapshot is there", _REMEDY)
    # Without one it is not known what came before the logs. ZooKeeper writes one at its first start.
    raise SourceFileError(f"{files} holds no snapshot of a ZooKeeper server", _REMEDY)


def read_lifetimes(folder: Path, log_folder: Path | None = None) -> dict[str, tuple[int, int]]:
    """Return {path: (czxid, lifetime)} of the containers and TTL nodes, also of a server that runs."""
    found: dict[str, tuple[int, int]] = {}
    for path, node in read_tree(folder, log_folder).nodes.items():
        lifetime = lifetime_of_owner(node.owner)
        if lifetime:
            found[path or "/"] = (node.czxid, lifetime)
    return found


def _files_of(folder: Path) -> Path:
    """Return the folder that has the files themselves."""
    return folder / VERSION_FOLDER if (folder / VERSION_FOLDER).is_dir() else folder


def _numbered(folder: Path, kind: str) -> list[tuple[int, Path]]:
    """Return the files of a kind, by the zxid in their names."""
    found: list[tuple[int, Path]] = []
    try:
        for path in folder.iterdir():
            name, _, rest = path.name.partition(".")
            digits = rest.partition(".")[0]
            if name == kind and digits and all(each in "0123456789abcdef" for each in digits):
                found.append((int(digits, 16), path))
    except OSError as error:
        raise SourceFileError(f"{folder} cannot be read: {error.strerror}", _REMEDY) from error
    return sorted(found)


def _replay(tree: FileTree, logs: list[tuple[int, Path]]) -> None:
    """Apply what the logs have beyond the tree; nothing may be missing in between."""
    # The first log that matters is the last one that begins at or before the next transaction.
    begin = max((number for number, (zxid, _) in enumerate(logs) if zxid <= tree.zxid + 1), default=0)
    for _, path in logs[begin:]:
        for each in read_log(path):
            if each.zxid <= tree.zxid:
                continue
            if not _follows(tree.zxid, each.zxid):
                problem = f"{path}: transaction 0x{each.zxid:x} does not follow 0x{tree.zxid:x}"
                raise SourceFileError(f"{problem}, logs are missing or damaged", _REMEDY)
            _apply(tree, each, path)
            tree.zxid = each.zxid


def _follows(zxid: int, following: int) -> bool:
    """Tell whether a transaction can come next: its number is one more, or the first of a later epoch."""
    return following == zxid + 1 or (following >> 32 > zxid >> 32 and following & 0xFFFFFFFF == 1)


def _apply(tree: FileTree, transaction: LoggedTransaction, path: Path) -> None:
    try:
        apply(tree, transaction)
    except ValueError as error:
        problem = f"{path}: transaction 0x{transaction.zxid:x} cannot be read: {error}"
        raise SourceFileError(problem, _REMEDY) from error


class FileSource:
    """What the files of a stopped server hold."""

    def __init__(self, folder: Path, log_folder: Path | None) -> None:
        """Read them all.

        Raises:
            SourceFileError: as `read_tree`.
        """
        self._tree = read_tree(folder, log_folder)

    @property
    def zxid(self) -> int:
        """The last transaction."""
        return self._tree.zxid

    async def walk(self) -> AsyncIterator[NodeFound]:
        """Yield every node, parents before their children; /zookeeper is left out."""
        for found in found_in(self._tree):
            yield found


def found_in(tree: FileTree) -> Iterable[NodeFound]:
    """Yield the nodes of a tree, parents before their children, without /zookeeper."""
    for path in sorted(tree.nodes):
        if is_left_out(path):
            continue
        node = tree.nodes[path]
        lifetime = lifetime_of_owner(node.owner)
        owner = node.owner if lifetime is None else 0
        numbers = _numbers(node)
        imported = ImportedNode(path or "/", node.data, node.acl, numbers, lifetime or UNLIMITED)
        yield NodeFound(imported, (), owner)


def _numbers(node: FileNode) -> ImportedNumbers:
    creates = node.creates & 0xFFFFFFFF
    pzxid = max(node.pzxid, node.czxid) if creates else node.czxid
    times = (node.ctime_ms, node.mtime_ms)
    return ImportedNumbers(node.czxid, node.mzxid, pzxid, *times, node.version, node.aversion, creates)
