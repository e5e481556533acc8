"""Keeps the model equal to the quorum: what is dirty is read again, and the brokers are owed what changed.

A record that cannot be read is logged once; its topic is left alone until it can be read again. A topic that
went without a request (its znode was deleted) is stopped on its brokers all the same. A topic without an id
(created by an old tool, or by hand) gets one before anything is decided about it.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.C], [3.x].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controller.core import fences
from controller.core.channels import Channels
from controller.core.dirty import Dirty
from controller.core.draws import Draws
from controller.core.effects import SetData
from controller.core.inputs import Unreadable
from controller.core.io import Io, Steps, parts_of, rest
from controller.core.model import Change, ClusterModel, KnownState, KnownTopic
from controller.core.reading import read_states, read_topics
from quorum.metadata import paths
from quorum.metadata.numbers import drawn_topic_id, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord

#: Topics that get their ids at the same time.
NAMED_MAX: Final = 1_000

_FoundTopic = KnownTopic | Unreadable | None


class Cache:
    """The model of one term, and what must be read again."""

    def __init__(self, io: Io, model: ClusterModel, channels: Channels, draws: Draws) -> None:
        """Hold nothing yet, everything dirty."""
        self.dirty = Dirty()
        self._io = io
        self._model = model
        self._channels = channels
        self._draws = draws
        #: {topic: why it was left alone, as it was logged}
        self._logged: dict[str, str] = {}

    def refresh(self) -> Steps[list[PartitionKey]]:
        """Read what is dirty, and return the partitions that must be decided about."""
        work = self.dirty.take()
        topics = dict.fromkeys(work.topics)
        # A state in a topic that is left alone may have been what was wrong with it.
        topics.update(dict.fromkeys(key.topic for key in work.states if key.topic in self._model.left_alone))
        if work.everything:
            names = yield from self._io.read_children(paths.BROKER_TOPICS)
            topics = dict.fromkeys((*names, *self._model.topics, *self._model.left_alone))
        touched: dict[PartitionKey, None] = {}
        if topics:
            read = yield from read_topics(self._io, list(topics))
            yield from self._give_ids(read)
            for topic, found in read.items():
                touched.update(dict.fromkeys(self._take_topic(topic, found)))
        touched.update(dict.fromkeys(key for key in work.states if self._model.replicas(key)))
        if touched:
            states = yield from read_states(self._io, list(touched))
            for part in parts_of(list(states.items())):
                for key, state in part:
                    self._take_state(key, state)
                yield from rest(part)
        return list(touched)

    def take_written(
        self, states: Mapping[PartitionKey, KnownState], created: Mapping[PartitionKey, object]
    ) -> Steps[None]:
        """Take what the controller has written itself, once it is acknowledged."""
        self.dirty.account_for(states)
        for part in parts_of(list(states.items())):
            for key, known in part:
                if self._model.replicas(key):
                    self._publish(key, known, is_new=key in created)
            yield from rest(part)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic that is gone, and have its replicas deleted where that was not done."""
        keys = self._model.keys_of(topic)
        if topic not in self._model.deleting:
            self._channels.owe_stops(keys)
            self._channels.owe_metadata(keys)
        self._model.drop_topic(topic)
        self._logged.pop(topic, None)

    def leave_alone(self, topic: str, problem: str) -> None:
        """Decide nothing about a topic until it is read again; the reason is logged once."""
        self._model.left_alone[topic] = problem
        if self._logged.get(topic) != problem:
            self._logged[topic] = problem
            self._io.warn(f"topic {topic} is left alone: {problem}")

    def _give_ids(self, read: dict[str, _FoundTopic]) -> Steps[None]:
        """Give an id to topics without one, and replace what was read by what stands then."""
        nameless = [
            (topic, found)
            for topic, found in read.items()
            if isinstance(found, KnownTopic) and found.record.topic_id is None
        ]
        for part in parts_of(nameless, NAMED_MAX):
            named = [
                KnownTopic(self._with_id(topic, found), next_version(found.topic_version))
                for topic, found in part
            ]
            rejections = yield from self._io.write_all(
                [
                    [SetData(paths.topic_path(topic), now.record.encode(), found.topic_version)]
                    for (topic, found), now in zip(part, named, strict=True)
                ]
            )
            for (topic, _), now, rejected in zip(part, named, rejections, strict=True):
                if rejected is None:
                    read[topic] = now
                    self._io.info(f"topic {topic} got the id {now.record.topic_id}")
                elif rejected.is_lost_race:
                    # The event of that change begins another pass.
                    self.dirty.mark_topic(topic)
                    read[topic] = Unreadable("it gets no id: it changed meanwhile")
                else:
                    read[topic] = Unreadable(f"it gets no id: {rejected.problem}")

    def _with_id(self, topic: str, found: KnownTopic) -> TopicRecord:
        # A tool that knows no ids may have overwritten the assignment: then the topic keeps its id.
        before = self._model.topics.get(topic)
        topic_id = None if before is None else before.record.topic_id
        return replace(found.record, topic_id=topic_id or drawn_topic_id(self._draws.bits()))

    def _take_topic(self, topic: str, found: _FoundTopic) -> list[PartitionKey]:
        before = self._model.topics.get(topic)
        match found:
            case None:
                self._model.left_alone.pop(topic, None)
                if before is not None:
                    self.drop_topic(topic)
                return []
            case Unreadable(problem):
                self.leave_alone(topic, problem)
                return []
            case KnownTopic(record):
                self._model.left_alone.pop(topic, None)
                if before is not None and fences.is_other_topic(before, record):
                    # The replicas of the former one go first.
                    self.drop_topic(topic)
                elif before is not None and (
                    missing := sorted(before.record.partitions.keys() - record.partitions.keys())
                ):
                    # Nobody can mean that: it would delete their records.
                    self.leave_alone(topic, f"partition {missing[0]} is missing from its assignment")
                    return []
                self._model.topics[topic] = found
                return self._model.keys_of(topic)

    def _take_state(self, key: PartitionKey, found: KnownState | Unreadable | None) -> None:
        match found:
            case None:
                if key in self._model.states:
                    # A first state would put every live replica into the ISR, whatever it holds.
                    self.leave_alone(key.topic, f"the state of partition {key.partition} was deleted")
            case Unreadable(problem):
                self.leave_alone(key.topic, problem)
            case KnownState():
                self._publish(key, found, is_new=False)

    def _publish(self, key: PartitionKey, known: KnownState, *, is_new: bool) -> None:
        match self._model.put_state(key, known):
            case Change.LEADERSHIP:
                self._channels.owe_leadership(key, is_new=is_new)
            case Change.ISR:
                self._channels.owe_metadata((key,))
            case Change.NONE:
                pass
