"""The quotas of Kafka's clients, as the quorum holds them, kept current by watches.

Decides nothing about who is limited (broker.core.quotas does). A znode that cannot be read stays as it was. A
change goes through the znode's version and leaves a user's credentials alone. Soft state only.
Source: kafka.zk.AdminZkClient, ZkAdminManager (Kafka 3.9); KIP-546.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from broker.stores.following import FollowedNodes
from quorum.client import AccessEntry, Client, NodeExistsError, NoNodeError
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import CONFIG_CLIENTS, CONFIG_USERS
from quorum.metadata.quota_records import (
    QuotaEntity,
    QuotaKind,
    changed_quotas,
    clients_path,
    quota_entity_at,
    quota_parents,
    quota_path,
    read_quotas,
)
from quorum.metadata.rewriting import rewrite
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.broker.access")

#: Requests under way at a time.
_CHUNK = 500

Rates = Mapping[QuotaKind, float]


class QuotaStore:
    """The quotas of all users and clients."""

    def __init__(
        self, on_change: Callable[[QuotaEntity, Rates], None] = lambda _entity, _rates: None
    ) -> None:
        """Hold nothing yet; `attach` reads.

        Args:
            on_change: called with what holds for an entity now, and no longer what held before.
        """
        self._on_change = on_change
        self._trust: Trust | None = None
        self._quotas: dict[QuotaEntity, Rates] = {}
        self._nodes = FollowedNodes(
            "quotas", listed=_listed, follows=lambda path: quota_entity_at(path) is not None, take=self._take
        )

    @property
    def quotas(self) -> Mapping[QuotaEntity, Rates]:
        """{entity: its quotas}, of those that have any."""
        return self._quotas

    async def attach(self, client: Client, trust: Trust) -> None:
        """Follow the quotas through a new session: watch, then read everything; after the users."""
        self._trust = trust
        await _ensure(client, CONFIG_CLIENTS)
        await self._nodes.attach(client, CONFIG_CLIENTS, CONFIG_USERS)

    async def reload(self) -> None:
        """Read all quotas, as after a connection that may have missed events."""
        await self._nodes.reload()

    async def alter(self, entity: QuotaEntity, changes: Mapping[QuotaKind, str | None]) -> None:
        """Set quotas of an entity, and remove those that are None.

        Raises:
            MetadataDecodeError: the present value is malformed. Definite.
            ContendedError: others change it all the time. Definite.
        """
        assert self._trust is not None, "attached before use"
        client, path = self._nodes.client, quota_path(entity)
        # Not by what is followed here: another broker may just have set what is to be removed.
        if not any(changes.values()) and await client.exists(path) is None:
            return
        # What is a user's is the brokers' own to read, as its credentials are.
        acl = None if entity.user is None else self._trust.own_access()
        for parent in quota_parents(entity):
            await _ensure(client, parent, acl)
        data = await rewrite(
            client, path, lambda data: changed_quotas(path, data, changes), f"quotas at {path}", acl
        )
        self._nodes.note(path, data)

    def _take(self, path: str, data: bytes | None) -> None:
        entity = quota_entity_at(path)
        assert entity is not None, "only these nodes are followed"
        try:
            rates = {} if data is None else read_quotas(path, data)
        except MetadataDecodeError as error:
            log.warning("quotas are left as they were: %s", error.message)
            return
        if rates == self._quotas.get(entity, {}):
            return
        if rates:
            self._quotas[entity] = rates
        else:
            del self._quotas[entity]
        self._on_change(entity, rates)


async def _ensure(client: Client, path: str, acl: Sequence[AccessEntry] | None = None) -> None:
    if await client.exists(path) is None:
        with contextlib.suppress(NodeExistsError):
            await client.create(path, b"", acl=acl)


async def _listed(client: Client) -> list[str]:
    found = [f"{CONFIG_CLIENTS}/{name}" for name in await _children(client, CONFIG_CLIENTS)]
    users = await _children(client, CONFIG_USERS)
    found += [f"{CONFIG_USERS}/{name}" for name in users]
    for start in range(0, len(users), _CHUNK):
        folders = [clients_path(name) for name in users[start : start + _CHUNK]]
        for folder, names in zip(
            folders, await asyncio.gather(*(_children(client, each) for each in folders)), strict=True
        ):
            found += [f"{folder}/{name}" for name in names]
    return [path for path in found if quota_entity_at(path) is not None]


async def _children(client: Client, path: str) -> list[str]:
    try:
        return await client.get_children(path)
    except NoNodeError:
        return []
