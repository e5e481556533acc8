"""One session of a broker with the quorum: its client, its registration, and what works through both.

All of it begins and ends together. The candidates end with the session, others lead what this broker led, and
the next session has a new generation.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [1.1], [1.2].
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from broker.config.broker import BrokerConfig
from broker.core.transactions.deciding import TransactionOptions
from broker.groups.coordinator import Coordinator, coordinator_of, group_options
from broker.groups.lag import LagSampler
from broker.groups.term import clock_ms
from broker.groups.transactions import TransactionGround
from broker.lifecycle.listening import Advertised
from broker.lifecycle.parts import BrokerParts
from broker.lifecycle.registration import SHORTENED_MAX, broker_record
from controller.core.options import ControllerOptions
from controller.election.store import register_broker
from controller.runtime.controller import Controller
from quorum.client import Client, ClientState
from quorum.config.logins import FileLogin
from quorum.errors import QuorateError
from quorum.metadata.numbers import BrokerGeneration
from quorum.platform.tasks import TaskSet
from quorum.platform.tls import MakeContext

log = logging.getLogger("quorate.broker")

#: How long the end of a session waits for the quorum's word, so that the controller acts at once.
CLOSE_DEADLINE_S: Final = 3.0


class Registration(NamedTuple):
    """What a broker has while it is registered."""

    generation: BrokerGeneration
    #: The candidate for controller.
    controller: Controller
    #: The candidate for coordinator of groups.
    coordinator: Coordinator
    #: How far groups lag, while it is the coordinator.
    lag: LagSampler
    parts: BrokerParts


class BrokerSession:
    """One session, from the attempt to connect to its end."""

    def __init__(
        self,
        config: BrokerConfig,
        hosts: str,
        on_failure: Callable[[BaseException], None],
        tls: MakeContext | None,
        sasl: FileLogin | None,
    ) -> None:
        """Make a client that is not started.

        Args:
            config: of the broker.
            hosts: of the quorum.
            on_failure: called with a defect in one of the tasks.
            tls: makes the context of each connection; None: plain.
            sasl: what is proved to the quorum; None: nothing.
        """
        timeout_ms = config.broker.session_timeout_ms
        self.client = Client(hosts, session_timeout_ms=timeout_ms, tls=tls, sasl=sasl)
        self.registration: Registration | None = None
        #: Set when another session must follow this one.
        self.lost = asyncio.Event()
        self._tasks = TaskSet(on_failure)

    async def register(self, parts: BrokerParts, addresses: Advertised) -> None:
        """Register the broker, and compete for controller and coordinator.

        Args:
            parts: attached to this session's client.
            addresses: what clients, brokers and people dial.
        """
        config, client, replicas = parts.config, self.client, parts.replicas.control
        self.lost.clear()
        client.add_listener(partial(self._state_changed, parts))
        shortened = replicas.shortened()
        if sum(map(len, shortened.values())) > SHORTENED_MAX:
            parts.directory.forget_shortened(config.broker.id, parts.cluster_id)
            shortened = {}
        record = broker_record(
            *addresses,
            rack=config.broker.rack,
            incarnation=parts.directory.incarnation,
            timestamp_ms=time.time_ns() // 1_000_000,
            reads_queue=parts.queue is not None,
            shortened=shortened,
        )
        if parts.queue is not None:
            await parts.queue.watch(client)
        generation = await register_broker(client, config.broker.id, record, parts.trust)
        self.registration = _registration(client, generation, parts)
        parts.producer_ids.attach(client)
        replicas.attach(client, generation)
        coordinator = self.registration.coordinator
        parts.replicas.verifier.attach(lambda: coordinator.holder_id)
        if parts.queue is not None:
            self._tasks.spawn(parts.queue.run(client, generation))
        log.info("broker %d registered with generation %d", config.broker.id, generation)
        self._tasks.spawn(self.registration.controller.run())
        self._tasks.spawn(self.registration.coordinator.run())
        self._tasks.spawn(self.registration.lag.run())
        if client.state in (ClientState.LOST, ClientState.CLOSED):
            self.lost.set()

    async def end(self, *, keep_session: bool = False) -> None:
        """End the candidates, the leaderships and the client; may be called again.

        Args:
            keep_session: leave the session to its timeout, as after SIGKILL.
        """
        registration, self.registration = self.registration, None
        if keep_session:
            await self.client.close(keep_session=True)
        if registration is not None:
            registration.parts.replicas.control.detach()
            await registration.coordinator.stop()
            await registration.controller.stop()
        await self._tasks.stop()
        if keep_session:
            return
        # Where no server confirms the end in time, the session ends by its timeout.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self.client.close()

    def _state_changed(self, parts: BrokerParts, state: ClientState) -> None:
        if state is ClientState.LOST:
            self.lost.set()
        elif state is ClientState.CONNECTED:
            self._tasks.spawn(self._reload(parts))

    async def _reload(self, parts: BrokerParts) -> None:
        """Read the settings again: events of the time without a connection are not delivered."""
        try:
            await parts.reload()
        except QuorateError as error:
            if self.client.state is ClientState.CONNECTED:
                log.warning("broker %d could not read settings: %s", parts.config.broker.id, error.message)


def _registration(client: Client, generation: BrokerGeneration, parts: BrokerParts) -> Registration:
    config = parts.config
    broker, broker_id = config.broker, config.broker.id
    check_ms = broker.leader_imbalance_check_interval_ms if broker.auto_leader_rebalance_enable else None
    options = ControllerOptions(
        control_request_timeout_ms=broker.control_request_timeout_ms,
        channel=broker.channel,
        default_num_partitions=broker.num_partitions,
        default_replication_factor=broker.default_replication_factor,
        segment_bytes_min=config.limits.segment_bytes_min,
        partitions_max=config.limits.partitions_max,
        leader_imbalance_check_interval_ms=check_ms,
        leader_imbalance_per_broker_percentage=broker.leader_imbalance_per_broker_percentage,
    )
    controller = Controller(
        client,
        broker_id,
        options=options,
        secrets=parts.secrets,
        cluster_id=parts.cluster_id,
        default_settings=config.topics,
        dial=config.dial,
        tls=parts.tls,
        recordings=parts.recordings,
    )
    section = config.transactions
    transactions = TransactionOptions(
        section.transaction_max_timeout_ms, section.transactional_id_expiration_ms
    )
    ground = TransactionGround(transactions, parts.producer_ids.next, parts.replicas.fetchers.connect)
    coordinator = coordinator_of(
        client, broker_id, group_options(config.groups), parts.view, parts.trust, ground
    )
    lag = LagSampler(
        lambda: None if coordinator.term is None else coordinator.term.machine.slots(),
        *(parts.view, ground.connect, clock_ms),
    )
    return Registration(generation, controller, coordinator, lag, parts)
