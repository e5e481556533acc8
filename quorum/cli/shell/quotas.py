"""The shell's setquota, listquota and delquota: quotas as ZooKeeper's own shell keeps them.

A quota is the pair of nodes `/zookeeper/quota<path>/zookeeper_limits` and `…/zookeeper_stats`; the server
writes the second. As ZooKeeper's shell, and not the server, this refuses a quota above or below another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from quorum.client import Client, NodeExistsError, NoNodeError, NotEmptyError, Transaction
from quorum.errors import UsageError

ROOT: Final = "/zookeeper/quota"
#: {option of the shell: what the text of a limits node calls it}, in the order of that text
LIMITS: Final = {"n": "count", "b": "bytes", "B": "byteHardLimit", "N": "countHardLimit"}
#: nodes below which setquota looks for other quotas
LOOKED_AT_MAX: Final = 10_000

_NONE: Final = -1


def read(text: bytes | None) -> dict[str, int]:
    """Return {name: number} of a limits or stats node; what is no number is left out."""
    pairs = (text or b"").decode("utf-8", "replace").replace(";", ",").split(",")
    found = {}
    for pair in pairs:
        name, _, number = pair.rstrip("=").partition("=")
        if number.removeprefix("-").isdecimal():
            found[name] = int(number)
    return found


def write(limits: Mapping[str, int]) -> bytes:
    """Return the text of a limits node; also ZooKeeper before 3.7 reads count and bytes of it."""
    count, size, *hard = (f"{name}={limits.get(name, _NONE)}" for name in LIMITS.values())
    return ";".join((f"{count},{size}=", *hard)).encode()


async def set_quota(client: Client, path: str, limits: Mapping[str, int]) -> dict[str, int]:
    """Set some limits and keep the others; returns all of them.

    Raises:
        NoNodeError: there is no such node.
        UsageError: a quota is not possible there.
    """
    if path == "/" or (path + "/").startswith("/zookeeper/"):
        raise UsageError(f"setquota {path}: ZooKeeper keeps no quota there", "name a node of your own")
    if await client.exists(path) is None:
        raise NoNodeError(NoNodeError.code, path)
    await _refuse_nested(client, path)
    holder = f"{ROOT}{path}"
    try:
        known, stat = await client.get(f"{holder}/zookeeper_limits")
    except NoNodeError:
        end = len(ROOT)
        while end < len(holder):
            end = (holder + "/").find("/", end + 1)
            try:
                await client.create(holder[:end])
            except NodeExistsError:
                continue
        wanted = dict.fromkeys(LIMITS.values(), _NONE) | dict(limits)
        if await client.exists(f"{holder}/zookeeper_stats") is not None:
            await client.delete(f"{holder}/zookeeper_stats")
        creation = Transaction().create(f"{holder}/zookeeper_limits", write(wanted))
        await client.multi(creation.create(f"{holder}/zookeeper_stats", b"count=0,bytes=0"))
        return wanted
    wanted = dict.fromkeys(LIMITS.values(), _NONE) | read(known) | dict(limits)
    await client.set(f"{holder}/zookeeper_limits", write(wanted), stat.version)
    return wanted


async def list_quota(client: Client, path: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return (limits, what is used).

    Raises:
        NoNodeError: there is no quota.
    """
    holder = ROOT + path.rstrip("/")
    limits, _ = await client.get(f"{holder}/zookeeper_limits")
    used, _ = await client.get(f"{holder}/zookeeper_stats")
    return dict.fromkeys(LIMITS.values(), _NONE) | read(limits), read(used)


async def delete_quota(client: Client, path: str, names: Collection[str]) -> None:
    """Take some limits away, or without names the whole quota.

    Raises:
        NoNodeError: there is no quota.
    """
    holder = ROOT + path.rstrip("/")
    known, stat = await client.get(f"{holder}/zookeeper_limits")
    if names:
        wanted = read(known) | dict.fromkeys(names, _NONE)
        await client.set(f"{holder}/zookeeper_limits", write(wanted), stat.version)
        return
    await client.delete(f"{holder}/zookeeper_limits")
    try:
        await client.delete(f"{holder}/zookeeper_stats")
        while holder != ROOT:
            await client.delete(holder)
            holder = holder.rpartition("/")[0]
    except (NotEmptyError, NoNodeError):
        # What is above holds other quotas, or somebody else tidies up.
        return


async def _refuse_nested(client: Client, path: str) -> None:
    """Refuse a path that has a quota above or below it."""
    above = path.rpartition("/")[0]
    while above:
        if await client.exists(f"{ROOT}{above}/zookeeper_limits") is not None:
            raise UsageError(f"setquota {path}: {above} has a quota", f"change that one: setquota {above}")
        above = above.rpartition("/")[0]
    below = [f"{ROOT}{path}"]
    for node in below:
        try:
            names = await client.get_children(node)
        except NoNodeError:
            continue
        if node != below[0] and "zookeeper_limits" in names:
            other = node.removeprefix(ROOT)
            raise UsageError(f"setquota {path}: {other} has a quota", f"remove it first: delquota {other}")
        below += [f"{node}/{name}" for name in names]
        if len(below) > LOOKED_AT_MAX:
            raise UsageError(
                f"setquota {path}: more than {LOOKED_AT_MAX} nodes of quotas below it", "set quotas there"
            )
