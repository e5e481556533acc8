"""The access lists as the quorum holds them, kept current by watches.

Decides nothing about a principal (broker.core.access does). Every broker follows the lists themselves, so a
change counts whoever writes it, with or without Kafka's notifications. A list that cannot be read stays as it
was; one that was never read denies everything. A change goes through the znode's version.
Source: kafka.security.authorizer.AclAuthorizer, kafka.zk.ZkAclStore (Kafka 3.9).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from broker.stores.following import FollowedNodes
from quorum.client import BadVersionError, Client, NodeExistsError, NoNodeError
from quorum.metadata.acl_records import (
    EVERYBODY,
    WILDCARD,
    AclEntry,
    AclRecord,
    Operation,
    Pattern,
    Permission,
    folders,
)
from quorum.metadata.errors import ContendedError, MetadataDecodeError
from quorum.metadata.paths import KAFKA_ACL, KAFKA_ACL_EXTENDED
from quorum.metadata.reading import read_node
from quorum.metadata.rewriting import ROUNDS_MAX

log = logging.getLogger("quorate.broker.access")

_NOBODY: Final = frozenset({AclEntry(EVERYBODY, WILDCARD, Operation.ALL, Permission.DENY)})
_Entries = frozenset[AclEntry]


class AccessStore:
    """All access lists of the cluster."""

    def __init__(self, on_change: Callable[[Pattern, frozenset[AclEntry]], None]) -> None:
        """Hold nothing yet; `attach` reads.

        Args:
            on_change: called with a pattern and its list, which may be empty.
        """
        self._on_change = on_change
        #: Patterns whose lists were read.
        self._known: set[Pattern] = set()
        self._nodes = FollowedNodes(
            "access lists",
            listed=_listed,
            follows=lambda path: Pattern.at(path) is not None,
            take=self._take,
        )

    async def attach(self, client: Client) -> None:
        """Follow the lists through a new session: watch, then read everything."""
        for path in folders():
            with contextlib.suppress(NodeExistsError):
                await client.create(path, b"")
        await self._nodes.attach(client, KAFKA_ACL, KAFKA_ACL_EXTENDED)

    async def reload(self) -> None:
        """Read all lists, as after a connection that may have missed events."""
        await self._nodes.reload()

    async def alter(self, pattern: Pattern, change: Callable[[_Entries], _Entries]) -> None:
        """Replace the list of a pattern by what becomes of the present one.

        Raises:
            MetadataDecodeError: the present list is malformed. Definite.
            ContendedError: others change it all the time. Definite.
        """
        client, path = self._nodes.client, pattern.path
        for _ in range(ROUNDS_MAX):
            node = await read_node(client, path)
            before = frozenset[AclEntry]() if node is None else AclRecord.decode(path, node.data).entries
            after = change(before)
            data = AclRecord(after).encode() if after else None
            try:
                if data is None and node is not None:
                    await client.delete(path, node.stat.version)
                elif data is not None and node is None:
                    await client.create(path, data)
                elif data is not None and node is not None and after != before:
                    await client.set(path, data, node.stat.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
            self._nodes.note(path, data)
            return
        raise ContendedError(f"the access list at {path}", ROUNDS_MAX)

    def _take(self, path: str, data: bytes | None) -> None:
        pattern = Pattern.at(path)
        assert pattern is not None, "only lists are followed"
        try:
            entries = frozenset[AclEntry]() if data is None else AclRecord.decode(path, data).entries
        except MetadataDecodeError as error:
            log.warning("an access list is left as it was: %s", error.message)
            if pattern not in self._known:
                self._on_change(pattern, _NOBODY)
            return
        self._known.add(pattern)
        self._on_change(pattern, entries)


async def _listed(client: Client) -> list[str]:
    paths = [f"{folder}/{name}" for folder in folders() for name in await client.get_children(folder)]
    return [path for path in paths if Pattern.at(path) is not None]
