"""Reassignments at work: begun by request or by znode, taken up by every new controller, ended when done.

Each step is in the quorum before it acts: the topic's record names who comes and who goes, the state names
who is in the ISR. The decisions about states are those of every other partition (elections.py); what is here
writes the record at the beginning, and at the end, once the live brokers that are leaving have confirmed that
their replica is deleted. A dead one finds a stray when it starts. Progress comes by the watch on states,
nothing is polled.
Source: KIP-455; docs/internals/requirements.md, [0.F]; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from controller.core.channels import Channels
from controller.core.deciding import Decider
from controller.core.io import DeclinedError, Io, Steps, parts_of, rest
from controller.core.model import ClusterModel, KnownTopic
from controller.core.outcomes import PartitionOutcome, too_large
from controller.core.reassignment import Replicas, with_targets, without_moves
from controller.core.topics import Refused, check_move
from controller.core.writing import replace_request, set_topic
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.admin_requests import ReassignmentRecord
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord


class Reassignments:
    """The reassignments of one term."""

    def __init__(self, io: Io, model: ClusterModel, decider: Decider, channels: Channels) -> None:
        """Know only what the model says."""
        self._io = io
        self._model = model
        self._decider = decider
        self._channels = channels

    def begin(
        self, targets: Mapping[PartitionKey, Replicas | None]
    ) -> Steps[dict[PartitionKey, PartitionOutcome]]:
        """Begin reassignments, or cancel those whose target is None, each on its own.

        What is begun takes the place of what /admin/reassign_partitions holds for the same partition.
        """
        outcomes = yield from self._begin(targets)
        if (found := (yield from self._read_request())) is not None:
            asked, version = found
            begun = {key for key, outcome in outcomes.items() if outcome.error_code == ErrorCode.NONE}
            for part in parts_of([key for key in asked if key in begun and asked[key] != targets[key]]):
                for key in part:
                    name = f"{key.topic}-{key.partition}"
                    self._io.info(f"no move of {name} to {list(asked[key])}: a later one is asked for")
                yield from rest(part)
            yield from self._trim(asked, version, begun)
        return outcomes

    def take_request(self) -> Steps[None]:
        """Begin what /admin/reassign_partitions holds, and take away what is done or refused."""
        found = yield from self._read_request()
        if found is None:
            return
        targets, version = found
        for key, outcome in (yield from self._begin(targets)).items():
            if outcome.error_code != ErrorCode.NONE:
                self._io.warn(f"no reassignment of {key.topic}-{key.partition}: {outcome.message}")
        yield from self._trim(targets, version, targets)

    def finish(self) -> Steps[None]:
        """End the reassignments of which nothing is left to do."""
        done: dict[str, list[int]] = {}
        for part in parts_of(list(self._model.moves())):
            for key, move in part:
                if (
                    key in self._model.states
                    and self._model.may_decide(key.topic)
                    and self._model.announced.get(key) == move.target
                    and self._channels.stopped(key, move.removing)
                ):
                    done.setdefault(key.topic, []).append(key.partition)
            yield from rest(part)
        has_ended = False
        for topic, partitions in done.items():
            if not (yield from self._end_topic(topic, partitions)):
                continue
            has_ended = True
            for partition in partitions:
                key = PartitionKey(topic, partition)
                self._model.announced.pop(key, None)
                replicas = list(self._model.replicas(key))
                self._io.info(f"{topic}-{partition} is on brokers {replicas} now")
            yield from rest(partitions)
        if has_ended:
            # An administrator may have asked for others since it was read.
            yield from self.take_request()

    def _begin(
        self, targets: Mapping[PartitionKey, Replicas | None]
    ) -> Steps[dict[PartitionKey, PartitionOutcome]]:
        outcomes: dict[PartitionKey, PartitionOutcome] = {}
        accepted: dict[str, dict[int, Replicas]] = {}
        for part in parts_of(list(targets.items())):
            for key, target in part:
                wanted = check_move(self._model, key, target)
                if isinstance(wanted, Refused):
                    outcomes[key] = PartitionOutcome(wanted.error_code, wanted.message)
                else:
                    accepted.setdefault(key.topic, {})[key.partition] = wanted
            yield from rest(part)
        begun: list[PartitionKey] = []
        for topic, by_partition in accepted.items():
            record = with_targets(self._model.topics[topic].record, by_partition)
            keys = [PartitionKey(topic, each) for each in by_partition]
            outcome = PartitionOutcome(ErrorCode.NONE)
            if record != self._model.topics[topic].record:
                outcome = yield from self._begin_topic(topic, record)
                begun += keys if outcome.error_code == ErrorCode.NONE else []
            outcomes.update(dict.fromkeys(keys, outcome))
        for keys in parts_of(begun):
            for key in keys:
                brokers = list(accepted[key.topic][key.partition])
                self._io.info(f"{key.topic}-{key.partition} goes to brokers {brokers}")
            yield from rest(keys)
        if begun:
            # Also where only the order has changed, and nobody's role.
            self._channels.owe_metadata(begun)
            yield from self._decider.settle(begun)
        return outcomes

    def _trim(
        self, targets: Mapping[PartitionKey, Replicas], version: int, taken: Collection[PartitionKey]
    ) -> Steps[None]:
        """Take out of /admin/reassign_partitions the taken ones not under way; an empty one is removed."""
        rest = {
            key: target
            for key, target in targets.items()
            if key not in taken or ((move := self._model.move(key)) is not None and move.target == target)
        }
        if len(rest) < len(targets) or not targets:
            value = ReassignmentRecord(rest).encode() if rest else None
            yield from replace_request(self._io, paths.REASSIGN_PARTITIONS, value, version)

    def _begin_topic(self, topic: str, record: TopicRecord) -> Steps[PartitionOutcome]:
        problem = too_large(record)
        if problem is not None:
            return PartitionOutcome(problem.error_code, problem.message)
        try:
            if (yield from self._write(topic, record)):
                return PartitionOutcome(ErrorCode.NONE)
        except DeclinedError as error:
            return PartitionOutcome(error.error_code, str(error))
        return PartitionOutcome(ErrorCode.INVALID_REQUEST, "the topic changed meanwhile: ask again")

    def _end_topic(self, topic: str, partitions: Collection[int]) -> Steps[bool]:
        record = without_moves(self._model.topics[topic].record, partitions)
        try:
            return (yield from self._write(topic, record))
        except DeclinedError as error:
            self._model.left_alone[topic] = error.problem
            self._io.warn(f"topic {topic} is left alone: its reassignment cannot be ended: {error}")
            return False

    def _write(self, topic: str, record: TopicRecord) -> Steps[bool]:
        version = self._model.topics[topic].topic_version
        if not (yield from set_topic(self._io, topic, record, version)):
            # The event of that change makes the topic dirty.
            return False
        self._model.topics[topic] = KnownTopic(record, next_version(version))
        return True

    def _read_request(self) -> Steps[tuple[Mapping[PartitionKey, Replicas], int] | None]:
        node = yield from self._io.read_one(paths.REASSIGN_PARTITIONS)
        if node is None:
            return None
        try:
            return ReassignmentRecord.decode(node.data).targets, node.version
        except MetadataDecodeError as error:
            self._io.warn(f"a request for reassignments was removed: {error}")
            yield from replace_request(self._io, paths.REASSIGN_PARTITIONS, None, node.version)
            return None
