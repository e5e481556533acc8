"""The commit of a batch on the driver: the manifest goes to the quorum, then the rows go to the topic.

Order: the staged files are compared with their digests, the manifest is put into the quorum by
compare-and-set, the chunks are appended under its producer id and epoch, the manifest is marked as done.
A driver that finds a manifest which is not done finishes that one, from the manifest's files and not from its
own: it reads from the recorded end offsets how much is there and appends the rest under the same numbers.
So two drivers that append at once do no harm: the broker takes each chunk once, in its place. The next batch
has a higher epoch and fences what is left of the older driver.

Nothing here is decided by time. What a crash leaves is in the quorum, in the topic and in the staged files.
Source: docs/clients/spark.md, "Sink"; KIP-98.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Final

from broker.client import BrokerClient
from broker.client.producing import (
    PRODUCER_EPOCH_MAX,
    Appending,
    Chunk,
    ProducerFencedError,
    ProducerLife,
    appended,
)
from pipeline.errors import OptionError
from pipeline.sink.errors import SinkFencedError
from pipeline.sink.ledger import Ledger, LedgerStep, SinkState, decide
from pipeline.sink.options import HOSTS, SinkOptions
from pipeline.sink.staging import Manifest, StagedFile, Staging
from quorum.errors import QuorateError

#: Changes by other drivers, or lost answers, that one commit reads again after.
ROUNDS_MAX: Final = 10


class ContendedNameError(QuorateError):
    """Other drivers changed the manifest again and again."""

    retriable = True


class Commit:
    """The commit of one batch; its steps are methods, so that a test can end the process between them."""

    def __init__(
        self,
        brokers: BrokerClient,
        ledger: Ledger,
        staging: Staging,
        *,
        query_id: str,
        run_id: str,
        batch_id: int,
        files: Sequence[StagedFile],
    ) -> None:
        """Prepare; `run` commits.

        Args:
            brokers: appends.
            ledger: the name's znode.
            staging: the name's files.
            query_id: the same for all starts of a query.
            run_id: of this start.
            batch_id: rises by 1 with every batch of the query.
            files: what this run staged, in order.
        """
        self._brokers = brokers
        self._ledger = ledger
        self._staging = staging
        self._query_id = query_id
        self._run_id = run_id
        self._batch_id = batch_id
        self._files = tuple(files)

    async def run(self) -> None:
        """Commit the batch, or finish what another driver began; returns when every row is there once."""
        for _ in range(ROUNDS_MAX):
            state, version = await self._ledger.read()
            step = decide(state, self._query_id, self._run_id, self._batch_id)
            if state is None or step is LedgerStep.BEGIN:
                if not self._files:
                    return
                manifest, wanted = await self._begin(state)
            else:
                manifest, wanted = None, state.taken_over_by(self._run_id)
            swapped = version if wanted == state else await self._ledger.swap(wanted, version)
            if swapped is None:
                continue
            if step is not LedgerStep.NOTHING:
                await self.append(wanted, manifest)
                if await self.mark_done(wanted, swapped) is None:
                    continue
            await asyncio.to_thread(self._sweep, wanted)
            return
        raise ContendedNameError(
            f"{self._ledger.path} was changed by others {ROUNDS_MAX} times", "let one driver run"
        )

    async def _begin(self, state: SinkState | None) -> tuple[Manifest, SinkState]:
        """Prepare a manifest of this run's files."""
        await asyncio.to_thread(self._verify, self._files)
        since = await self._brokers.offsets({key for each in self._files for key in each.partitions})
        manifest = Manifest(self._files, since)
        path, sha256 = self._staging.write_manifest(self._run_id, self._batch_id, manifest)
        if state is None or state.producer_epoch >= PRODUCER_EPOCH_MAX:
            life = ProducerLife(await self._brokers.init_producer_id(), 0)
        else:
            life = ProducerLife(state.producer_id, state.producer_epoch + 1)
        wanted = SinkState(
            query_id=self._query_id,
            run_id=self._run_id if state is None else state.run_id,
            retired=() if state is None else state.retired,
            batch_id=self._batch_id,
            producer_id=life.producer_id,
            producer_epoch=life.producer_epoch,
            timestamp_ms=time.time_ns() // 1_000_000,
            rows=manifest.rows,
            manifest=path,
            sha256=sha256,
            done=False,
        )
        # Whoever staged here before and never came to the quorum must not come later: its folder goes.
        return manifest, wanted.taken_over_by(self._run_id, self._staging.runs())

    async def append(self, state: SinkState, manifest: Manifest | None) -> None:
        """Append what is missing of a manifest; None: of one that may have been begun before."""
        counts = {}
        if manifest is None:
            manifest = self._staging.read_manifest(state.manifest, state.sha256)
            await asyncio.to_thread(self._verify, manifest.files)
            counts = await appended(self._brokers, state.life, manifest.since)
        try:
            await Appending(
                self._brokers,
                state.life,
                self.chunks(manifest),
                since=manifest.since,
                counts=counts,
                timestamp_ms=state.timestamp_ms,
            ).run()
        except ProducerFencedError as error:
            raise SinkFencedError(error.message, "leave the query to the newer driver") from error

    def chunks(self, manifest: Manifest) -> Iterable[Chunk]:
        """Return the chunks of a batch, in order."""
        return self._staging.chunks(manifest.files)

    async def mark_done(self, state: SinkState, version: int) -> int | None:
        """Say in the quorum that every row is there; None: read again."""
        return await self._ledger.swap(state._replace(done=True), version)

    def _verify(self, files: Iterable[StagedFile]) -> None:
        for each in files:
            self._staging.verify(each.path, each.sha256)

    def _sweep(self, state: SinkState) -> None:
        """Remove what runs staged that can commit nothing more, and this run's: its batch is done."""
        for run_id in self._staging.runs():
            if run_id == self._run_id or run_id in state.retired:
                self._staging.remove_run(run_id)


async def append_once(brokers: BrokerClient, staging: Staging, files: Sequence[StagedFile]) -> None:
    """Append files under a producer id that nobody knows afterwards: a crash leaves a part of them."""
    for each in files:
        await asyncio.to_thread(staging.verify, each.path, each.sha256)
    keys = {key for each in files for key in each.partitions}
    since = await brokers.offsets(keys)
    life = ProducerLife(await brokers.init_producer_id(), 0)
    await Appending(
        brokers,
        life,
        staging.chunks(files),
        since=since,
        counts={},
        timestamp_ms=time.time_ns() // 1_000_000,
    ).run()


async def still_needed(ledger: Ledger, run_id: str) -> bool:
    """Whether the quorum names what a run staged, and not all of it is in the topic."""
    state, _ = await ledger.read()
    return state is not None and not state.done and f"/{run_id}/" in state.manifest


async def quorum_hosts(brokers: BrokerClient, options: SinkOptions) -> str:
    """Return the nodes of the quorum: as the option says, else as a broker does."""
    if options.hosts is not None:
        return options.hosts
    found = (await brokers.describe_broker_configs()).get("zookeeper.connect")
    if not found:
        raise OptionError(
            HOSTS, None, "the brokers name no quorum (zookeeper.connect)", "give host:port,… of its nodes"
        )
    return found
