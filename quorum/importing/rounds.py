"""The rounds of an import: what of the source the target lacks is written, until both are the same.

Knows which znodes the target holds by their digests, so a round writes differences alone, and an import that
was killed goes on. Parents are set before their children, children deleted before their parents; what cannot
be placed yet waits for the change that is on its way. The cutover reads everything again, because no watch
tells of access lists. Soft state only.

Source: docs/operate/migrate.md.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from quorum.core.acl import CONTAINER
from quorum.core.importing import ImportedNode
from quorum.core.paths import is_keepable
from quorum.importing.errors import DifferenceError, ImportFailedError
from quorum.importing.source import READS_MAX, LiveSource, NodeFound
from quorum.importing.target import ImportTarget

#: changes of one step, and about how many bytes of data
STEP_CHANGES_MAX: Final = 1000
STEP_BYTES_MAX: Final = 1 << 20
#: of the data of one znode; ZooKeeper has 1 MB unless jute.maxbuffer was raised
NODE_BYTES_MAX: Final = 8 << 20
#: paths that a report of differences names
DIFFERENCES_MAX: Final = 100
_PER_CHANGE_BYTES: Final = 150


class WholeSource(Protocol):
    """What can be read as a whole."""

    @property
    def zxid(self) -> int:
        """The last transaction that was seen of it."""

    def walk(self) -> AsyncIterator[NodeFound]:
        """Yield every node, parents before their children."""


class ReadTotals(NamedTuple):
    """What one reading of everything found."""

    #: {path: digest}, without ephemerals
    digests: dict[str, str]
    data_bytes: int
    ephemerals: int
    containers: int
    ttl_nodes: int


def digest_of(digests: dict[str, str]) -> str:
    """Return the digest of a whole tree."""
    whole = blake2b(digest_size=16)
    for path in sorted(digests):
        whole.update(f"{path}\0{digests[path]}\n".encode())
    return whole.hexdigest()


class ImportRounds:
    """Brings a target in step with a source."""

    def __init__(self, source: WholeSource, target: ImportTarget) -> None:
        """Know nothing of the target yet."""
        self._source = source
        self._target = target
        #: {path: digest} of what the target holds, and {path: how many children it has there}
        self._held: dict[str, str] = {}
        self._children: Counter[str] = Counter()
        self._step: list[list[object]] = []
        self._step_bytes = 0
        #: the highest one of what was written
        self._copied_zxid = 0
        #: whether the target may be open
        self.opening = False

    @property
    def nodes(self) -> int:
        """How many znodes the target holds, but for the root."""
        return max(len(self._held) - 1, 0)

    async def begin(self) -> None:
        """Begin the import, or go on with it: see what the target holds."""
        self._held = await self._target.listing()
        self._children = Counter(_parent(path) for path in self._held if path != "/")

    async def copy_all(self) -> ReadTotals:
        """Read the source as a whole, and write what differs."""
        digests: dict[str, str] = {}
        data_bytes = ephemerals = containers = ttl_nodes = 0
        async for found in self._source.walk():
            if found.owner:
                ephemerals += 1
                continue
            node = found.node
            digest = digests[node.path] = node.digest().hex()
            data_bytes += len(node.data or b"")
            containers += node.lifetime == CONTAINER
            ttl_nodes += node.lifetime > 0
            if self._held.get(node.path) != digest and self._can_place(node.path):
                await self._set(node, digest)
        vanished = [path for path in self._held if path not in digests and path != "/"]
        for path in sorted(vanished, key=_depth, reverse=True):
            await self._delete(path)
        await self._flush()
        return ReadTotals(digests, data_bytes, ephemerals, containers, ttl_nodes)

    def _can_place(self, path: str) -> bool:
        return path == "/" or _parent(path) in self._held

    async def sync(self, source: LiveSource, paths: Iterable[str]) -> None:
        """Bring the znodes in step that changed."""
        waiting = sorted(set(paths), key=lambda path: (_depth(path), path))
        gone: list[str] = []
        for first in range(0, len(waiting), READS_MAX):
            part = waiting[first : first + READS_MAX]
            for path, found in zip(part, await asyncio.gather(*map(source.read, part)), strict=True):
                if found is None or found.owner:
                    gone.append(path)
                    continue
                digest = found.node.digest().hex()
                if self._held.get(path) == digest:
                    continue
                if self._can_place(path):
                    await self._set(found.node, digest)
                else:
                    source.note(_parent(path))
                    source.note(path)
        for path in reversed(gone):
            if self._children[path]:
                source.note(path)
            elif path in self._held:
                await self._delete(path)
        await self._flush()

    async def _set(self, node: ImportedNode, digest: str) -> None:
        path = node.path
        if not is_keepable(path):
            problem = f"{path!r} is longer or deeper than a path may be here"
            raise ImportFailedError(problem, "rename it at the source, and run the import again")
        if len(node.data or b"") > NODE_BYTES_MAX:
            problem = f"{path} has {len(node.data or b'')} bytes, at most {NODE_BYTES_MAX} can be imported"
            raise ImportFailedError(problem, "make it smaller at the source, and run the import again")
        if path != "/" and path not in self._held:
            self._children[_parent(path)] += 1
        self._held[path] = digest
        self._copied_zxid = max(self._copied_zxid, node.numbers.mzxid, node.numbers.pzxid)
        await self._add(node.change(), len(path) + len(node.data or b""))

    async def _delete(self, path: str) -> None:
        del self._held[path]
        self._children[_parent(path)] -= 1
        self._children.pop(path, None)
        await self._add([path], len(path))

    async def _add(self, change: list[object], size: int) -> None:
        if self._step and (len(self._step) >= STEP_CHANGES_MAX or self._step_bytes + size > STEP_BYTES_MAX):
            await self._flush()
        self._step.append(change)
        self._step_bytes += size + _PER_CHANGE_BYTES

    async def _flush(self) -> None:
        """Write what waits; above all zxids of the source, since what is copied keeps them."""
        if self._step:
            step, self._step, self._step_bytes = self._step, [], 0
            await self._target.write(max(self._source.zxid, self._copied_zxid), step)

    async def compare(self, totals: ReadTotals) -> dict[str, object]:
        """Compare the digests of both trees; returns the fields of the report about them.

        Raises:
            DifferenceError: they differ.
        """
        held = await self._target.listing()
        different = [
            path for path in sorted({*held, *totals.digests}) if held.get(path) != totals.digests.get(path)
        ]
        report: dict[str, object] = {
            "nodes": len(totals.digests) - 1,
            "bytes": totals.data_bytes,
            "ephemerals_left_out": totals.ephemerals,
            "digest_source": digest_of(totals.digests),
            "digest_target": digest_of(held),
        }
        if different:
            problem = f"source and target differ in {len(different)} znodes, the first is {different[0]}"
            remedy = "run the cutover again; the target stays closed to clients' writes"
            raise DifferenceError(problem, remedy, {**report, "differences": different[:DIFFERENCES_MAX]})
        return report

    async def open(self) -> tuple[int, int]:
        """Open the target to clients.

        Returns:
            The last zxid of the source, and the next one of the target.
        """
        source_zxid = max(self._source.zxid, self._copied_zxid)
        self.opening = True
        return source_zxid, await self._target.open(source_zxid) + 1


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
