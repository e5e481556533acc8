"""Znodes that a broker follows: read as a whole after every connection, and one by one after an event.

Soft state only. A node is taken whenever it may have changed; what it means is decided by its owner.
Source: ZooKeeper programmer's guide, "Watches" (persistent recursive watches).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from quorum.client import Client, ClientError, NoNodeError, ServerError, WatchEvent

log = logging.getLogger("quorate.broker.settings")


class FollowedNodes:
    """The values of some znodes, kept current by watches."""

    def __init__(
        self,
        what: str,
        *,
        listed: Callable[[Client], Awaitable[Iterable[str]]],
        follows: Callable[[str], bool],
        take: Callable[[str, bytes | None], None],
    ) -> None:
        """Follow nothing yet; `attach` reads.

        Args:
            what: the nodes hold, for a log line.
            listed: returns the paths of all nodes that exist.
            follows: whether a path is that of such a node.
            take: called with a path and its value, None without a node.
        """
        self._what = what
        self._listed = listed
        self._follows = follows
        self._take = take
        self._client: Client | None = None
        #: Paths with a value.
        self._present: set[str] = set()
        #: Paths to read (again), in the order in which they changed.
        self._dirty: dict[str, None] = {}
        self._reader: asyncio.Task[None] | None = None
        #: Held while nodes are read: what is read first is taken first.
        self._reading = asyncio.Lock()

    @property
    def client(self) -> Client:
        """The client of the present session."""
        assert self._client is not None, "attached before use"
        return self._client

    async def attach(self, client: Client, *watched: str, recursive: bool = True) -> None:
        """Follow the nodes through a new session: watch, then read everything."""
        self._client = client
        for path in watched:
            await client.add_watch(path, self._changed, recursive=recursive)
        await self.reload()

    async def reload(self) -> None:
        """Read all nodes, as after a connection that may have missed events."""
        self._dirty.update(dict.fromkeys((*await self._listed(self.client), *sorted(self._present))))
        await self._read_dirty()

    def note(self, path: str, data: bytes | None) -> None:
        """Take the value that this broker has just written, or read."""
        if data is None:
            self._present.discard(path)
        else:
            self._present.add(path)
        self._take(path, data)

    def _changed(self, event: WatchEvent) -> None:
        if not self._follows(event.path):
            return
        self._dirty[event.path] = None
        if self._reader is None or self._reader.done():
            self._reader = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        try:
            await self._read_dirty()
        except ClientError as error:
            # The next connection, or the next session, reads everything.
            log.info("%s were not read: %s", self._what, error.message)

    async def _read_dirty(self) -> None:
        async with self._reading:
            client = self._client
            while self._dirty and client is not None and client is self._client:
                paths, self._dirty = list(self._dirty), {}
                found = await client.read_all(paths)
                for path, outcome in zip(paths, found, strict=True):
                    if isinstance(outcome, NoNodeError):
                        self.note(path, None)
                    elif isinstance(outcome, ServerError):
                        log.warning("%s is left as it was: %s", path, outcome.message)
                    else:
                        self.note(path, outcome[0])
