"""The ports of a broker: Kafka clients, plain and by other protocols, brokers, HTTP.

Decides when each begins to serve. All are bound at once, so that their ports are known. HTTP is served at
once, brokers once there is something to answer with, clients from the first UpdateMetadata on.
Source: fact: librdkafka fails its queue on UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from broker.config.broker import BrokerConfig
from broker.config.listeners import what_is_open
from broker.config.sasl import OAUTHBEARER, SASL_LISTENER, SASL_TLS_LISTENER
from broker.core.cluster_view import ClusterView, UpdateMetadata
from broker.server.handlers import ApiHandlers
from broker.server.listener import Listener
from broker.server.services import BrokerServices
from broker.server.shedding import ListenerLimits
from broker.server.users import UserProofs
from controller.core.brokers import CLIENT_LISTENER
from controller.wire.scram import ScramServer
from quorum.admin.app import AdminPort, base_app
from quorum.admin.server import AdminServer
from quorum.admin.view import StatusView
from quorum.config.address import Address, parse_member_address
from quorum.config.admin_port import admin_holders
from quorum.config.certificates import Certificates
from quorum.metadata.trust import Trust
from quorum.platform.audit import AuditLog
from quorum.platform.listening import bind

log = logging.getLogger("quorate.broker")


class BrokerSockets(NamedTuple):
    """Sockets that were bound before the broker starts; they pass to the broker, which binds the others."""

    client: socket.socket
    broker: socket.socket
    admin: socket.socket


class Advertised(NamedTuple):
    """What others dial.

    Attributes:
        clients: {listener: address}, the plain one first. broker: for the controller and followers.
        admin: URL of the HTTP port. is_broker_tls: whether the broker listener speaks TLS.
    """

    clients: Mapping[str, Address]
    broker: Address
    admin: str
    is_broker_tls: bool = False


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

    def __init__(
        self,
        config: BrokerConfig,
        secrets: Sequence[str],
        view: AnnouncedView,
        certificates: Certificates,
        audit: AuditLog | None = None,
    ) -> None:
        """Bind nothing yet.

        Args:
            config: addresses, limits and who may ask.
            secrets: peer secrets that count now; any of them lets a peer in.
            view: wakes the client listener.
            certificates: of the listeners that speak TLS. audit: where changes and refusals are noted.
        """
        self.certificates = certificates
        #: who may ask the HTTP port; None: everybody
        self.holders = admin_holders(config.security)
        #: where changes and refusals are noted; None: nowhere
        self.audit = audit
        self._config = config
        self._limits = ListenerLimits(**asdict(config.limits))
        self._secrets = secrets
        self._view = view
        self._sockets = contextlib.ExitStack()
        #: {listener: its socket}, of clients; the plain one first
        self._clients: dict[str, socket.socket] = {}
        self._broker: socket.socket | None = None
        self._admin_socket: socket.socket | None = None
        self._listeners: list[Listener] = []
        self._admin: AdminServer | None = None
        self._client_start: asyncio.Task[None] | None = None

    async def start_admin(self, view: StatusView, sockets: BrokerSockets | None = None) -> None:
        """Bind all ports and serve HTTP.

        Args:
            view: what the HTTP port shows.
            sockets: bound sockets, in place of the configured addresses.
        """
        listen, security = self._config.listen, self._config.security
        lists_decide = bool(security.authorizer_class_name) and not security.allow_everyone_if_no_acl_found
        if problem := what_is_open(listen.client, has_access_lists=lists_decide):
            log.warning("%s", problem)
        if listen.client is not None:
            plain = bind("listen.client", sockets.client if sockets else listen.client)
            self._clients[CLIENT_LISTENER] = self._own(plain)
        for name, address in listen.listeners:
            self._clients[name] = self._own(bind("listen.listeners", address))
        self._broker = self._own(bind("listen.broker", sockets.broker if sockets else listen.broker))
        admin = self._own(bind("listen.admin", sockets.admin if sockets else listen.admin))
        self._admin_socket = admin
        port = AdminPort(security.admin_hosts, self.holders, security.admin_behind_proxy, self.audit)
        app = base_app(view, port=port)
        self._admin = AdminServer(app, admin, self.certificates.port("admin"))
        await self._admin.start()

    def start(self, services: BrokerServices) -> None:
        """Serve brokers, and clients later, with these services; after `start_admin`."""
        assert self._broker is not None
        sasl = ScramServer(self._secrets, services.cluster_id)
        api = ApiHandlers(services, for_brokers=True)
        tls = self.certificates.port("broker")
        admits = None if tls is None else frozenset(self._config.security.super_users)
        rules = self._config.security.ssl_principal_mapping_rules
        listen = partial(Listener, self._broker, name="broker", api=api, limits=self._limits, rules=rules)
        self._listeners.append(listen(sasl=sasl, tls=tls, admits=admits, audit=self.audit))
        self._client_start = asyncio.ensure_future(self._accept_clients(services))

    def advertised(self) -> Advertised:
        """Return what clients, brokers and people dial; only after `start_admin`."""
        assert self._broker is not None
        assert self._admin_socket is not None
        given = self._config.advertised
        named = dict(given.listeners)
        if given.client:
            named[CLIENT_LISTENER] = parse_member_address(given.client)
        clients = {name: named.get(name) or _address_of(bound) for name, bound in self._clients.items()}
        broker = parse_member_address(given.broker) if given.broker else _address_of(self._broker)
        scheme = "https" if self._config.security.admin_ssl else "http"
        url = f"{scheme}://{_dialled(_address_of(self._admin_socket), broker.host)}"
        return Advertised(clients, broker, url, is_broker_tls="broker" in self.certificates)

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

    async def _accept_clients(self, services: BrokerServices) -> None:
        await self._view.first.wait()
        for name, bound in self._clients.items():
            api = ApiHandlers(services, for_brokers=False, listener=name)
            port = "client" if name == CLIENT_LISTENER else name.lower()
            listener = Listener(
                bound,
                name=port,
                api=api,
                sasl=self._user_proofs(name, services),
                limits=self._limits,
                tls=self.certificates.port(port),
                rules=self._config.security.ssl_principal_mapping_rules,
                addresses=services.addresses,
                reauth_ms=self._config.sasl.connections_max_reauth_ms,
                audit=self.audit,
            )
            self._listeners.append(listener)

    def _user_proofs(self, name: str, services: BrokerServices) -> UserProofs | None:
        if name not in (SASL_LISTENER, SASL_TLS_LISTENER):
            return None
        trust = Trust(self._secrets, services.cluster_id)
        sasl = self._config.sasl
        exchange = None
        if OAUTHBEARER in sasl.offered(name):
            from broker.server.tokens import TokenExchange, TokenProofs  # noqa: PLC0415 - needs an extra

            exchange = partial(TokenExchange, TokenProofs(sasl))
        return UserProofs(sasl.offered(name), services.users.credentials_of, trust.made_up, exchange)

    def _own(self, bound: socket.socket) -> socket.socket:
        return self._sockets.enter_context(bound)


def _address_of(bound: socket.socket) -> Address:
    return Address(*bound.getsockname()[:2])


def _dialled(listened: Address, host: str) -> Address:
    """Return where an address is dialled: all addresses of this machine are one port of its host."""
    try:
        return parse_member_address(str(listened))
    except ValueError:
        return Address(host, listened.port)
