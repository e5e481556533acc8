"""The controller's writes: thousands of partition states as a few multis, each fenced by the controller
epoch.

Every multi begins with a check of /controller_epoch at the version of the mandate, so a controller that has
been replaced changes nothing. The multis are pipelined on one session; each is judged on its own, because one
of them can meet a partition whose leader changed its ISR meanwhile while all others are written. Soft state
only.
Source: control-plane design, "Fencing", "change_leaders"; seeds [2.4], [3.3]; performance design (batching).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from controller.core.chunks import (
    CHUNK_BYTES_MAX,
    CHUNK_OPERATIONS_MAX,
    OPERATION_OVERHEAD_BYTES,
    chunk_by_size,
)
from controller.election.plans import Mandate, StateUpdate
from quorum.client import (
    Client,
    ClientError,
    CreateMode,
    MultiFailedError,
    NodeExistsError,
    OperationResult,
    ServerError,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER, ContendedError, ControllerFencedError, lost_race
from quorum.metadata.numbers import ControllerEpoch, PartitionVersion, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord

T = TypeVar("T")


class ChunkWritten(NamedTuple):
    """All updates of a multi were written."""

    #: {partition: new version of its state znode}
    versions: Mapping[PartitionKey, PartitionVersion]


class ChunkConflict(NamedTuple):
    """One update of a multi met another version, no node, or (creating) a node: none of them was written."""

    keys: Sequence[PartitionKey]
    #: Index into keys, and the partition there.
    failed_index: int
    key: PartitionKey
    cause: ServerError


class ChunkUnknown(NamedTuple):
    """Nobody knows the outcome, or the same may succeed later: read these partitions again before anything
    else."""

    keys: Sequence[PartitionKey]
    cause: ClientError


class ChunkRefused(NamedTuple):
    """The quorum does not take one update of a multi, as things are: none of them was written."""

    keys: Sequence[PartitionKey]
    #: Which partition's; None: any of them.
    key: PartitionKey | None
    cause: ClientError


ChunkOutcome = ChunkWritten | ChunkConflict | ChunkUnknown | ChunkRefused


class Beside(Protocol):
    """What goes into the multis of states besides, so that both take effect or neither does."""

    def bytes_of(self, key: PartitionKey) -> int:
        """Say how many bytes go in at most because of a partition."""

    def nodes(
        self, states: Mapping[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]], *, is_new: bool
    ) -> Iterable[tuple[str, bytes]]:
        """Return the sequential nodes, (path without number, value), that go with the states of one multi.

        Args:
            states: {partition: (its state, version that its znode will have)}.
            is_new: whether they are the first states of their partitions.
        """


class _Run(NamedTuple):
    """One multi to be: which partitions, and how many operations each of them takes; then others."""

    keys: Sequence[PartitionKey]
    transaction: Transaction
    operations_per_key: int


class FencedWriter:
    """Writes in the name of one mandate, until another controller is elected."""

    def __init__(
        self,
        client: Client,
        mandate: Mandate[ControllerEpoch],
        *,
        operations_max: int = CHUNK_OPERATIONS_MAX,
        bytes_max: int = CHUNK_BYTES_MAX,
    ) -> None:
        """Write through a client; a multi has at most operations_max writes and about bytes_max bytes."""
        self._client = client
        self._mandate = mandate
        self._operations_max = operations_max
        self._bytes_max = bytes_max

    @property
    def mandate(self) -> Mandate[ControllerEpoch]:
        """In whose name this writes."""
        return self._mandate

    async def multi(self, transaction: Transaction) -> list[OperationResult]:
        """Run a transaction behind the fence; indexes of results and failures count without the check.

        Raises:
            ControllerFencedError: another controller has been elected; nothing was written.
            MultiFailedError: an operation failed; nothing was written.
            ConnectionLossError: the outcome is unknown.
        """
        fenced = Transaction()
        fenced.check(paths.CONTROLLER_EPOCH, self._mandate.epoch_version)
        fenced.extend(transaction)
        try:
            results = await self._client.multi(fenced)
        except MultiFailedError as error:
            if error.index == 0:
                raise ControllerFencedError(self._mandate.epoch) from error
            raise MultiFailedError(error.index - 1, error.cause) from error
        return results[1:]

    async def write_states(
        self, updates: Sequence[StateUpdate], beside: Beside | None = None
    ) -> list[ChunkOutcome]:
        """Write new states, each only at its version, in pipelined multis.

        Args:
            updates: the states.
            beside: what else goes into the multis.

        Returns:
            One outcome per multi, in order; together they name every partition once.

        Raises:
            ControllerFencedError: another controller has been elected. Multis before the fence may have been
                written.
            ContendedError: a parent of a node that goes in besides is gone.
            ClientError: the session is over.
        """
        sized = (
            (
                (update, path, value),
                len(path) + len(value) + OPERATION_OVERHEAD_BYTES + _extra(beside, update.key),
            )
            for update in updates
            for path, value in ((paths.partition_state_path(update.key), update.state.encode()),)
        )
        runs: list[_Run] = []
        for chunk in chunk_by_size(sized, self._operations_max, self._bytes_max):
            # Others have their turn: there may be hundreds.
            await asyncio.sleep(0)
            transaction = Transaction()
            for update, path, value in chunk:
                transaction.set(path, value, update.partition_version)
            written = {
                update.key: (update.state, PartitionVersion(next_version(update.partition_version)))
                for update, _, _ in chunk
            }
            _add_beside(transaction, beside, written, is_new=False)
            runs.append(_Run(list(written), transaction, 1))
        return await _settled(self._run(run) for run in runs)

    async def create_states(
        self, states: Mapping[PartitionKey, PartitionStateRecord], beside: Beside | None = None
    ) -> list[ChunkOutcome]:
        """Create the nodes and first states of new partitions, in pipelined multis; their topics must exist.

        Returns:
            One outcome per multi, in order. A conflict with NodeExistsError means that the partition has a
            state already.

        Raises:
            ControllerFencedError: another controller has been elected.
            ContendedError: a parent of a node that goes in besides is gone.
            ClientError: the session is over.
        """
        by_topic: dict[str, list[PartitionKey]] = {}
        for key in states:
            by_topic.setdefault(key.topic, []).append(key)
        parents = await _settled(self._create_partitions_node(keys) for keys in by_topic.values())
        ready = {topic for topic, failure in zip(by_topic, parents, strict=True) if failure is None}
        sized = (
            (
                (key, paths.partition_path(key), value),
                2 * len(path) + len(value) + 2 * OPERATION_OVERHEAD_BYTES + _extra(beside, key),
            )
            for key, state in states.items()
            if key.topic in ready
            for path, value in ((paths.partition_state_path(key), state.encode()),)
        )
        runs: list[_Run] = []
        for chunk in chunk_by_size(sized, max(1, self._operations_max // 2), self._bytes_max):
            # Others have their turn: there may be hundreds.
            await asyncio.sleep(0)
            transaction = Transaction()
            for _, path, value in chunk:
                transaction.create(path, b"")
                transaction.create(f"{path}/state", value)
            written = {key: (states[key], PartitionVersion(0)) for key, _, _ in chunk}
            _add_beside(transaction, beside, written, is_new=True)
            runs.append(_Run(list(written), transaction, 2))
        failed = [failure for failure in parents if failure is not None]
        return failed + await _settled(self._run(run) for run in runs)

    async def _create_partitions_node(self, keys: Sequence[PartitionKey]) -> ChunkOutcome | None:
        """Create what is above some partitions of a topic; returns why it is not there."""
        transaction = Transaction()
        transaction.create(paths.topic_partitions_path(keys[0].topic), b"")
        try:
            await self.multi(transaction)
        except ClientError as error:
            if isinstance(error, MultiFailedError) and isinstance(error.cause, NodeExistsError):
                return None
            return _failed(keys, 0, error)
        return None

    async def _run(self, run: _Run) -> ChunkOutcome:
        try:
            results = await self.multi(run.transaction)
        except ClientError as error:
            index = error.index // run.operations_per_key if isinstance(error, MultiFailedError) else None
            if index is not None and index >= len(run.keys):
                raise ContendedError(f"a write beside states: {error.message}", 1) from error
            return _failed(run.keys, index, error)
        of_states = results[: len(run.keys) * run.operations_per_key]
        last = of_states[run.operations_per_key - 1 :: run.operations_per_key]
        return ChunkWritten(
            {
                key: PartitionVersion(0 if result.stat is None else result.stat.version)
                for key, result in zip(run.keys, last, strict=True)
            }
        )


def _failed(keys: Sequence[PartitionKey], index: int | None, error: ClientError) -> ChunkOutcome:
    """Say what became of a multi that failed at one of its partitions; None: as a whole.

    Raises:
        ClientError: the session is over.
    """
    if isinstance(error, SESSION_OVER):
        raise error
    if error.retriable or not error.definite:
        return ChunkUnknown(keys, error)
    if index is None:
        return ChunkRefused(keys, keys[0] if len(keys) == 1 else None, error)
    if isinstance(error, MultiFailedError) and lost_race(error):
        return ChunkConflict(keys, index, keys[index], error.cause)
    return ChunkRefused(keys, keys[index], error)


async def _settled(works: Iterable[Awaitable[T]]) -> list[T]:
    """Return what all of them return, or raise what one of them raised, first of all that the term is over.

    All settle before anything is raised, so that no multi is still under way when the caller goes on.
    """
    settled = await asyncio.gather(*works, return_exceptions=True)
    failures = [outcome for outcome in settled if isinstance(outcome, BaseException)]
    for failure in failures:
        if isinstance(failure, ControllerFencedError):
            raise failure
    if failures:
        raise failures[0]
    return [outcome for outcome in settled if not isinstance(outcome, BaseException)]


def _extra(beside: Beside | None, key: PartitionKey) -> int:
    return 0 if beside is None else beside.bytes_of(key)


def _add_beside(
    transaction: Transaction,
    beside: Beside | None,
    states: Mapping[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]],
    *,
    is_new: bool,
) -> None:
    for path, value in () if beside is None else beside.nodes(states, is_new=is_new):
        transaction.create(path, value, CreateMode.PERSISTENT_SEQUENTIAL)
