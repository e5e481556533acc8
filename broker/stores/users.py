"""What Kafka's users prove themselves by, as the quorum holds it, kept current by a watch.

A credential that cannot be read stays as it was. A change goes through the znode's version and leaves the
other settings of the user alone. Whoever reads these znodes may try passwords, so each becomes the brokers'
own as soon as it is seen. Soft state only.
Source: kafka.zk.ZkAdminManager (Kafka 3.9); KIP-554.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.stores.following import FollowedNodes
from quorum.client import Client, ClientError
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import CONFIG_USERS
from quorum.metadata.protection import keep_user, keep_users
from quorum.metadata.rewriting import rewrite
from quorum.metadata.trust import Trust
from quorum.metadata.user_records import (
    Mechanism,
    ScramCredential,
    UserRecord,
    credentials_of,
    user_at,
    user_path,
)

log = logging.getLogger("quorate.broker.access")

Credentials = Mapping[Mechanism, ScramCredential]
_NONE: Final[Credentials] = MappingProxyType({})


class UserStore:
    """The credentials of all users."""

    def __init__(self) -> None:
        """Hold nothing yet; `attach` reads."""
        self._trust: Trust | None = None
        self._keeper: asyncio.Task[None] | None = None
        #: Paths that others may have written.
        self._unkept: dict[str, None] = {}
        self._users: dict[str, Credentials] = {}
        self._nodes = FollowedNodes(
            "users", listed=_listed, follows=lambda path: user_at(path) is not None, take=self._take
        )

    @property
    def users(self) -> Mapping[str, Credentials]:
        """{user: credentials}, of those that have any."""
        return self._users

    def credentials_of(self, user: str) -> Credentials:
        """Return what is kept of a user."""
        return self._users.get(user, _NONE)

    async def attach(self, client: Client, trust: Trust) -> None:
        """Follow the users through a new session: make them the brokers' own, watch, then read everything."""
        self._trust = trust
        await keep_users(client, trust, is_protected=bool(client.default_acl))
        await self._nodes.attach(client, CONFIG_USERS)

    async def reload(self) -> None:
        """Read all users, as after a connection that may have missed events."""
        await self._nodes.reload()

    async def alter(self, user: str, changes: Mapping[Mechanism, ScramCredential | None]) -> None:
        """Set credentials of a user, and remove those that are None.

        Raises:
            MetadataDecodeError: the present value is malformed. Definite.
            ContendedError: others change it all the time. Definite.
        """
        path = user_path(user)

        def change(data: bytes | None) -> bytes:
            settings = {} if data is None else dict(UserRecord.decode(path, data).settings)
            for mechanism, credential in changes.items():
                settings.pop(mechanism.text, None)
                if credential is not None:
                    settings[mechanism.text] = credential.encode()
            return UserRecord(settings).encode()

        assert self._trust is not None, "attached before use"
        acl = self._trust.own_access()
        self._nodes.note(path, await rewrite(self._nodes.client, path, change, f"user {user}", acl))

    def _take(self, path: str, data: bytes | None) -> None:
        user = user_at(path)
        assert user is not None, "only users are followed"
        try:
            settings = {} if data is None else UserRecord.decode(path, data).settings
            credentials = credentials_of(path, settings)
        except MetadataDecodeError as error:
            log.warning("a user is left as it was: %s", error.message)
            return
        if data is not None:
            self._keep(path)
        self._users.pop(user, None)
        if credentials:
            self._users[user] = credentials

    def _keep(self, path: str) -> None:
        self._unkept[path] = None
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.ensure_future(self._keep_all())

    async def _keep_all(self) -> None:
        try:
            while self._unkept and self._trust is not None:
                await keep_user(self._nodes.client, self._trust, self._unkept.popitem()[0])
        except ClientError as error:
            # The next session does it.
            log.info("a user is not the brokers' own yet: %s", error.message)


async def _listed(client: Client) -> list[str]:
    paths = [f"{CONFIG_USERS}/{name}" for name in await client.get_children(CONFIG_USERS)]
    return [path for path in paths if user_at(path) is not None]
