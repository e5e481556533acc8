"""The replacement of the peer secret in the quorum: what is derived from the former one follows the next.

Brokers that run with both secrets prove both, sign with the first and create for holders of the first alone.
Once all of them have the next one first, nothing new hangs on the former. Then one pass renames the former
one's holder in every access list of the brokers' tree, and the check value, written last, says that this is
done: until then no broker starts or goes on without the former secret. A pass that was interrupted is made
again, and changes only what is left. Registrations are signed anew by the brokers that own them, when
their file changes.

Hard state: access lists and the check value. Source: ARCHITECTURE.md, "Life of a broker failure".
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from quorum.client import AccessEntry, BadVersionError, Client, NoAuthError, NoNodeError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataDecodeError
from quorum.metadata.reading import read_node
from quorum.metadata.trust import EVERYTHING, Trust, names_holders

#: Requests under way at a time: others have their turns between them.
CHUNK: Final = 100
ROUNDS_MAX: Final = 8


class Behind(NamedTuple):
    """Registered brokers that do not sign with the first secret."""

    #: that sign with another one of these
    former: tuple[int, ...]
    #: that sign with none of these: strangers, or brokers that never got one of them
    unknown: tuple[int, ...]


class Rewritten(NamedTuple):
    """What a pass did.

    Attributes:
        seen, changed: znodes looked at, and those whose access list was rewritten.
        foreign: paths that other holders protect, and that keep their lists.
    """

    seen: int
    changed: int
    foreign: tuple[str, ...]


def encode_check_value(trust: Trust) -> bytes:
    """Return the value of /cluster/peer_secret_check: it is of the first secret."""
    value = {"version": 1, "check": trust.check_values[0], "holder": trust.holders[0]}
    return json.dumps(value, separators=(",", ":")).encode()


def check_value(data: bytes | None) -> str:
    """Return the check value that /cluster/peer_secret_check holds.

    Raises:
        MetadataDecodeError: it holds none.
    """
    try:
        return str(json.loads(data or b"")["check"])
    except (ValueError, TypeError, KeyError):
        raise MetadataDecodeError(
            paths.PEER_CHECK_VALUE, "check", "something else", "a check value"
        ) from None


async def brokers_access(client: Client) -> list[AccessEntry] | None:
    """Return the access list of what is the brokers' own, for who has not their secret; None without one."""
    node = await read_node(client, paths.PEER_CHECK_VALUE)
    try:
        holder = None if node is None else json.loads(node.data or b"")["holder"]
    except (ValueError, TypeError, KeyError):
        return None
    entry = AccessEntry(EVERYTHING, "digest", str(holder))
    return [entry] if names_holders(entry) else None


async def brokers_behind(client: Client, trust: Trust) -> Behind:
    """Return the registered brokers that have not the first secret first, by rising id."""
    former: list[int] = []
    unknown: list[int] = []
    try:
        names = await client.get_children(paths.BROKER_IDS)
    except NoNodeError:
        names = []
    for broker_id in sorted(int(name) for name in names if name.isascii() and name.isdecimal()):
        path = paths.broker_id_path(broker_id)
        node = await read_node(client, path)
        signer = None if node is None else trust.signer(path, node.data, node.stat.ephemeral_owner)
        if node is not None and signer != 0:
            (unknown if signer is None else former).append(broker_id)
    return Behind(tuple(former), tuple(unknown))


async def rewrite_access(client: Client, trust: Trust) -> Rewritten:
    """Put the first secret in the place of every other one in the access lists of the brokers' tree.

    Args:
        client: has proved every secret.
        trust: of the secrets.

    Raises:
        ConnectionLossError: do it again.
    """
    seen = changed = 0
    foreign: list[str] = []
    level: Sequence[str] = paths.TREE_ROOTS
    while level:
        below: list[str] = []
        for start in range(0, len(level), CHUNK):
            chunk = level[start : start + CHUNK]
            visited = await asyncio.gather(*(_rewrite_one(client, trust, path) for path in chunk))
            for path, found in zip(chunk, visited, strict=True):
                if found is not None:
                    seen += 1
                    changed += found.changed
                    foreign += [path] if found.foreign else []
                    below += [f"{path}/{name}" for name in found.names]
        level = below
    return Rewritten(seen, changed, tuple(foreign))


async def write_check_value(client: Client, trust: Trust) -> bool:
    """Let the first secret be the cluster's; returns whether it was another one."""
    node = await read_node(client, paths.PEER_CHECK_VALUE)
    if node is None or check_value(node.data) == trust.check_values[0]:
        return False
    await client.set(paths.PEER_CHECK_VALUE, encode_check_value(trust), node.stat.version)
    return True


class _Visited(NamedTuple):
    names: Sequence[str]
    changed: bool = False
    foreign: bool = False


async def _rewrite_one(client: Client, trust: Trust, path: str) -> _Visited | None:
    """Rewrite the access list of a node and return the names below it; None if it is gone."""
    for _ in range(ROUNDS_MAX):
        try:
            access, stat = await client.get_acl(path)
            wanted = trust.as_of_first(access)
            if wanted != access:
                await client.set_acl(path, wanted, stat.aversion)
            theirs = any(names_holders(each) and each.identity not in trust.holders for each in access)
            return _Visited(await client.get_children(path), wanted != access, theirs)
        except BadVersionError:
            continue  # somebody has set it meanwhile
        except NoNodeError:
            return None
        except NoAuthError:
            return _Visited((), foreign=True)
    raise ContendedError(f"the access list of {path}", ROUNDS_MAX)
