"""A live ZooKeeper as the source of an import: reads nodes as they are, and hears of changes by one watch.

A node is read by three requests of one session; where a write came between them they are repeated. What
changed is noted by path, within a bound; past it, or after a lost connection, everything is read again. Of
several servers any one serves, and another one when that dies: each connection, of a new session as well,
names the last zxid that was seen, and a server that is behind it refuses. A change of an access list fires
no watch, so only reading everything finds it. Nothing is written. Soft state only.

Source: ZooKeeper 3.9 programmer's guide (persistent recursive watches); ZooKeeper 3.9 DataTree (Stat).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, NamedTuple

from quorum.client import (
    AccessEntry,
    Client,
    ClientState,
    EventType,
    NoAuthError,
    NoNodeError,
    NoServerError,
    ServerError,
    SessionToken,
    Stat,
    WatchEvent,
)
from quorum.client.sasl import Login
from quorum.core.acl import CONTAINER, UNLIMITED
from quorum.core.importing import ImportedNode, ImportedNumbers, is_left_out
from quorum.importing.errors import ImportFailedError
from quorum.platform.tls import MakeContext

#: what ZooKeeper answers to an operation that it does not know
_UNIMPLEMENTED: Final = -6
SESSION_TIMEOUT_MS: Final = 30_000
#: changed paths that are kept; past it everything is read again
CHANGES_MAX: Final = 100_000
#: how long a source may be silent
PATIENCE_S: Final = 60.0
#: nodes that are read at once
READS_MAX: Final = 64
#: how often the reads of one node are repeated because it was written meanwhile
ATTEMPTS_MAX: Final = 20
_CONTAINER_OWNER: Final = -(1 << 63)
_TTL_MASK: Final = (1 << 40) - 1


class NodeFound(NamedTuple):
    """A node that was read."""

    node: ImportedNode
    #: names below it
    children: Sequence[str]
    #: the session that owns it; 0: it is no ephemeral
    owner: int


class Lifetimes(NamedTuple):
    """What a server's files say of containers and TTL nodes: {path: (czxid, lifetime)}."""

    known: Mapping[str, tuple[int, int]]

    def of(self, path: str, czxid: int) -> int:
        """Return the lifetime of a node."""
        found = self.known.get(path)
        return found[1] if found is not None and found[0] == czxid else UNLIMITED


def lifetime_of_owner(owner: int) -> int | None:
    """Return the lifetime that an ephemeralOwner means; None: it is a session.

    Source: ZooKeeper 3.9 EphemeralType and EphemeralTypeEmulate353 (extended types).
    """
    if not owner:
        return UNLIMITED
    if owner == _CONTAINER_OWNER:
        return CONTAINER
    if (owner >> 56) & 0xFF == 0xFF and (owner >> 40) & 0xFFFF == 0:
        return owner & _TTL_MASK
    return None


def numbers_of(stat: Stat) -> ImportedNumbers:
    """Return the numbers that a Stat of ZooKeeper's means."""
    creates = ((stat.cversion + stat.children_count) & 0xFFFFFFFF) >> 1
    pzxid = max(stat.pzxid, stat.czxid) if creates else stat.czxid
    times = (stat.ctime_ms, stat.mtime_ms)
    return ImportedNumbers(stat.czxid, stat.mzxid, pzxid, *times, stat.version, stat.aversion, creates)


class LiveSource:
    """A session at the source."""

    def __init__(
        self,
        hosts: str,
        credentials: Sequence[tuple[str, bytes]],
        tls: MakeContext | None = None,
        sasl: Login | None = None,
    ) -> None:
        """Prepare; `start` connects.

        Args:
            hosts: host:port,…
            credentials: (scheme, credential) of a super user, or of somebody who may read everything.
            tls, sasl: as of `Client`.
        """
        self.hosts = hosts
        self._credentials = credentials
        self._tls = tls
        self._sasl = sasl
        self._client: Client | None = None
        #: paths that changed and were not taken, in the order of their first change
        self._changed: dict[str, None] = {}
        #: whether changes were missed: everything must be read again
        self.missed = False
        #: the path of the last change, and when it was heard of by the loop's clock
        self.last_change = ""
        self.changed_s = 0.0
        #: set while something waits to be taken
        self.news = asyncio.Event()
        #: {path: lifetime}; None: no server's files were named
        self.lifetimes: Lifetimes | None = None

    @property
    def zxid(self) -> int:
        """The last transaction that this session has seen."""
        return 0 if self._client is None else self._client.session_token.last_zxid

    @property
    def behind(self) -> int:
        """Changes that were seen and not taken."""
        return len(self._changed)

    async def start(self) -> None:
        """Connect, prove, and arm the watch; after a lost session again.

        Raises:
            ImportFailedError: the source is too old.
            ClientError: it is not there, or believes no credential; there is no session then.
        """
        seen = SessionToken(0, bytes(16), self.zxid)
        await self.close()
        client = self._client = Client(
            self.hosts, session_timeout_ms=SESSION_TIMEOUT_MS, resume=seen, tls=self._tls, sasl=self._sasl
        )
        client.add_listener(self._state_changed)
        try:
            await client.start()
            await self._prove_and_watch(client)
        except BaseException:
            # A session without the watch must not serve.
            await client.close()
            raise
        # What changed before is not known.
        self.changed_s = asyncio.get_running_loop().time()

    async def _prove_and_watch(self, client: Client) -> None:
        for scheme, credential in self._credentials:
            await client.add_auth(scheme, credential)
        try:
            await client.add_watch("/", self._heard, recursive=True)
        except ServerError as error:
            if error.server_code != _UNIMPLEMENTED:
                raise
            problem = f"the source {self.hosts} is older than ZooKeeper 3.6: it knows no persistent watches"
            remedy = "update it first, or stop it and import its files: --from-files DIR --cutover"
            raise ImportFailedError(problem, remedy) from error

    async def close(self) -> None:
        """End the session."""
        if self._client is not None:
            await self._client.close()

    def _state_changed(self, state: ClientState) -> None:
        if state in (ClientState.SUSPENDED, ClientState.LOST):
            self._miss()

    def _miss(self) -> None:
        self._changed.clear()
        self.missed = True
        self.changed_s = asyncio.get_running_loop().time()
        self.news.set()

    def _heard(self, event: WatchEvent) -> None:
        if event.event_type is EventType.NONE or is_left_out(event.path):
            return
        self.last_change = event.path
        self.changed_s = asyncio.get_running_loop().time()
        self.note(event.path)
        if event.event_type in (EventType.NODE_CREATED, EventType.NODE_DELETED):
            self.note(event.path.rpartition("/")[0] or "/")
        if len(self._changed) > CHANGES_MAX:
            self._miss()

    def note(self, path: str) -> None:
        """Take a path for changed."""
        self._changed[path] = None
        self.news.set()

    def take_changes(self) -> list[str]:
        """Return the paths that changed, and forget them."""
        taken = list(self._changed)
        self._changed.clear()
        self.news.clear()
        return taken

    async def catch_up(self) -> None:
        """Wait until this server has everything that was committed before; its events come first."""
        assert self._client is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._client.sync("/")
        except TimeoutError as error:
            raise self._silent() from error

    def _silent(self) -> NoServerError:
        return NoServerError(
            f"the source {self.hosts} has not answered for {PATIENCE_S:g} s", "bring it back"
        )

    async def refresh(self) -> None:
        """Have a session: the one there is, or a new one if that was lost."""
        assert self._client is not None
        if self._client.state in (ClientState.LOST, ClientState.CLOSED):
            await self.start()

    async def read(self, path: str) -> NodeFound | None:
        """Read a node; None if it is not there.

        Raises:
            ImportFailedError: it may not be read as a whole.
        """
        assert self._client is not None
        client, found = self._client, None
        for _ in range(ATTEMPTS_MAX):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    (data, stat), (acl, acl_stat), (names, children_stat) = await asyncio.gather(
                        client.get(path), client.get_acl(path), client.get_children2(path)
                    )
            except TimeoutError as error:
                raise self._silent() from error
            except NoNodeError:
                return None
            except NoAuthError as error:
                raise unreadable(path, "may not be read by the importer") from error
            found = self._found(path, data, stat, acl, names)
            if stat == acl_stat == children_stat:
                return found
        # It is written all the time; the next change will be heard of.
        self.note(path)
        return found

    def _found(
        self, path: str, data: bytes | None, stat: Stat, acl: Sequence[AccessEntry], names: Sequence[str]
    ) -> NodeFound:
        if any(entry.scheme == "digest" and entry.identity.endswith(":x") for entry in acl):
            raise unreadable(path, "shows its access list to the importer without digests")
        lifetime = lifetime_of_owner(stat.ephemeral_owner)
        owner = stat.ephemeral_owner if lifetime is None else 0
        if self.lifetimes is not None:
            lifetime = self.lifetimes.of(path, stat.czxid)
        numbers = numbers_of(stat)
        entries = tuple((entry.permissions, entry.scheme, entry.identity) for entry in acl)
        return NodeFound(ImportedNode(path, data, entries, numbers, lifetime or UNLIMITED), names, owner)

    async def walk(self) -> AsyncIterator[NodeFound]:
        """Yield every node, parents before their children; /zookeeper is left out."""
        # The last ones first, so that depth comes before breadth and little waits.
        waiting = ["/"]
        while waiting:
            paths = waiting[-READS_MAX:]
            del waiting[-READS_MAX:]
            for found in await asyncio.gather(*map(self.read, paths)):
                if found is None:
                    continue
                prefix = "" if found.node.path == "/" else found.node.path
                below = [f"{prefix}/{name}" for name in found.children]
                waiting += [path for path in below if not is_left_out(path)]
                yield found


def unreadable(path: str, why: str) -> ImportFailedError:
    """Return the error of a node that cannot be copied as a whole."""
    remedy = "name a super user of the source with --from-auth FILE (a line digest:super:PASSWORD)"
    return ImportFailedError(f"{path} {why}", remedy)
