"""Reassignments at work: begun by request or by znode, taken up by every new controller, ended when done.

Each step stands in the quorum before it acts: the topic's record names who comes and who goes, the state
names who is in the ISR. The decisions about states are those of every other partition (core.elections); what
is here writes the record at the beginning, and at the end, once the live brokers that are leaving have
confirmed that their replica is deleted. A dead one finds a stray when it starts. Progress comes by the watch
on states, nothing is polled.
Source: KIP-455; seeds [0.F]; control-plane design, "Reassignment".
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from controller.core.channels import Channels
from controller.core.model import ClusterModel, KnownTopic
from controller.core.outcomes import PartitionOutcome, code_of, too_large
from controller.core.reassignment import Replicas, with_targets, without_moves
from controller.core.topics import Refused, check_move
from controller.runtime.deciding import Decider
from controller.runtime.store import Store
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.admin_requests import ReassignmentRecord
from quorum.metadata.errors import MetadataDecodeError, concerns_term
from quorum.metadata.numbers import next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node
from quorum.metadata.records import TopicRecord
from quorum.platform.pace import Pace

log = logging.getLogger("quorate.controller")


class Reassignments:
    """The reassignments of one term."""

    def __init__(
        self, client: Client, model: ClusterModel, store: Store, decider: Decider, channels: Channels
    ) -> None:
        """Know only what the model says."""
        self._client = client
        self._model = model
        self._store = store
        self._decider = decider
        self._channels = channels

    async def begin(
        self, targets: Mapping[PartitionKey, Replicas | None]
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Begin reassignments, or cancel those whose target is None, each on its own."""
        outcomes = await self._begin(targets)
        await self.trim()
        return outcomes

    async def take_request(self) -> None:
        """Begin what stands in /admin/reassign_partitions, and take away what is done or refused."""
        found = await self._read_request()
        if found is None:
            return
        targets, _ = found
        for key, outcome in (await self._begin(targets)).items():
            if outcome.error_code != ErrorCode.NONE:
                log.warning("no reassignment of %s-%d: %s", *key, outcome.message)
        await self.trim()

    async def trim(self) -> None:
        """Take out of /admin/reassign_partitions what is not under way any more; an empty one is removed."""
        found = await self._read_request()
        if found is None:
            return
        targets, version = found
        rest = {
            key: target
            for key, target in targets.items()
            if (move := self._model.move(key)) is not None and move.target == target
        }
        if len(rest) < len(targets) or not targets:
            value = ReassignmentRecord(rest).encode() if rest else None
            await self._store.replace_request(paths.REASSIGN_PARTITIONS, value, version)

    async def finish(self) -> bool:
        """End the reassignments of which nothing is left to do; returns whether there were any."""
        done: dict[str, list[int]] = {}
        pace = Pace()
        for key, move in self._model.moves():
            await pace.rest()
            if (
                key in self._model.states
                and self._model.may_decide(key.topic)
                and self._model.announced.get(key) == move.target
                and self._channels.stopped(key, move.removing)
            ):
                done.setdefault(key.topic, []).append(key.partition)
        finished = 0
        for topic, partitions in done.items():
            if await self._end_topic(topic, partitions):
                finished += len(partitions)
                for partition in partitions:
                    await pace.rest()
                    key = PartitionKey(topic, partition)
                    self._model.announced.pop(key, None)
                    log.info("%s-%d is on brokers %s now", *key, list(self._model.replicas(key)))
        return finished > 0

    async def _begin(
        self, targets: Mapping[PartitionKey, Replicas | None]
    ) -> dict[PartitionKey, PartitionOutcome]:
        outcomes: dict[PartitionKey, PartitionOutcome] = {}
        accepted: dict[str, dict[int, Replicas]] = {}
        pace = Pace()
        for key, target in targets.items():
            await pace.rest()
            wanted = check_move(self._model, key, target)
            if isinstance(wanted, Refused):
                outcomes[key] = PartitionOutcome(code_of(wanted), wanted.message)
            else:
                accepted.setdefault(key.topic, {})[key.partition] = wanted
        begun: list[PartitionKey] = []
        for topic, by_partition in accepted.items():
            record = with_targets(self._model.topics[topic].record, by_partition)
            keys = [PartitionKey(topic, each) for each in by_partition]
            outcome = PartitionOutcome(ErrorCode.NONE)
            if record != self._model.topics[topic].record:
                outcome = await self._begin_topic(topic, record)
                begun += keys if outcome.error_code == ErrorCode.NONE else []
            outcomes.update(dict.fromkeys(keys, outcome))
        for key in begun:
            await pace.rest()
            log.info("%s-%d goes to brokers %s", *key, list(accepted[key.topic][key.partition]))
        if begun:
            # Also where only the order has changed, and nobody's role.
            self._channels.owe_metadata(begun)
            await self._decider.settle(begun)
        return outcomes

    async def _begin_topic(self, topic: str, record: TopicRecord) -> PartitionOutcome:
        problem = too_large(record)
        if problem is not None:
            return PartitionOutcome(code_of(problem), problem.message)
        try:
            if await self._write(topic, record):
                return PartitionOutcome(ErrorCode.NONE)
        except QuorateError as error:
            if concerns_term(error):
                raise
            return PartitionOutcome(code_of_error(error), str(error))
        return PartitionOutcome(ErrorCode.INVALID_REQUEST, "the topic changed meanwhile: ask again")

    async def _end_topic(self, topic: str, partitions: Collection[int]) -> bool:
        try:
            return await self._write(topic, without_moves(self._model.topics[topic].record, partitions))
        except QuorateError as error:
            if concerns_term(error):
                raise
            self._model.left_alone[topic] = error.message
            log.warning("topic %s is left alone: its reassignment cannot be ended: %s", topic, error)
            return False

    async def _write(self, topic: str, record: TopicRecord) -> bool:
        version = self._model.topics[topic].topic_version
        if not await self._store.set_topic(topic, record, version):
            # The event of that change makes the topic dirty.
            return False
        self._model.topics[topic] = KnownTopic(record, next_version(version))
        return True

    async def _read_request(self) -> tuple[Mapping[PartitionKey, Replicas], int] | None:
        node = await read_node(self._client, paths.REASSIGN_PARTITIONS)
        if node is None:
            return None
        try:
            return ReassignmentRecord.decode(node.data).targets, node.stat.version
        except MetadataDecodeError as error:
            log.warning("a request for reassignments was removed: %s", error)
            await self._store.replace_request(paths.REASSIGN_PARTITIONS, None, node.stat.version)
            return None
