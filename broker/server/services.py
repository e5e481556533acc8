"""The parts of one broker, as the handlers of requests use them.

Source: ARCHITECTURE.md, "Code map".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.config.broker import BrokerConfig
from broker.core.access.lists import AccessLists
from broker.core.cluster_view import ClusterView
from broker.core.quotas.clients import ClientQuotas
from broker.groups.coordinator import Coordinator
from broker.replication.parts import ReplicaParts
from broker.stores.access import AccessStore
from broker.stores.producer_ids import ProducerIds
from broker.stores.quotas import QuotaStore
from broker.stores.settings import SettingsStore
from broker.stores.users import UserStore
from controller.runtime.controller import Controller
from quorum.metadata.broker_settings import BrokerSettings
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.addresses import Addresses
from quorum.platform.audit import AuditLog


class Authorizer(NamedTuple):
    """The access lists: what decides by them, and what changes them."""

    lists: AccessLists
    store: AccessStore


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of one broker."""

    broker_id: int
    cluster_id: str
    config: BrokerConfig
    view: ClusterView
    replicas: ReplicaParts
    topic_configs: SettingsStore[TopicSettings]
    broker_configs: SettingsStore[BrokerSettings]
    producer_ids: ProducerIds
    #: Returns the controller candidate of the present session; None without a session.
    controller: Callable[[], Controller | None]
    #: Returns the candidate for coordinator of the present session; None without a session.
    groups: Callable[[], Coordinator | None] = lambda: None
    #: What principals may do; None: everything.
    authorizer: Authorizer | None = None
    #: Who may prove what they are.
    users: UserStore = field(default_factory=UserStore)
    #: Where administrative requests and denials are noted; None: nowhere.
    audit: AuditLog | None = None
    #: How much clients may do: what limits them, and what changes that.
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    quota_store: QuotaStore = field(default_factory=QuotaStore)
    #: How many connections the listeners of clients have of each address.
    addresses: Addresses = field(default_factory=Addresses)

    def active_controller(self) -> Controller | None:
        """Return the controller, if it is this broker's candidate."""
        candidate = self.controller()
        return candidate if candidate is not None and candidate.active else None
