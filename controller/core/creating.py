"""Topics on request: create, extend, request a deletion.

Each is judged by topics.py on what the cache has just read. Only what is committed is reported as done; who
leads the new partitions is decided right after, as for topics that come by znode.
Source: Kafka's CreateTopics, CreatePartitions and DeleteTopics (3.9); docs/internals/requirements.md, [0.C].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from controller.core.draws import Draws
from controller.core.effects import CreateNode, Operation, SetData
from controller.core.inputs import Done, Unknown, Unreadable, Why, Znode
from controller.core.io import DeclinedError, Io, Steps, UnsureError, declined, parts_of
from controller.core.model import ClusterModel
from controller.core.options import ControllerOptions
from controller.core.outcomes import TopicOutcome, refused, too_large
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import (
    Defaults,
    Refused,
    Spread,
    check_room,
    collisions,
    exists,
    plan_partitions,
    plan_topic,
)
from controller.core.writing import ROUNDS_MAX, set_topic
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.errors import InvalidTopicSettingError
from quorum.metadata.numbers import drawn_topic_id
from quorum.metadata.records import TopicConfigRecord, TopicRecord
from quorum.metadata.topic_settings import given_settings

#: Topics of a request whose writes are under way at once.
CREATED_AT_ONCE_MAX: Final = 100


class _Planned(NamedTuple):
    """A topic that may be created."""

    name: str
    record: TopicRecord
    settings: Mapping[str, str]


class TopicAdmin:
    """Creates and extends topics in one term."""

    def __init__(self, io: Io, model: ClusterModel, options: ControllerOptions, draws: Draws) -> None:
        """Decide from a model."""
        self._io = io
        self._model = model
        self._draws = draws
        self._partitions_max = options.partitions_max
        #: Partitions of all topics, with those that the present request has asked for so far.
        self._partitions = 0
        self._segment_bytes_min = options.segment_bytes_min
        self._defaults = Defaults(options.default_num_partitions, options.default_replication_factor)

    def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> Steps[dict[str, TopicOutcome]]:
        """Create topics with different names, each on its own: {name: outcome}."""
        self._partitions = self._model.partition_count()
        colliding = collisions(self._model, [topic.name for topic in topics])
        outcomes: dict[str, TopicOutcome] = {}
        for part in parts_of(topics, CREATED_AT_ONCE_MAX):
            planned: list[_Planned] = []
            for topic in part:
                plan = self._plan(topic, colliding.get(topic.name))
                if isinstance(plan, Refused):
                    outcomes[topic.name] = refused(plan)
                    continue
                planned.append(plan)
                outcomes[topic.name] = TopicOutcome(
                    ErrorCode.NONE,
                    num_partitions=len(plan.record.partitions),
                    replication_factor=len(plan.record.partitions[0]),
                    settings=plan.settings,
                )
            if not validate_only:
                for each, problem in (yield from self._write_topics(planned)):
                    outcomes[each.name] = problem or replace(
                        outcomes[each.name], topic_id=each.record.topic_id
                    )
                    if problem is None:
                        self._io.info(f"created topic {each.name}: {len(each.record.partitions)} partitions")
        return {topic.name: outcomes[topic.name] for topic in topics}

    def _plan(self, topic: NewTopic, collides_with: str | None) -> _Planned | Refused:
        planned = plan_topic(self._model, topic, self._defaults, self._spread(), collides_with)
        if isinstance(planned, Refused):
            return planned
        try:
            settings = given_settings(topic.settings, segment_bytes_min=self._segment_bytes_min)
        except InvalidTopicSettingError as error:
            return Refused(ErrorCode.INVALID_CONFIG, str(error))
        record = TopicRecord(drawn_topic_id(self._draws.bits()), dict(planned))
        problem = too_large(record) or self._take_room(len(planned))
        return problem or _Planned(topic.name, record, settings)

    def _write_topics(self, planned: Sequence[_Planned]) -> Steps[list[tuple[_Planned, TopicOutcome | None]]]:
        """Create topics with their settings, each in one multi; None for one that was created."""
        settled: list[tuple[_Planned, TopicOutcome | None]] = []
        problem = ""
        left = list(planned)
        for _ in range(ROUNDS_MAX):
            if not left:
                return settled
            try:
                nodes = yield from self._io.read(
                    [path for each in left for path in (paths.topic_path(each.name), _config_path(each))]
                )
            except UnsureError as error:
                problem = str(error)
                continue
            writes: list[tuple[_Planned, list[Operation]]] = []
            for each, topic_node, config_node in zip(left, nodes[::2], nodes[1::2], strict=True):
                if topic_node is not None:
                    # Ours if the reply of an earlier round was lost: nobody else drew this topic id.
                    is_ours = isinstance(topic_node, Znode) and topic_node.data == each.record.encode()
                    settled.append((each, None if is_ours else refused(exists(each.name))))
                elif isinstance(config_node, Unreadable):
                    text = f"{config_node.problem} (let the brokers read and write it)"
                    settled.append((each, TopicOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, text)))
                else:
                    writes.append((each, _creation(each, config_node)))
            left = []
            ids = [self._io.begin_write(operations) for _, operations in writes]
            for (each, _), outcome in zip(writes, (yield from self._io.outcomes(ids)), strict=True):
                if isinstance(outcome, Done):
                    settled.append((each, None))
                elif isinstance(outcome, Unknown) or outcome.is_lost_race:
                    problem = outcome.problem
                    left.append(each)
                else:
                    settled.append((each, _failed(declined(outcome))))
        if left:
            raise UnsureError(f"the creation of topic {left[0].name}: {problem}")
        return settled

    def extend(
        self, counts: Sequence[NewPartitions], *, validate_only: bool
    ) -> Steps[dict[str, TopicOutcome]]:
        """Add partitions to topics, each on its own: {name: outcome}."""
        self._partitions = self._model.partition_count()
        outcomes: dict[str, TopicOutcome] = {}
        for wanted in counts:
            try:
                outcomes[wanted.name] = yield from self._extend(wanted, validate_only=validate_only)
            except DeclinedError as error:
                outcomes[wanted.name] = _failed(error)
        return outcomes

    def _extend(self, wanted: NewPartitions, *, validate_only: bool) -> Steps[TopicOutcome]:
        planned = plan_partitions(self._model, wanted, self._spread())
        if isinstance(planned, Refused):
            return refused(planned)
        known = self._model.topics[wanted.name]
        record = replace(known.record, partitions={**known.record.partitions, **planned})
        problem = too_large(record) or self._take_room(len(planned))
        if problem is not None:
            return refused(problem)
        if not validate_only and not (
            yield from set_topic(self._io, wanted.name, record, known.topic_version)
        ):
            return TopicOutcome(ErrorCode.INVALID_REQUEST, "the topic changed meanwhile: ask again")
        return TopicOutcome(ErrorCode.NONE, None, record.topic_id, len(record.partitions))

    def request_deletions(self, names: Sequence[str]) -> Steps[dict[str, TopicOutcome]]:
        """Request the deletion of topics, each on its own: {name: outcome}; the brokers come next."""
        outcomes: dict[str, TopicOutcome] = {}
        for name in names:
            known = self._model.topics.get(name)
            if known is None and name not in self._model.left_alone:
                text = f"This server does not host this topic-partition. {paths.missing_topic(name)}"
                outcomes[name] = refused(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
                continue
            rejected = yield from self._io.write(CreateNode(paths.delete_topic_path(name), b""))
            if rejected is None or rejected.why is Why.NODE_EXISTS:
                outcomes[name] = TopicOutcome(
                    ErrorCode.NONE, None, None if known is None else known.record.topic_id
                )
            else:
                outcomes[name] = _failed(declined(rejected))
        return outcomes

    def _take_room(self, added: int) -> Refused | None:
        problem = check_room(self._partitions, added, self._partitions_max)
        self._partitions += added if problem is None else 0
        return problem

    def _spread(self) -> Spread:
        brokers = max(1, len(self._model.brokers))
        return Spread(self._draws.below(brokers), self._draws.below(brokers))


def _creation(planned: _Planned, config_node: Znode | None) -> list[Operation]:
    operations: list[Operation] = [CreateNode(paths.topic_path(planned.name), planned.record.encode())]
    value = TopicConfigRecord(dict(planned.settings)).encode()
    if config_node is not None:
        operations.append(SetData(_config_path(planned), value, config_node.version))
    elif planned.settings:
        operations.append(CreateNode(_config_path(planned), value))
    return operations


def _config_path(planned: _Planned) -> str:
    return paths.config_topic_path(planned.name)


def _failed(error: DeclinedError) -> TopicOutcome:
    return TopicOutcome(error.error_code, str(error))
