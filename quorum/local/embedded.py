"""A quorum inside this process, for tests and experiments: real nodes, sockets on free ports, real files.

The ports are bound before the nodes start, so no other process can take them in between; the files stand in a
temporary folder that is removed at the end. Nothing global is patched, no signal is caught and no logger
configured: several ensembles may run at once, also with another use of pysyncobj. Everything goes away with
the context manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorum.admin.client import get_readiness
from quorum.config.node import NodeConfig, node_config
from quorum.errors import NodeStoppedError, UnreachableError, UsageError
from quorum.local.threads import in_thread
from quorum.node.node import NodeSockets, QuorumNode

HOST = "127.0.0.1"
NODES_MAX = 9
READY_DEADLINE_S = 30.0
POLL_S = 0.01
ANSWER_TIMEOUT_S = 5.0

Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A running quorum.

    Attributes:
        hosts: the client ports as a ZooKeeper client is given them, "127.0.0.1:40001,127.0.0.1:40002".
        admin_urls: the admin ports as "http://127.0.0.1:40003", in the same order.
    """

    hosts: str
    admin_urls: tuple[str, ...]


@contextlib.asynccontextmanager
async def ensemble(nodes: int = 3, settings: Settings | None = None) -> AsyncIterator[Ensemble]:
    """Run a quorum on the current event loop; it is ready when the body starts.

    Args:
        nodes: how many, 1 to NODES_MAX.
        settings: section → key → value of node.toml, the same for every node, as {"limits": {"tick_ms":
            500}}.

    Yields:
        Where it listens.

    Raises:
        UsageError: nodes is out of range.
        ConfigError: a setting is refused.
        NodeStoppedError: a node stopped itself, at the latest when the body ends; or it was not ready in
            time.

    Whatever ends it, all nodes have stopped and no task is left when it returns or raises; who cancels
    it waits for that.
    """
    if not 1 <= nodes <= NODES_MAX:
        raise UsageError(f"an ensemble of {nodes} nodes", f"ask for 1 to {NODES_MAX}")
    with tempfile.TemporaryDirectory(prefix="quorate-") as folder, contextlib.ExitStack() as sockets:
        bound = {node_id: _bind(sockets) for node_id in range(1, nodes + 1)}
        configs = _configs(Path(folder), bound, settings or {})
        running = [QuorumNode(config, bootstrap=True, sockets=bound[config.node.id]) for config in configs]
        urls = tuple(f"http://{config.listen.admin}" for config in configs)
        try:
            await _all_or_none([node.start() for node in running])
            await _all_or_none([_wait_ready(node, url) for node, url in zip(running, urls, strict=True)])
            yield Ensemble(",".join(str(config.listen.client) for config in configs), urls)
        finally:
            await _stop_all(running)
        _check_sound(running)


@contextlib.contextmanager
def ensemble_in_thread(nodes: int = 3, settings: Settings | None = None) -> Iterator[Ensemble]:
    """Run a quorum on an event loop in a thread of its own, for code that blocks (kazoo, a synchronous test).

    Args and errors are those of `ensemble`.

    Yields:
        Where it listens.
    """
    with in_thread(lambda: ensemble(nodes, settings), "quorate-ensemble") as (running, _):
        yield running


async def _all_or_none(beginnings: list[Coroutine[Any, Any, None]]) -> None:
    """Run everything at once; the first error ends the rest, and is raised when nothing runs any more."""
    tasks = [asyncio.ensure_future(each) for each in beginnings]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        # Their errors follow from the first, or from the cancellation, which are raised.
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stop_all(nodes: list[QuorumNode]) -> None:
    """Stop every node, also if one cannot stop or the caller is cancelled; what happened is raised then."""
    stopping = [asyncio.ensure_future(node.stop()) for node in nodes]
    cancellation: asyncio.CancelledError | None = None
    while not all(stop.done() for stop in stopping):
        try:
            # wait leaves the tasks alone when it is cancelled: a node half stopped keeps threads and sockets.
            await asyncio.wait(stopping)
        except asyncio.CancelledError as error:
            cancellation = error
    try:
        for stop in stopping:
            stop.result()
    finally:
        if cancellation is not None:
            raise cancellation


def _bind(sockets: contextlib.ExitStack) -> NodeSockets:
    """Bind three free ports of loopback."""
    bound = []
    for _ in range(3):
        each = sockets.enter_context(socket.socket())
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((HOST, 0))
        bound.append(each)
    client, peer, admin = bound
    return NodeSockets(client=client, peer=peer, admin=admin)


def _configs(folder: Path, bound: Mapping[int, NodeSockets], settings: Settings) -> list[NodeConfig]:
    secret = folder / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32))
    members = {str(node_id): _address(sockets.peer) for node_id, sockets in bound.items()}
    configs = []
    for node_id, sockets in bound.items():
        own: dict[str, dict[str, object]] = {
            "node": {"id": node_id, "cluster": "embedded", "data_dir": f"node-{node_id}"},
            "listen": {
                "client": _address(sockets.client),
                "peer": _address(sockets.peer),
                "admin": _address(sockets.admin),
            },
            "members": dict(members),
            "security": {"peer_secret_file": str(secret)},
        }
        sections = {name: {**settings.get(name, {}), **own.get(name, {})} for name in {**settings, **own}}
        configs.append(node_config(sections, folder))
    return configs


def _address(bound: socket.socket | None) -> str:
    assert bound is not None
    return f"{HOST}:{bound.getsockname()[1]}"


async def _wait_ready(node: QuorumNode, url: str) -> None:
    """Ask a node until it is ready, or has stopped itself."""
    reason = "it does not answer"
    try:
        async with asyncio.timeout(READY_DEADLINE_S):
            while node.failure is None:
                try:
                    ready, reason = await asyncio.to_thread(get_readiness, url, ANSWER_TIMEOUT_S)
                except UnreachableError as error:
                    ready, reason = False, error.message
                if ready:
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise NodeStoppedError(f"not ready within {READY_DEADLINE_S:g} s: {reason}") from None
    _check_sound([node])


def _check_sound(nodes: list[QuorumNode]) -> None:
    for node in nodes:
        if node.failure is not None:
            raise NodeStoppedError.of(node.config.node.id, node.failure)
