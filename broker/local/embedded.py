"""Brokers inside this process, for tests and experiments: real ones, on free ports, with real files.

The ports are bound before the brokers start and stay theirs when a broker is started again; the files are
in a temporary folder that is removed at the end. Sessions are short, so that a broker that was killed
counts as dead within about a second. Nothing global is patched.
Source: quorum.local for the quorum below.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from broker.config.broker import broker_config
from broker.lifecycle.broker import Broker, stopped_error
from broker.lifecycle.listening import BrokerSockets
from quorum.errors import NodeStoppedError, UsageError
from quorum.local import ensemble, in_thread

HOST: Final = "127.0.0.1"
BROKERS_MAX: Final = 9
READY_DEADLINE_S: Final = 30.0
#: Sessions of the brokers, and the tick of the quorum that allows them.
SESSION_TIMEOUT_MS: Final = 1_000
TICK_MS: Final = 200
#: Of a controlled shutdown; sessions are short, too.
RETRY_BACKOFF_MS: Final = 500

Settings = Mapping[str, Mapping[str, object]]
T = TypeVar("T")


class EmbeddedBrokers:
    """Running brokers over a running quorum, on one event loop.

    Attributes:
        hosts: the quorum's client ports, "127.0.0.1:40001,…".
    """

    def __init__(self, hosts: str, folder: Path, count: int, settings: Settings) -> None:
        """Bind the ports; `start` starts a broker."""
        self.hosts = hosts
        self._folder = folder
        self._settings = settings
        self._sockets = {
            broker_id: BrokerSockets(_bind(), _bind(), _bind()) for broker_id in range(1, count + 1)
        }
        #: {broker id: its ports: client, broker, admin}
        self._ports = {
            broker_id: tuple(int(each.getsockname()[1]) for each in sockets)
            for broker_id, sockets in self._sockets.items()
        }
        self._running: dict[int, Broker] = {}
        self._secret = folder / "peer.secret"
        self._secret.touch(mode=0o600)
        self._secret.write_text(secrets.token_hex(32))

    @property
    def bootstrap(self) -> str:
        """Where Kafka clients connect, "127.0.0.1:40001,…"; every broker, also one that is stopped."""
        return ",".join(f"{HOST}:{client}" for client, _, _ in self._ports.values())

    @property
    def admin_urls(self) -> tuple[str, ...]:
        """The HTTP ports, by rising broker id."""
        return tuple(f"http://{HOST}:{admin}" for _, _, admin in self._ports.values())

    async def start(self, broker_id: int) -> None:
        """Start a broker that does not run; returns when it serves clients.

        Raises:
            UsageError: there is no such broker, or it runs.
            NodeStoppedError: it stopped itself, or was not ready in time.
        """
        if broker_id in self._running:
            raise UsageError(f"broker {broker_id} runs already", "stop it first")
        sockets = self._known(broker_id)
        broker = Broker(self._config(broker_id), sockets=sockets)
        try:
            async with asyncio.timeout(READY_DEADLINE_S):
                await broker.start()
                self._running[broker_id] = broker
                await broker.wait_ready()
        except TimeoutError as error:
            _, reason = broker.state.readiness()
            problem = f"broker {broker_id} was not ready within {READY_DEADLINE_S:.0f} s: {reason}"
            raise NodeStoppedError(problem, "see its log") from error

    async def start_all(self) -> None:
        """Start every broker at once.

        Raises:
            ConfigError: a setting is refused.
            NodeStoppedError: as for `start`; of several errors the first.
        """
        try:
            async with asyncio.TaskGroup() as starts:
                for broker_id in self._sockets:
                    starts.create_task(self.start(broker_id))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def stop(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does: its session ends at once.

        Raises:
            UsageError: it does not run.
            NodeStoppedError: it had stopped itself before.
        """
        broker = self._take(broker_id)
        await broker.stop()
        self._keep_ports(broker_id)
        if (error := stopped_error(broker)) is not None:
            raise error

    async def kill(self, broker_id: int) -> None:
        """Stop a broker as SIGKILL does: its session ends by its timeout, and nothing is closed cleanly.

        Raises:
            UsageError: it does not run.
        """
        await self._take(broker_id).kill()
        self._keep_ports(broker_id)

    async def close(self) -> None:
        """Stop every broker.

        Raises:
            NodeStoppedError: one had stopped itself before.
        """
        running = list(self._running)
        stops = [asyncio.ensure_future(self.stop(broker_id)) for broker_id in running]
        if stops:
            await asyncio.wait(stops)
        for sockets in self._sockets.values():
            for each in sockets:
                each.close()
        for stop in stops:
            stop.result()

    def _take(self, broker_id: int) -> Broker:
        self._known(broker_id)
        if broker_id not in self._running:
            raise UsageError(f"broker {broker_id} does not run", "start it first")
        return self._running.pop(broker_id)

    def _keep_ports(self, broker_id: int) -> None:
        """Bind the ports of a broker that has closed them: clients are refused, nobody else gets them."""
        self._sockets[broker_id] = BrokerSockets(*(_bind(port) for port in self._ports[broker_id]))

    def _known(self, broker_id: int) -> BrokerSockets:
        if broker_id not in self._sockets:
            known = ", ".join(map(str, self._sockets))
            raise UsageError(f"there is no broker {broker_id}", f"name one of {known}")
        return self._sockets[broker_id]

    def _config(self, broker_id: int) -> Any:
        client, broker, admin = self._ports[broker_id]
        own: dict[str, dict[str, object]] = {
            "broker": {
                "id": broker_id,
                "data_dir": f"broker-{broker_id}",
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "auto_create_topics": True,
                "controlled_shutdown_retry_backoff_ms": RETRY_BACKOFF_MS,
            },
            "listen": {
                "client": f"{HOST}:{client}",
                "broker": f"{HOST}:{broker}",
                "admin": f"{HOST}:{admin}",
            },
            "quorum": {"hosts": self.hosts.split(",")},
            "security": {"peer_secret_file": str(self._secret)},
            # Nobody waits for members that come late, as three seconds of every test would.
            "groups": {"group_initial_rebalance_delay_ms": 0},
        }
        given = self._settings
        sections = {name: {**own.get(name, {}), **given.get(name, {})} for name in {**own, **given}}
        return broker_config(sections, self._folder)


@contextlib.asynccontextmanager
async def brokers(
    count: int = 1, *, nodes: int = 1, settings: Settings | None = None
) -> AsyncIterator[EmbeddedBrokers]:
    """Run brokers and their quorum on the current event loop; they serve clients when the body starts.

    Args:
        count: how many brokers, 1 to BROKERS_MAX, with ids from 1.
        nodes: nodes of the quorum.
        settings: section → key → value of broker.toml, the same for every broker.

    Raises:
        UsageError: a number is out of range.
        ConfigError: a setting is refused.
        NodeStoppedError: a broker stopped itself, at the latest when the body ends.
    """
    if not 1 <= count <= BROKERS_MAX:
        raise UsageError(f"a cluster of {count} brokers", f"ask for 1 to {BROKERS_MAX}")
    quorum_settings = {"limits": {"tick_ms": TICK_MS}}
    with tempfile.TemporaryDirectory(prefix="quorate-") as folder:
        async with ensemble(nodes, quorum_settings) as quorum:
            running = EmbeddedBrokers(quorum.hosts, Path(folder), count, settings or {})
            try:
                await running.start_all()
                yield running
            finally:
                await running.close()


class BlockingBrokers:
    """Running brokers on an event loop of another thread, for code that blocks.

    Attributes:
        bootstrap, hosts, admin_urls: as those of EmbeddedBrokers.
    """

    def __init__(self, running: EmbeddedBrokers, loop: asyncio.AbstractEventLoop) -> None:
        """Forward calls to a loop."""
        self._running = running
        self._loop = loop
        self.bootstrap = running.bootstrap
        self.hosts = running.hosts
        self.admin_urls = running.admin_urls

    def start(self, broker_id: int) -> None:
        """Start a broker that does not run; as EmbeddedBrokers.start."""
        self._do(self._running.start(broker_id))

    def stop(self, broker_id: int) -> None:
        """Stop a broker as SIGTERM does; as EmbeddedBrokers.stop."""
        self._do(self._running.stop(broker_id))

    def kill(self, broker_id: int) -> None:
        """Stop a broker as SIGKILL does; as EmbeddedBrokers.kill."""
        self._do(self._running.kill(broker_id))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextlib.contextmanager
def brokers_in_thread(
    count: int = 1, *, nodes: int = 1, settings: Settings | None = None
) -> Iterator[BlockingBrokers]:
    """Run brokers and their quorum on an event loop in a thread of its own.

    Args and errors are those of `brokers`.
    """
    context = functools.partial(brokers, count, nodes=nodes, settings=settings)
    with in_thread(context, "quorate-brokers") as (running, loop):
        yield BlockingBrokers(running, loop)


def _bind(port: int = 0) -> socket.socket:
    """Bind a port of loopback, any free one for 0, without listening."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound
