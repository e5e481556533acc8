"""The parts of one broker that live from its first session to its stop.

Hard state is the data directory; all else is soft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from broker.config.broker import BrokerConfig
from broker.core.access.lists import AccessLists
from broker.core.cluster_view import ClusterView
from broker.core.quotas.clients import ClientQuotas
from broker.datadir.directory import LogDirectory, open_in_thread
from broker.lifecycle.state_queue import StateQueue
from broker.replication.outcomes import ReplicationOptions
from broker.replication.parts import ReplicaParts
from broker.replication.settings import apply_broker_settings, apply_topic_settings
from broker.server.services import Authorizer
from broker.stores.access import AccessStore
from broker.stores.producer_ids import ProducerIds
from broker.stores.quotas import QuotaStore
from broker.stores.settings import SettingsStore, broker_configs, topic_configs
from broker.stores.users import UserStore
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata.broker_settings import CONNECTIONS_MAX, BrokerSettings
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust
from quorum.platform.addresses import Addresses
from quorum.platform.recording import Recordings
from quorum.platform.tls import MakeContext

#: A shorter silence of a disk is a stall, whatever the session's timeout.
DISK_HANG_MS_MIN: Final = 2000.0


class BrokerParts(NamedTuple):
    """What a broker keeps over its sessions."""

    config: BrokerConfig
    #: peer secrets; the first one is used, all are accepted
    secrets: Sequence[str]
    #: makes the context of each connection with a broker listener; None: they are plain
    tls: MakeContext | None
    cluster_id: str
    trust: Trust
    view: ClusterView
    directory: LogDirectory
    replicas: ReplicaParts
    configs: SettingsStore[TopicSettings]
    own_configs: SettingsStore[BrokerSettings]
    producer_ids: ProducerIds
    #: None: every principal may do everything
    authorizer: Authorizer | None
    users: UserStore
    quotas: ClientQuotas
    quota_store: QuotaStore
    #: connections of clients, by address
    addresses: Addresses
    #: None where requests come directly.
    queue: StateQueue | None
    #: of what its machines decide, where they are wanted
    recordings: Recordings | None

    async def attach(self, client: Client) -> None:
        """Follow the settings through a new session."""
        await self.configs.attach(client)
        await self.own_configs.attach(client)
        if self.authorizer is not None:
            await self.authorizer.store.attach(client)
        await self.users.attach(client, self.trust)
        await self.quota_store.attach(client, self.trust)

    async def reload(self) -> None:
        """Read the settings again, as after a connection that may have missed events."""
        await self.configs.reload()
        await self.own_configs.reload()
        if self.authorizer is not None:
            await self.authorizer.store.reload()
        await self.users.reload()
        await self.quota_store.reload()

    async def close(self, *, clean: bool) -> None:
        """Stop the replicas and leave the data directory; not clean: as after SIGKILL."""
        await self.replicas.stop(clean=clean)
        await self.directory.leave(clean=clean, hang_ms=_disk_hang_ms(self.config))
        if self.recordings is not None:
            self.recordings.close()


async def open_parts(
    config: BrokerConfig,
    secrets: Sequence[str],
    tls: MakeContext | None,
    cluster_id: str,
    view: ClusterView,
    *,
    on_failure: Callable[[QuorateError], None],
    register_again: Callable[[], None],
) -> BrokerParts:
    """Open the data directory, in a thread, and put the parts together.

    Args: as of BrokerParts, and
        on_failure: called when the broker must stop.
        register_again: called when another session must follow.
    """

    def settings_changed(topic: str) -> None:
        apply_topic_settings(replicas.registry, topic)

    def own_changed(name: str) -> None:
        apply_broker_settings(replicas, own_configs.settings_of(name))
        addresses.connections_max = own_configs.settings_of(name).connections_per_address_max

    quotas, defaults = ClientQuotas(), _dynamic_settings(config)
    addresses = Addresses(defaults.connections_per_address_max)
    broker_id, trust = config.broker.id, Trust(secrets, cluster_id)
    configs = topic_configs(config.topics, settings_changed, config.limits.segment_bytes_min)
    opens = partial(LogDirectory.open, config.broker.data_dir, settings_of=configs.settings_of)
    opens = partial(opens, broker_id=broker_id, cluster_id=cluster_id)
    directory = await open_in_thread(partial(opens, open_files_max=config.limits.open_files_max))
    producer_ids = ProducerIds(broker_id)
    recordings = None if config.broker.record_dir is None else Recordings(config.broker.record_dir)
    replicas = ReplicaParts.build(
        broker_id,
        directory,
        view,
        options=_replication_options(config),
        secrets=secrets,
        cluster_id=cluster_id,
        dial=config.dial,
        tls=tls,
        settings_of=configs.settings_of,
        recordings=recordings,
        producer_ids=producer_ids,
        on_storage_error=on_failure,
        register_again=register_again,
    )
    own_configs = broker_configs(broker_id, defaults, own_changed)
    queue = StateQueue(broker_id, replicas.control.apply, trust) if config.broker.channel == "queue" else None
    return BrokerParts(
        config=config,
        secrets=secrets,
        tls=tls,
        cluster_id=cluster_id,
        trust=trust,
        view=view,
        directory=directory,
        replicas=replicas,
        configs=configs,
        own_configs=own_configs,
        recordings=recordings,
        producer_ids=producer_ids,
        authorizer=_authorizer(config),
        users=UserStore(),
        quotas=quotas,
        quota_store=QuotaStore(quotas.set_quotas),
        addresses=addresses,
        queue=queue,
    )


def _dynamic_settings(config: BrokerConfig) -> BrokerSettings:
    """Return what broker.toml says of the settings that change while a broker runs."""
    return BrokerSettings(
        verifies_transactions=config.transactions.transaction_partition_verification_enable,
        connections_per_address_max=config.limits.connections_per_address_max or CONNECTIONS_MAX,
    )


def _replication_options(config: BrokerConfig) -> ReplicationOptions:
    return ReplicationOptions(
        replica_lag_time_max_ms=config.broker.replica_lag_time_max_ms,
        disk_hang_ms=_disk_hang_ms(config),
        max_incremental_fetch_session_cache_slots=config.limits.max_incremental_fetch_session_cache_slots,
        verifies_transactions=config.transactions.transaction_partition_verification_enable,
        log_cleaner_backoff_ms=config.cleaner.log_cleaner_backoff_ms,
        log_cleaner_dedupe_buffer_size=config.cleaner.log_cleaner_dedupe_buffer_size,
        log_cleaner_io_max_bytes_per_second=config.cleaner.log_cleaner_io_max_bytes_per_second,
    )


def _authorizer(config: BrokerConfig) -> Authorizer | None:
    security = config.security
    if not security.authorizer_class_name:
        return None
    everyone = security.allow_everyone_if_no_acl_found
    lists = AccessLists(security.super_users, everyone_if_none=everyone)
    return Authorizer(lists, AccessStore(lists.replace))


def _disk_hang_ms(config: BrokerConfig) -> float:
    """A third of the session: what the broker led is led by others before the session would have ended."""
    return max(config.broker.session_timeout_ms / 3, DISK_HANG_MS_MIN)
