"""The three ports of a broker: Kafka clients, brokers, HTTP.

Decides when each begins to serve. All are bound at once, so that their ports are known. HTTP is served at
once, brokers once there is something to answer with, clients from the first UpdateMetadata on.
Source: fact: librdkafka fails its queue on UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import asdict
from typing import NamedTuple

from broker.config.broker import BrokerConfig
from broker.core.cluster_view import ClusterView, UpdateMetadata
from broker.server.handlers import ApiHandlers
from broker.server.listener import Listener
from broker.server.services import BrokerServices
from broker.server.shedding import ListenerLimits
from controller.wire.scram import ScramServer
from quorum.admin.app import base_app
from quorum.admin.server import AdminServer
from quorum.admin.view import StatusView
from quorum.config.address import Address
from quorum.config.admin_port import read_admin_tokens
from quorum.platform.listening import bind


class BrokerSockets(NamedTuple):
    """Sockets that were bound before the broker starts; they pass to the broker."""

    client: socket.socket
    broker: socket.socket
    admin: socket.socket


class AnnouncedView(ClusterView):
    """A view of the cluster whose first content can be waited for."""

    def __init__(self) -> None:
        """Know nothing yet."""
        super().__init__()
        self.first = asyncio.Event()

    def apply(self, request: UpdateMetadata) -> None:
        """Take a request over; the first one wakes who waits."""
        super().apply(request)
        self.first.set()


class Listeners:
    """The ports of one broker."""

    def __init__(self, config: BrokerConfig, secrets: list[str], view: AnnouncedView) -> None:
        """Bind nothing yet.

        Args:
            config: addresses, limits and who may ask.
            secrets: peer secrets; any of them lets a peer in.
            view: wakes the client listener.
        """
        self._config = config
        self._limits = ListenerLimits(**asdict(config.limits))
        self._secrets = secrets
        self._view = view
        self._sockets = contextlib.ExitStack()
        self._bound: BrokerSockets | None = None
        self._listeners: list[Listener] = []
        self._admin: AdminServer | None = None
        self._client_start: asyncio.Task[None] | None = None

    async def start_admin(self, view: StatusView, sockets: BrokerSockets | None = None) -> None:
        """Bind all three ports and serve HTTP.

        Args:
            view: what the HTTP port shows.
            sockets: bound sockets, in place of the configured addresses.
        """
        listen, security = self._config.listen, self._config.security
        bound = BrokerSockets(
            self._own(bind("listen.client", sockets.client if sockets else listen.client)),
            self._own(bind("listen.broker", sockets.broker if sockets else listen.broker)),
            self._own(bind("listen.admin", sockets.admin if sockets else listen.admin)),
        )
        self._bound = bound
        tokens = read_admin_tokens(security.admin_operate_token_file, security.admin_read_token_file)
        app = base_app(view, hosts=security.admin_hosts, tokens=tokens)
        self._admin = AdminServer(app, bound.admin)
        await self._admin.start()

    def start(self, services: BrokerServices) -> None:
        """Serve brokers, and clients later, with these services; after `start_admin`."""
        bound = self._bound
        assert bound is not None
        sasl = ScramServer(self._secrets, services.cluster_id)
        api = ApiHandlers(services, for_brokers=True)
        self._listeners.append(Listener(bound.broker, name="broker", api=api, sasl=sasl, limits=self._limits))
        self._client_start = asyncio.ensure_future(self._accept_clients(bound.client, services))

    def advertised(self) -> tuple[Address, Address, Address]:
        """Return what clients, brokers and people dial; only after `start_admin`."""
        assert self._bound is not None
        config = self._config
        client, broker, admin = (Address(*each.getsockname()[:2]) for each in self._bound)
        return (
            config.advertised_client() if config.advertised.client else client,
            config.advertised_broker() if config.advertised.broker else broker,
            admin,
        )

    def each(self) -> list[Listener]:
        """Return the listeners that serve: of brokers, and of clients once they are accepted."""
        return list(self._listeners)

    async def stop(self) -> None:
        """Close the ports and every connection."""
        if self._client_start is not None:
            self._client_start.cancel()
            await asyncio.wait([self._client_start])
        for listener in self._listeners:
            await listener.stop()
        if self._admin is not None:
            await self._admin.stop()
        self._sockets.close()

    async def _accept_clients(self, bound: socket.socket, services: BrokerServices) -> None:
        await self._view.first.wait()
        api = ApiHandlers(services, for_brokers=False)
        self._listeners.append(Listener(bound, name="client", api=api, limits=self._limits))

    def _own(self, bound: socket.socket) -> socket.socket:
        return self._sockets.enter_context(bound)
