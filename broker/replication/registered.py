"""The present registration of this broker, and the control requests that are for it.

Requests that come before a registration wait: only its generation tells a request for this life from one for
a former life. At the end of a quorum session this broker steps down everywhere.
Source: control-plane design, "Broker" (Registration), "Control requests"; seeds [0.B], [0.E].
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.core.replica_inputs import SessionBegun
from broker.log.errors import LogStorageError
from broker.replication.control import Control
from broker.replication.isr_writer import IsrWriter
from broker.replication.published_epoch import PublishedEpoch
from broker.replication.registry import Registry
from controller.messages.entities import (
    ControllerRequest,
    ControlResponse,
    UpdateMetadataRequest,
    refusal,
)
from controller.wire.codes import ErrorCode
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import LogEnd, topic_label


class Registered:
    """Takes control requests while this broker is registered."""

    def __init__(
        self,
        registry: Registry,
        control: Control,
        isr_writer: IsrWriter,
        published_epoch: PublishedEpoch,
        on_failure: Callable[[QuorateError], ErrorCode],
    ) -> None:
        """Take nothing before attach(); on_failure is called when the disk refuses."""
        self._registry = registry
        self._control = control
        self._isr_writer = isr_writer
        self._published_epoch = published_epoch
        self._on_failure = on_failure
        #: The shortened logs that the present registration names.
        self._named: frozenset[PartitionKey] = frozenset()
        self._attached = asyncio.Event()

    def shortened(self) -> dict[str, dict[int, LogEnd]]:
        """Return {topic id: {partition: where its log ends}} of the shortened logs, for a registration."""
        directory = self._registry.log_directory
        self._named = frozenset(directory.shortened)
        found: dict[str, dict[int, LogEnd]] = {}
        for key in directory.shortened:
            if (log := directory.logs.get(key)) is not None:
                ends = found.setdefault(topic_label(key.topic, log.topic_id), {})
                ends[key.partition] = LogEnd(log.latest_epoch, log.log_end_offset)
        return found

    def attach(self, client: Client, generation: BrokerGeneration) -> None:
        """Take up a new registration: ISRs change through this client, requests are for this generation."""
        registry = self._registry
        registry.begin_generation(generation)
        if not self._named.issuperset(registry.log_directory.shortened):
            # Damage was met after the registration was written: another one follows, which names it.
            registry.leave_generation()
        self._isr_writer.attach(client)
        self._published_epoch.attach(client)
        self._attached.set()
        for replica in registry.replicas.values():
            # A request for this generation came before the reply to the registration, and a change since.
            self._isr_writer.carry_out(replica, replica.step(SessionBegun()))

    def detach(self) -> None:
        """Note that the session is over: others lead now what this broker led."""
        self._attached.clear()
        self._isr_writer.attach(None)
        self._published_epoch.attach(None)
        self._registry.step_down()

    async def apply(self, request: ControllerRequest) -> ControlResponse:
        """Carry out a control request; one that comes before the registration waits, or is sent again."""
        if isinstance(request, UpdateMetadataRequest) and not self._attached.is_set():
            return refusal(request, ErrorCode.BROKER_NOT_AVAILABLE)
        await self._attached.wait()
        try:
            return await self._control.apply(request)
        except LogStorageError as error:
            self._on_failure(error)
            return refusal(request, ErrorCode.KAFKA_STORAGE_ERROR)
