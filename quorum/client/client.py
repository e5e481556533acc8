"""The asyncio client: one session at a quorum of Quorate's or at a ZooKeeper, and the operations on its
nodes.

All methods belong to the event loop in which the client was made. Calls may be pipelined: start many
(asyncio.gather, a task group) and they leave in order, many in one packet, at most requests_max at a time.
What order holds between replies, events and failures is in session.py.
Source: ZooKeeper programmer's guide.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Self

from quorum.client import bulk, lookups, requests
from quorum.client.hosts import parse_hosts
from quorum.client.lookups import AccessEntry, ReadOutcome
from quorum.client.ranges import INT32_MAX, int64, whole
from quorum.client.requests import ANY_VERSION, CreateMode, OperationResult, Transaction
from quorum.client.sasl import Login
from quorum.client.session import ClientSession
from quorum.client.token import NO_SESSION, SessionToken
from quorum.client.watches import WatchCallback, WatchType
from quorum.wire.jute import Stat

DEFAULT_SESSION_TIMEOUT_MS: Final = 10_000
DEFAULT_REQUESTS_MAX: Final = 1_000
#: What an untuned ZooKeeper accepts (jute.maxbuffer).
DEFAULT_REQUEST_BYTES_MAX: Final = 0xFFFFF


class Client(ClientSession):
    """A session and its operations; an async context manager that starts and closes it.

    Every operation may raise ConnectionLossError (indefinite, unless it says that it was never sent),
    SessionExpiredError, ClientClosedError, and InvalidArgumentError or RequestTooLargeError for what no
    request can carry, besides what its own Raises names; all are ClientErrors with .definite and .retriable.
    While no server is connected, calls wait; put asyncio.timeout around them to wait less.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        requests_max: int = DEFAULT_REQUESTS_MAX,
        request_bytes_max: int = DEFAULT_REQUEST_BYTES_MAX,
        rng: random.Random | None = None,
        resume: SessionToken = NO_SESSION,
        tls: Callable[[], ssl.SSLContext] | None = None,
        sasl: Login | None = None,
    ) -> None:
        """Prepare a client inside a running event loop; start() connects.

        Args:
            hosts: servers, "host:port,host:port"; a random one is tried first.
            session_timeout_ms: wish; the servers clamp it to their own limits.
            requests_max: requests on the wire at a time; further calls wait.
            request_bytes_max: largest request; larger ones are refused here, because servers close the
                connection on them.
            rng: source of the order of servers and of the spread of delays.
            resume: a session to take over instead of a new one.
            tls: makes the context of each connection; None: plain.
            sasl: proved on each connection by DIGEST-MD5, before anything is asked; None: nobody.

        Raises:
            ValueError: hosts is malformed.
            InvalidArgumentError: a number, of the session to resume as well, is out of its range; a
                ValueError too.
        """
        whole("Client", "", "session_timeout_ms", session_timeout_ms, 1, INT32_MAX)
        whole("Client", "", "requests_max", requests_max, 1, None)
        whole("Client", "", "request_bytes_max", request_bytes_max, 1, None)
        int64("Client", "", "resume.session_id", resume.session_id)
        int64("Client", "", "resume.last_zxid", resume.last_zxid)
        self._default_acl: Sequence[AccessEntry] | None = None
        self._acl: requests.Acl | None = None
        super().__init__(
            parse_hosts(hosts),
            session_timeout_ms=session_timeout_ms,
            requests_max=requests_max,
            request_bytes_max=request_bytes_max,
            rng=rng if rng is not None else random.Random(),  # noqa: S311 - spreads load, keeps no secret
            resume=resume,
            tls=tls,
            sasl=sasl,
        )

    @property
    def default_acl(self) -> Sequence[AccessEntry] | None:
        """Access list of what this client creates from now on; None: everybody may do everything."""
        return self._default_acl

    @default_acl.setter
    def default_acl(self, acl: Sequence[AccessEntry] | None) -> None:
        self._acl = None if acl is None else lookups.acl_entries("default_acl", "", acl)
        self._default_acl = acl

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close."""
        await self.close()

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        *,
        acl: Sequence[AccessEntry] | None = None,
    ) -> str:
        """Create a node and return its path, with the sequence suffix of a sequential one; acl: its own.

        Raises:
            NodeExistsError: the node exists.
            NoNodeError: its parent does not.
            NoChildrenForEphemeralsError: its parent is ephemeral.
        """
        own = self._acl if acl is None else lookups.acl_entries("acl", path, acl)
        return await self.call(requests.create(path, data, mode, own))

    async def create2(
        self, path: str, data: bytes | None = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> tuple[str, Stat]:
        """Create a node and return its path and Stat; fails as create does."""
        return await self.call(requests.create2(path, data, mode, self._acl))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node.

        Raises:
            NoNodeError: there is none.
            BadVersionError: it has another version.
            NotEmptyError: it has children.
        """
        await self.call(requests.delete(path, version))

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return the Stat of a node or None; a watch waits for creation, change or deletion."""
        return await self.call(requests.exists(path, watch))

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes | None, Stat]:
        """Return the data (None is null) and Stat of a node; a watch waits for change or deletion.

        Raises:
            NoNodeError: there is none; no watch is left.
        """
        return await self.call(requests.get(path, watch))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data of a node and return its Stat.

        Raises:
            NoNodeError: there is none.
            BadVersionError: it has another version.
        """
        return await self.call(requests.set_data(path, data, version))

    async def get_children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """Return the names of a node's children, in the server's order; a watch waits for one more or less,
        or deletion.

        Raises:
            NoNodeError: there is no such node; no watch is left.
        """
        return await self.call(requests.get_children(path, watch))

    async def get_children2(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        """Return the names of a node's children and its Stat; otherwise as get_children."""
        return await self.call(requests.get_children2(path, watch))

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        """Run all operations of a transaction, or none; returns one result per operation.

        Raises:
            MultiFailedError: one of them failed; it says which and why. Nothing took effect.
        """
        return await self.call(requests.multi(transaction, self._acl))

    async def sync(self, path: str = "/") -> str:
        """Wait until the server has applied everything that was committed before, and return the path."""
        return await self.call(requests.sync(path))

    async def create_container(self, path: str, data: bytes | None = b"") -> tuple[str, Stat]:
        """Create a node that the servers delete once it had children and has none; fails as create does."""
        return await self.call(lookups.create_container(path, data, self._acl))

    async def create_ttl(
        self, path: str, data: bytes | None, ttl_ms: int, *, sequential: bool = False
    ) -> tuple[str, Stat]:
        """Create a node that the servers delete once its data is older than ttl_ms and it has no children.

        Raises:
            BadArgumentsError: ttl_ms is not from 1 to 2^40 - 1. Otherwise fails as create does.
        """
        request = lookups.create_ttl(path, data, ttl_ms, sequential=sequential, acl=self._acl)
        return await self.call(request)

    async def get_acl(self, path: str) -> tuple[list[AccessEntry], Stat]:
        """Return the access list of a node, without digests unless this client may change it, and its Stat.

        Raises:
            NoNodeError: there is no such node.
            NoAuthError: this client may neither read nor administer it.
        """
        return await self.call(lookups.get_acl(path))

    async def set_acl(self, path: str, acl: Sequence[AccessEntry], aversion: int = ANY_VERSION) -> Stat:
        """Replace the access list of a node and return its Stat.

        Raises:
            InvalidAclError: the list is empty, or an entry is invalid.
            NoNodeError: there is no such node.
            NoAuthError: this client may not administer it.
            BadVersionError: its access list has another version.
        """
        return await self.call(lookups.set_acl(path, acl, aversion))

    async def add_watch(self, path: str, watch: WatchCallback, *, recursive: bool = False) -> None:
        """Watch a node, which need not exist, until the watch is removed or the session ends.

        It tells of creation, change, deletion and children of the node; a recursive one of creation, change
        and deletion of the node and of all below it. It lives on when the client reconnects, but what
        happened in between stays unknown: read again after SUSPENDED and CONNECTED.
        """
        await self.call(lookups.add_watch(path, watch, recursive=recursive))

    async def remove_watches(self, path: str, watch_type: WatchType = WatchType.ANY) -> None:
        """Remove this client's watches of a path; each callback gets an event ..._WATCH_REMOVED.

        Raises:
            NoWatchError: there is none of this type.
        """
        await self.call(lookups.remove_watches(path, watch_type))

    async def get_ephemerals(self, prefix: str = "/") -> list[str]:
        """Return the paths of this session's ephemerals that begin with a prefix, in any order."""
        return await self.call(lookups.get_ephemerals(prefix))

    async def count_descendants(self, path: str) -> int:
        """Return how many nodes stand below a node.

        Raises:
            NoNodeError: there is no such node.
        """
        return await self.call(lookups.count_descendants(path))

    async def who_am_i(self) -> list[tuple[str, str]]:
        """Return what the server takes this client for: (scheme, user name) in any order."""
        return await self.call(lookups.who_am_i())

    async def read_all(self, paths: Sequence[str]) -> list[ReadOutcome]:
        """Read any number of nodes; a node that cannot be read has its error in the result.

        As few requests as their number and sizes allow. What one request reads, up to 1,000 nodes and 32 MiB,
        is of one moment; more may be of several.
        """
        return await bulk.read_all(self, paths)
