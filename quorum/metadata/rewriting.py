"""Values in the quorum that several brokers change: each change goes through the node's version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from quorum.client import AccessEntry, BadVersionError, Client, NodeExistsError, NoNodeError
from quorum.metadata.errors import ContendedError
from quorum.metadata.reading import read_node

ROUNDS_MAX: Final = 8


async def rewrite(
    client: Client,
    path: str,
    change: Callable[[bytes | None], bytes],
    what: str,
    acl: Sequence[AccessEntry] | None = None,
) -> bytes:
    """Replace the value of a node by what becomes of the present one; a missing node is created.

    Args:
        client: of the quorum.
        path: the node.
        change: present value, None without a node → new value.
        what: it is, for an error.
        acl: of a node that is created; None: the client's.

    Returns:
        The new value.
    """
    for _ in range(ROUNDS_MAX):
        node = await read_node(client, path)
        value = change(None if node is None else node.data)
        try:
            if node is None:
                await client.create(path, value, acl=acl)
            else:
                await client.set(path, value, node.stat.version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue
        return value
    raise ContendedError(what, ROUNDS_MAX)
