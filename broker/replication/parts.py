"""The parts that keep the replicas of one broker, put together.

Decides only where an error of the disk goes: damage to broker/replication/mending.py, any other stops the
broker.
Source: docs/internals/requirements.md, [1.6].
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from broker.core.cluster_view import ClusterView
from broker.datadir.directory import LogDirectory
from broker.log.errors import DamagedSegmentError, LogStorageError
from broker.replication.control import Control
from broker.replication.deleting import Deleting
from broker.replication.fetchers import Fetchers
from broker.replication.fetching import Fetching
from broker.replication.isr_writer import IsrWriter
from broker.replication.logs import Logs
from broker.replication.maintenance import Maintenance
from broker.replication.mending import Mending
from broker.replication.outcomes import Counters, ReplicationOptions
from broker.replication.producing import Producing
from broker.replication.registry import Registry
from broker.replication.verifying import Verifier
from broker.stores.producer_ids import ProducerIds
from controller.wire.codes import ErrorCode
from quorum.errors import QuorateError
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.recording import Recordings
from quorum.platform.tls import MakeContext


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """What works on the replicas of one broker; it serves nothing before open_replicas() and attach()."""

    registry: Registry
    counters: Counters
    control: Control
    producing: Producing
    fetching: Fetching
    deleting: Deleting
    logs: Logs
    maintenance: Maintenance
    mending: Mending
    fetchers: Fetchers
    isr_writer: IsrWriter
    verifier: Verifier

    @classmethod
    def build(
        cls,
        broker_id: int,
        log_directory: LogDirectory,
        cluster_view: ClusterView,
        *,
        options: ReplicationOptions,
        secrets: Sequence[str],
        cluster_id: str,
        dial: Mapping[int, tuple[str, int]],
        tls: MakeContext | None = None,
        settings_of: Callable[[str], TopicSettings],
        recordings: Recordings | None = None,
        producer_ids: ProducerIds,
        on_storage_error: Callable[[QuorateError], None],
        register_again: Callable[[], None],
    ) -> ReplicaParts:
        """Put the parts together.

        Args:
            log_directory: open; it stays open.
            cluster_view: changed by UpdateMetadata.
            secrets: of the broker listeners; the first one is used, all are accepted.
            dial: {broker id: address} that replaces what a broker announces.
            tls: makes the context of each connection with a broker listener; None: plain.
            recordings: of what the replicas decide; None: none are wanted.
            producer_ids: those that were given out.
            on_storage_error: called when the broker must stop; also for a defect in one of the tasks.
            register_again: called when the broker must register again, so that its shortened logs are judged.
        """

        def failed(error: QuorateError) -> ErrorCode:
            if isinstance(error, DamagedSegmentError):
                return mending.meet(error)
            on_storage_error(error)
            return ErrorCode.KAFKA_STORAGE_ERROR

        def stop(error: QuorateError) -> None:
            failed(error)

        registry = Registry(broker_id, log_directory, cluster_view, settings_of, recordings)
        counters = Counters()
        isr_writer = IsrWriter(counters, stop)
        fetchers = Fetchers(
            *(registry, options, counters),
            secrets=secrets,
            cluster_id=cluster_id,
            dial=dial,
            tls=tls,
            on_failure=stop,
        )
        slots = options.max_incremental_fetch_session_cache_slots
        fetching = Fetching(registry, isr_writer, counters, failed, session_slots=slots)
        control = Control(registry, fetchers, isr_writer, failed)
        mending = Mending(registry, control, register_again, on_storage_error, options)
        verifier = Verifier(fetchers.connect, is_on=options.verifies_transactions)
        return cls(
            registry,
            counters,
            control,
            Producing(registry, counters, producer_ids, verifier, stop),
            fetching,
            Deleting(registry, failed),
            Logs(registry, failed),
            Maintenance(registry, isr_writer, options, stop, mending.meet),
            mending,
            fetchers,
            isr_writer,
            verifier,
        )

    async def stop(self, *, clean: bool = True) -> None:
        """Step down everywhere, stop fetching and write the high watermarks; the upkeep has ended before.

        Args:
            clean: False: write nothing, as after SIGKILL.
        """
        self.registry.step_down()
        await self.mending.stop()
        await self.producing.stop()
        await self.fetchers.stop()
        await self.isr_writer.stop()
        if clean:
            # A disk that refuses this refuses the end of the log directory, too.
            with contextlib.suppress(LogStorageError):
                await self.maintenance.write_last_high_watermarks()
