"""Runs one parsed command over a client and emits its results in order.

Knows neither words nor text. Errors of the client pass through with a remedy that fits the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from quorum.cli.shell import quotas, render
from quorum.cli.shell.commands import (
    Command,
    Create,
    Delete,
    DelQuota,
    Get,
    Help,
    ListQuota,
    Ls,
    Quit,
    Set,
    SetQuota,
    ShowStat,
    Sync,
    Watch,
    help_text,
)
from quorum.client import (
    BadArgumentsError,
    BadVersionError,
    Client,
    CreateMode,
    EventType,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NoParentError,
    NotEmptyError,
    ServerError,
    SessionExpiredError,
    Stat,
    WatchStream,
)
from quorum.errors import UsageError

Emit = Callable[[render.Output], None]

#: Nodes that one recursive delete may remove; a larger subtree is deleted in parts.
DELETE_NODES_MAX: Final = 100_000

_MODES: Final = {
    (False, False): CreateMode.PERSISTENT,
    (True, False): CreateMode.EPHEMERAL,
    (False, True): CreateMode.PERSISTENT_SEQUENTIAL,
    (True, True): CreateMode.EPHEMERAL_SEQUENTIAL,
}


async def execute(client: Client, command: Command, emit: Emit) -> None:
    """Run a command; every result is emitted as soon as it is known."""
    try:
        await _execute(client, command, emit)
    except ServerError as error:
        error.remedy = error.remedy or remedy_for(error)
        raise


def remedy_for(error: ServerError) -> str:
    """Say what to type after an error; "" where nothing helps."""
    parent = error.path.rpartition("/")[0] or "/"
    match error:
        case NoParentError():
            return f"create {parent} first, or use create --parents"
        case NoNodeError() if error.path.startswith(quotas.ROOT):
            return f"set one: setquota -n NODES {parent.removeprefix(quotas.ROOT) or 'PATH'}"
        case NoNodeError():
            return f"see what is there: ls {parent}"
        case NodeExistsError():
            return f"change it with: set {error.path} DATA"
        case BadVersionError():
            return f"look at it again: stat {error.path}"
        case NotEmptyError():
            return "delete its children first, or use delete --recursive"
        case NoChildrenForEphemeralsError():
            return f"choose another parent than {parent}: it is ephemeral"
        case BadArgumentsError():
            return (
                "a path has no empty, '.' or '..' part and no control characters; the root cannot be changed"
            )
        case _:
            return ""


async def _execute(client: Client, command: Command, emit: Emit) -> None:
    match command:
        case Ls(path):
            emit(render.listing(path, await client.get_children(path)))
        case Get(path, with_stat):
            data, stat = await client.get(path)
            emit(render.content(path, data, stat, with_stat=with_stat))
        case Set(path, data, version):
            emit(render.written(path, await client.set(path, data, version)))
        case Create():
            emit(render.created(await _create(client, command)))
        case Delete(path, version, recursive):
            emit(render.deleted(path, await _delete(client, path, version, recursive)))
        case ShowStat(path):
            emit(render.described(path, await _stat(client, path)))
        case Watch():
            await _watch(client, command, emit)
        case Sync(path):
            emit(render.synced(await client.sync(path)))
        case SetQuota(path, limits):
            emit(render.limited(path, await quotas.set_quota(client, path, limits)))
        case ListQuota(path):
            emit(render.limited(path, *await quotas.list_quota(client, path)))
        case DelQuota(path, names):
            await quotas.delete_quota(client, path, names)
            emit(render.unlimited(path, names))
        case Help(topic):
            emit(render.explained(help_text(topic)))
        case Quit():
            return


async def _stat(client: Client, path: str) -> Stat:
    stat = await client.exists(path)
    if stat is None:
        raise NoNodeError(NoNodeError.code, path)
    return stat


async def _create(client: Client, command: Create) -> str:
    if command.parents:
        parts = command.path.strip("/").split("/")[:-1]
        for end in range(1, len(parts) + 1):
            try:
                await client.create("/" + "/".join(parts[:end]))
            except NodeExistsError:
                continue
    mode = _MODES[command.ephemeral, command.sequential]
    return await client.create(command.path, command.data, mode)


async def _delete(client: Client, path: str, version: int, recursive: bool) -> int:
    if not recursive:
        await client.delete(path, version)
        return 1
    if path in ("/", "/zookeeper"):
        raise UsageError(
            f"delete --recursive {path}: the system's own nodes stay", "name the nodes below it one by one"
        )
    nodes = [path]
    # Grows while it is walked: breadth first, so that reversed it has every child before its parent.
    for node in nodes:
        prefix = f"{node}/"
        nodes.extend(prefix + name for name in await client.get_children(node))
        if len(nodes) > DELETE_NODES_MAX:
            raise UsageError(
                f"delete --recursive {path}: more than {DELETE_NODES_MAX} nodes",
                "delete its children one by one",
            )
    # One connection keeps the order, so children go before their parents although nothing waits in between.
    await asyncio.gather(*(client.delete(node) for node in reversed(nodes[1:])))
    await client.delete(path, version)
    return len(nodes)


async def _watch(client: Client, command: Watch, emit: Emit) -> None:
    stream = WatchStream()
    stat = await client.exists(command.path, watch=stream)
    if command.with_children and stat is not None:
        await _watch_children(client, command.path, stream)
    emit(render.watching(command.path, stat))
    seen = 0
    async for event in stream:
        if event.event_type is EventType.NONE:
            raise SessionExpiredError(path=command.path)
        stat = await client.exists(command.path, watch=stream)
        if command.with_children and stat is not None:
            await _watch_children(client, command.path, stream)
        emit(render.changed(event, stat))
        seen += 1
        if command.events_max is not None and seen >= command.events_max:
            return


async def _watch_children(client: Client, path: str, stream: WatchStream) -> None:
    try:
        await client.get_children(path, watch=stream)
    except NoNodeError:
        # Deleted meanwhile: the watch of exists tells it.
        return
