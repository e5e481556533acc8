"""Keeps the model equal to the quorum: what is dirty is read again, and the brokers learn what changed.

Decides nothing. A record that cannot be read is logged once; its topic is left alone until it can be read
again. A topic that went without a request (its znode was deleted) is stopped on its brokers all the same.
A topic without an id (created by an old tool, or by hand) gets one before anything is decided about it.
Source: control-plane design, "Controller" (cache, malformed records); seeds [0.C] 2, [3].
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from controller.core.channels import Channels
from controller.core.dirty import Dirty
from controller.core.model import Change, ClusterModel, KnownState, KnownTopic
from controller.runtime.reader import Unreadable, read_children, read_states, read_topics
from controller.runtime.store import Store
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import concerns_term
from quorum.metadata.numbers import next_version
from quorum.metadata.paths import PartitionKey
from quorum.platform.pace import Pace

#: Topics that get their ids at the same time.
NAMED_MAX: Final = 1_000

log = logging.getLogger("quorate.controller")

_Found = KnownTopic | Unreadable | None


class Cache:
    """The model of one term, and what must be read again."""

    def __init__(
        self, client: Client, model: ClusterModel, store: Store, channels: Channels, rng: random.Random
    ) -> None:
        """Hold nothing yet, everything dirty; rng draws the ids of topics that have none."""
        self.dirty = Dirty()
        self._client = client
        self._model = model
        self._store = store
        self._channels = channels
        self._rng = rng
        #: {topic: why it was left alone, as it was logged}
        self._logged: dict[str, str] = {}

    async def refresh(self) -> list[PartitionKey]:
        """Read what is dirty, and return the partitions that must be decided about.

        Raises:
            ConnectionLossError: mark everything as dirty and repeat it.
        """
        work = self.dirty.take()
        topics = dict.fromkeys(work.topics)
        # A state in a topic that is left alone may have been what was wrong with it.
        topics.update(dict.fromkeys(key.topic for key in work.states if key.topic in self._model.left_alone))
        if work.everything:
            topics = dict.fromkeys(await read_children(self._client, paths.BROKER_TOPICS))
            topics.update(dict.fromkeys((*self._model.topics, *self._model.left_alone)))
        touched: dict[PartitionKey, None] = {}
        if topics:
            read = await read_topics(self._client, list(topics))
            for topic, found in (await self._with_ids(read)).items():
                touched.update(dict.fromkeys(self._take_topic(topic, found)))
        touched.update(dict.fromkeys(key for key in work.states if self._model.replicas(key)))
        if touched:
            for key, state in (await read_states(self._client, list(touched))).items():
                self._take_state(key, state)
        return list(touched)

    async def take_written(
        self, states: Mapping[PartitionKey, KnownState], created: Mapping[PartitionKey, object]
    ) -> None:
        """Take what the controller has written itself, once it is acknowledged."""
        self.dirty.account_for(states)
        pace = Pace()
        for key, known in states.items():
            await pace.rest()
            if self._model.replicas(key):
                self._publish(key, known, is_new=key in created)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic that is gone, and have its replicas deleted where that was not done."""
        keys = self._model.keys_of(topic)
        if topic not in self._model.deleting:
            self._channels.owe_stops(keys)
            self._channels.owe_metadata(keys)
        self._model.drop_topic(topic)
        self._logged.pop(topic, None)

    async def _with_ids(self, read: dict[str, _Found]) -> dict[str, _Found]:
        """Give an id to topics without one."""
        nameless = {
            topic: found
            for topic, found in read.items()
            if isinstance(found, KnownTopic) and found.record.topic_id is None
        }
        if not nameless:
            return read
        found_now = dict(read)
        names = list(nameless)
        for start in range(0, len(names), NAMED_MAX):
            part = names[start : start + NAMED_MAX]
            named = await asyncio.gather(*(self._name(each, nameless[each]) for each in part))
            found_now.update(zip(part, named, strict=True))
        return found_now

    async def _name(self, topic: str, found: KnownTopic) -> _Found:
        # A tool that knows no ids may have overwritten the assignment: then the topic keeps its id.
        before = self._model.topics.get(topic)
        topic_id = None if before is None else before.record.topic_id
        drawn = topic_id or uuid.UUID(int=self._rng.getrandbits(128), version=4)
        record = replace(found.record, topic_id=drawn)
        try:
            is_written = await self._store.set_topic(topic, record, found.topic_version)
        except QuorateError as error:
            if concerns_term(error):
                raise
            return Unreadable(f"it gets no id: {error.message}")
        if not is_written:
            # The event of that change wakes the loop.
            self.dirty.mark_topic(topic)
            return Unreadable("it gets no id: it changed meanwhile")
        log.info("topic %s got the id %s", topic, drawn)
        return KnownTopic(record, next_version(found.topic_version))

    def _take_topic(self, topic: str, found: _Found) -> list[PartitionKey]:
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
                if before is not None and before.record.topic_id != record.topic_id:
                    # Deleted and created again between two looks: the replicas of the former go first.
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

    def leave_alone(self, topic: str, problem: str) -> None:
        """Decide nothing about a topic until it is read again; the reason is logged once."""
        self._model.left_alone[topic] = problem
        if self._logged.get(topic) != problem:
            self._logged[topic] = problem
            log.warning("topic %s is left alone: %s", topic, problem)
