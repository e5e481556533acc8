"""The only place from which the controller writes to the quorum; every write is fenced by its mandate.

A write either took effect, or it did not, or nobody knows: the last two come back as partitions to read
again, so that nothing is decided on a guess. What the quorum does not take comes back with the reason, so
that it holds up nothing else. A controller that has been replaced gets ControllerFencedError and changes
nothing.
Source: control-plane design, "Fencing", "change_leaders"; seeds [2.4], [3.3].
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from controller.core.elections import Decisions
from controller.core.model import KnownState
from controller.election.fenced import Beside, ChunkOutcome, ChunkRefused, ChunkWritten, FencedWriter
from controller.election.plans import Mandate, StateUpdate
from controller.runtime.queue import delete_node, purge_queue
from controller.runtime.reader import JudgedIncarnation, Unreadable, read_children, read_nodes
from quorum.client import (
    Client,
    ConnectionLossError,
    MultiFailedError,
    NodeExistsError,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataError, lost_race
from quorum.metadata.numbers import ControllerEpoch, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    IncarnationRecord,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
    encode_controller_epoch,
)

ROUNDS_MAX: Final = 5
#: Operations of one multi that removes a topic.
REMOVALS_MAX: Final = 1_000
#: A re-created /controller_epoch gets the version that it would have; a multi holds no more writes than this.
EPOCH_VERSION_MAX: Final = 9_999


class Written(NamedTuple):
    """What became of decisions."""

    #: {partition: state as it stands now}, acknowledged
    states: dict[PartitionKey, KnownState]
    #: Partitions to read and decide again: they had changed, or the outcome is unknown.
    unsettled: list[PartitionKey]
    #: {partition: why the quorum does not take its state}
    refused: dict[PartitionKey, str]


class Store:
    """Writes in the name of one mandate."""

    def __init__(self, client: Client, mandate: Mandate[ControllerEpoch]) -> None:
        """Write through a client."""
        self._client = client
        self._writer = FencedWriter(client, mandate)
        self._one_by_one = FencedWriter(client, mandate, operations_max=1)
        self.multi = self._writer.multi

    async def write(
        self, decisions: Decisions, *, one_by_one: bool = False, beside: Beside | None = None
    ) -> Written:
        """Write states: new ones, then first ones.

        Args:
            decisions: states and the versions that they were decided on.
            one_by_one: one multi per partition, so that none is held up by another.
            beside: what else goes into the multis.

        Raises:
            ControllerFencedError: another controller has been elected.
            ClientError: the session is over.
        """
        writer = self._one_by_one if one_by_one else self._writer
        written = Written({}, [], {})
        if decisions.updates:
            updates = [
                StateUpdate(key, state, version) for key, (state, version) in decisions.updates.items()
            ]
            _collect(
                written,
                await writer.write_states(updates, beside),
                {each.key: each.state for each in updates},
            )
        if decisions.creations:
            outcomes = await writer.create_states(decisions.creations, beside)
            _collect(written, outcomes, decisions.creations)
        return written

    # -- queues of brokers ---------------------------------------------------------------------------------

    async def remove_queues(self, kept: Collection[int]) -> None:
        """Remove the queues of all brokers but these.

        Raises:
            ControllerFencedError: another controller has been elected.
            ConnectionLossError: the outcome is unknown; repeat it.
        """
        for name in await read_children(self._client, paths.BROKER_QUEUES):
            if name.isdecimal() and int(name) not in kept:
                path = f"{paths.BROKER_QUEUES}/{name}"
                await purge_queue(self._client, self.multi, path)
                await delete_node(self.multi, path)

    # -- other records -------------------------------------------------------------------------------------

    async def record_incarnations(
        self, records: Mapping[int, IncarnationRecord], known: Mapping[int, JudgedIncarnation]
    ) -> None:
        """Record by which incarnations ISR memberships are judged from now on, and whose logs were.

        Raises:
            ControllerFencedError: another controller has been elected.
            MultiFailedError: a record changed meanwhile; nothing was written.
            ConnectionLossError: the outcome is unknown.
        """
        transaction = Transaction()
        for broker_id, record in records.items():
            path, value = paths.broker_incarnation_path(broker_id), record.encode()
            if broker_id in known:
                transaction.set(path, value, known[broker_id].version)
            else:
                transaction.create(path, value)
        await self._writer.multi(transaction)

    async def create_topic(self, topic: str, record: TopicRecord, settings: Mapping[str, str]) -> bool:
        """Create a topic with its settings, in one multi.

        Returns:
            False if it exists already, and is not this one.

        Raises:
            ControllerFencedError: another controller has been elected.
            ConnectionLossError: in each of ROUNDS_MAX rounds; the outcome is unknown.
            ClientError: the quorum refused; nothing was written.
            MetadataError: what is there of the topic cannot be read; nothing was written.
        """
        loss: ConnectionLossError | None = None
        for _ in range(ROUNDS_MAX):
            try:
                topic_node, config_node = await read_nodes(
                    self._client, [paths.topic_path(topic), paths.config_topic_path(topic)]
                )
                if topic_node is not None:
                    # Ours if the reply of an earlier round was lost: nobody else drew this topic id.
                    return not isinstance(topic_node, Unreadable) and topic_node.data == record.encode()
                if isinstance(config_node, Unreadable):
                    raise MetadataError(config_node.problem, "let the brokers read and write it")
                transaction = Transaction().create(paths.topic_path(topic), record.encode())
                value = TopicConfigRecord(dict(settings)).encode()
                if config_node is not None:
                    transaction.set(paths.config_topic_path(topic), value, config_node.stat.version)
                elif settings:
                    transaction.create(paths.config_topic_path(topic), value)
                await self._writer.multi(transaction)
            except ConnectionLossError as error:
                loss = error
            except MultiFailedError as error:
                if not lost_race(error):
                    raise
            else:
                return True
        raise loss or ContendedError(f"the creation of topic {topic}", ROUNDS_MAX)

    async def set_topic(self, topic: str, record: TopicRecord, topic_version: int) -> bool:
        """Replace an assignment at its version; False if it has changed meanwhile.

        Raises:
            ControllerFencedError: another controller has been elected.
            ConnectionLossError: the outcome is unknown.
            ClientError: the quorum refused; nothing was written.
        """
        try:
            await self._writer.multi(
                Transaction().set(paths.topic_path(topic), record.encode(), topic_version)
            )
        except MultiFailedError as error:
            if not lost_race(error):
                raise
            return False
        return True

    async def replace_request(self, path: str, value: bytes | None, version: int) -> bool:
        """Replace a request of an administrator by what is left of it; None: remove it.

        Returns:
            False if it changed meanwhile: then it is due again.

        Raises:
            ControllerFencedError: another controller has been elected.
            ConnectionLossError: the outcome is unknown.
        """
        transaction = Transaction()
        if value is None:
            transaction.delete(path, version)
        else:
            transaction.set(path, value, version)
        try:
            await self._writer.multi(transaction)
        except MultiFailedError:
            return False
        return True

    async def request_deletion(self, topic: str) -> None:
        """Create the request to delete a topic; one that exists is as good.

        Raises:
            ControllerFencedError: another controller has been elected.
            ConnectionLossError: the outcome is unknown.
        """
        try:
            await self._writer.multi(Transaction().create(paths.delete_topic_path(topic), b""))
        except MultiFailedError as error:
            if not isinstance(error.cause, NodeExistsError):
                raise

    async def remove_topic(self, topic: str) -> None:
        """Remove a topic's states, then the topic, its settings and the request to delete it, in that order.

        Raises:
            ControllerFencedError: another controller has been elected.
            ContendedError: nodes came and went in each of ROUNDS_MAX rounds; the request stands still.
            ConnectionLossError: the outcome of the last round is unknown; repeat it.
            ClientError: the quorum refused; the request stands still.
        """
        for _ in range(ROUNDS_MAX):
            try:
                for transaction in _cut(await self._existing_nodes(topic)):
                    await self._writer.multi(transaction)
            except MultiFailedError as error:
                if not lost_race(error):
                    raise
                continue
            return
        raise ContendedError(f"the removal of topic {topic}", ROUNDS_MAX)

    async def _existing_nodes(self, topic: str) -> list[str]:
        """Return what there is of a topic, children first."""
        parent = paths.topic_partitions_path(topic)
        partitions = [f"{parent}/{name}" for name in await read_children(self._client, parent)]
        wanted = [
            *(path for partition in partitions for path in (f"{partition}/state", partition)),
            *(
                parent,
                paths.topic_path(topic),
                paths.config_topic_path(topic),
                paths.delete_topic_path(topic),
            ),
        ]
        nodes = await read_nodes(self._client, wanted)
        return [path for path, node in zip(wanted, nodes, strict=True) if node is not None]


async def ensure_controller_epoch(client: Client, highest: ControllerEpoch) -> None:
    """Create a missing /controller_epoch with the highest epoch that is known; what exists stays as it is.

    The node also gets the version that so many elections would have given it. A new node begins with version
    0, and the fence of a former controller, which is a version, must not fit a later one by accident.

    Raises:
        ConnectionLossError: the outcome is unknown; repeat it.
    """
    transaction = Transaction().create(paths.CONTROLLER_EPOCH, encode_controller_epoch(highest))
    version = 0
    for _ in range(min(highest, EPOCH_VERSION_MAX)):
        transaction.set(paths.CONTROLLER_EPOCH, encode_controller_epoch(highest), version)
        version = next_version(version)
    try:
        await client.multi(transaction)
    except MultiFailedError as error:
        if not isinstance(error.cause, NodeExistsError):
            raise


def _cut(nodes: list[str]) -> Iterator[Transaction]:
    for start in range(0, len(nodes), REMOVALS_MAX):
        transaction = Transaction()
        for path in nodes[start : start + REMOVALS_MAX]:
            transaction.delete(path)
        yield transaction


def _collect(
    written: Written, outcomes: list[ChunkOutcome], states: Mapping[PartitionKey, PartitionStateRecord]
) -> None:
    for outcome in outcomes:
        if isinstance(outcome, ChunkWritten):
            for key, version in outcome.versions.items():
                written.states[key] = KnownState(states[key], version, None)
            continue
        refused = outcome.key if isinstance(outcome, ChunkRefused) else None
        if isinstance(outcome, ChunkRefused) and refused is not None:
            written.refused[refused] = outcome.cause.message
        written.unsettled.extend(key for key in outcome.keys if key != refused)
