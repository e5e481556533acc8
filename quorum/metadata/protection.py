"""Access lists of Kafka's tree: everybody may read it, and only holders of the peer secret may change it.

A tree is protected as a whole, and the access list of /cluster says so: it is set last, by the first broker
whose setting asks for it. What a broker creates later carries the list from the beginning. A tree that is
protected stays so, whatever a broker's setting says. The lists name the holders of one secret; where secrets
are replaced, brokers prove all of theirs, and `quorate secret rotate` rewrites the lists (rotation.py).

The root belongs to all users of the quorum, and its own list decides who may delete there. So nodes
below it that brokers must not lose get a child: nobody else can delete that, nor its parent then.
Hard state: the access lists.
Source: ZooKeeper programmer's guide (access control).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from quorum.client import AccessEntry, Client, NoAuthError, NodeExistsError, NoNodeError
from quorum.metadata import paths
from quorum.metadata.quota_records import clients_path
from quorum.metadata.trust import Trust, names_holders

#: Requests under way at a time.
CHUNK: Final = 500
#: READ, CREATE and DELETE
_LIST_ADD_DELETE: Final = 1 | 4 | 8

log = logging.getLogger("quorate.metadata")


async def prove_secrets(client: Client, trust: Trust) -> None:
    """Let a client change what is protected, on this connection and all later ones.

    Raises:
        AuthFailedError: the servers take no digests.
    """
    for credentials in trust.credentials:
        await client.add_auth("digest", credentials)


async def protect_znodes(client: Client, trust: Trust, *, wanted: bool) -> bool:
    """Protect the tree if that is wanted or was done before; call it before the client creates in the tree.

    Args:
        client: has proved its secrets.
        trust: of the secrets.
        wanted: whether a tree that is not protected shall be.

    Returns:
        Whether it is protected; what this client creates is from now on.

    Raises:
        NoAuthError: /cluster has an access list of somebody else.
        ConnectionLossError: repeat it.
    """
    access = trust.access()
    present, _ = await client.get_acl(paths.CLUSTER)
    is_protected = any(names_holders(each) for each in present)
    if not wanted and not is_protected:
        return False
    client.default_acl = access
    if not is_protected:
        covered = 0
        for root in paths.TREE_ROOTS:
            covered += await _cover(client, [root], access)
        await client.set_acl(paths.CLUSTER, access)
        log.info("only holders of the peer secret may change %d znodes of the brokers from now on", covered)
    return True


async def keep_users(client: Client, trust: Trust, *, is_protected: bool) -> None:
    """Let nobody but brokers read what is kept of users, passwords and quotas, whatever else is protected.

    There everybody may still list users, add one and delete one.
    """
    access = trust.own_access()
    of_all = [] if is_protected else [AccessEntry(_LIST_ADD_DELETE, "world", "anyone")]
    with contextlib.suppress(NodeExistsError):
        await client.create(paths.CONFIG_USERS, b"", acl=[*of_all, *access])
    if trust.as_of_first((await client.get_acl(paths.CONFIG_USERS))[0]) != [*of_all, *access]:
        await client.set_acl(paths.CONFIG_USERS, [*of_all, *access])
    for name in await client.get_children(paths.CONFIG_USERS):
        await keep_user(client, trust, f"{paths.CONFIG_USERS}/{name}")
        folder = clients_path(name)
        with contextlib.suppress(NoNodeError):
            for client_id in await client.get_children(folder):
                await keep_user(client, trust, f"{folder}/{client_id}")
            await keep_user(client, trust, folder)


async def keep_user(client: Client, trust: Trust, path: str) -> None:
    """Make a user's znode the brokers' own, whoever wrote it."""
    with contextlib.suppress(NoNodeError):
        present, _ = await client.get_acl(path)
        if trust.as_of_first(present) != trust.own_access():
            await client.set_acl(path, trust.own_access())


async def keep_node(client: Client, path: str) -> None:
    """Let nobody delete a persistent node below the root who may not change it."""
    try:
        await client.create(f"{path}/{paths.KEPT}")
    except (NodeExistsError, NoNodeError):
        return


async def _cover(client: Client, level: Sequence[str], access: Sequence[AccessEntry]) -> int:
    """Set the access list of nodes and of all below them, parents first; returns of how many."""
    covered = 0
    below: list[str] = []
    for start in range(0, len(level), CHUNK):
        found = await asyncio.gather(
            *(_cover_one(client, path, access) for path in level[start : start + CHUNK])
        )
        covered += sum(each is not None for each in found)
        below += [child for each in found if each is not None for child in each]
    return covered + (await _cover(client, below, access) if below else 0)


async def _cover_one(client: Client, path: str, access: Sequence[AccessEntry]) -> list[str] | None:
    """Set the access list of a node and return the paths below it; None if it is gone."""
    try:
        # The mark is set when all is done.
        if path != paths.CLUSTER:
            await client.set_acl(path, access)
        # Users are nobody's to read, and have a list of their own: keep_users.
        names = await client.get_children(path)
        return [f"{path}/{name}" for name in names if f"{path}/{name}" != paths.CONFIG_USERS]
    except NoNodeError:
        return None
    except NoAuthError:
        log.warning("%s has an access list of somebody else and keeps it", path)
        return []
