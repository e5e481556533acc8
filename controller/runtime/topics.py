"""Topics on request: create, extend, delete; each is judged by the core and written by the store.

Runs inside the controller's one loop, after the cache was brought up to date. Only what is committed is
reported as done; who leads the new partitions is decided right after, as for topics that come by znode.
Source: Kafka's CreateTopics, CreatePartitions and DeleteTopics (3.9); seeds [0.C].
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.core.channels import Channels
from controller.core.model import ClusterModel
from controller.core.options import ControllerOptions
from controller.core.outcomes import TopicOutcome, refused, too_large
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import (
    Defaults,
    Reason,
    Refused,
    Spread,
    check_room,
    collisions,
    exists,
    plan_partitions,
    plan_topic,
)
from controller.runtime.cache import Cache
from controller.runtime.reader import read_children
from controller.runtime.store import Store
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.client import Client, ClientError
from quorum.errors import QuorateError, quoted
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, InvalidTopicSettingError, concerns_term
from quorum.metadata.records import TopicRecord
from quorum.metadata.topic_settings import check_topic_settings
from quorum.platform.pace import Pace

log = logging.getLogger("quorate.controller")

#: Topics of a request whose writes are under way at once; others have their turn between them.
CREATED_AT_ONCE_MAX: Final = 100


class TopicAdmin:
    """Creates and extends topics in one term."""

    def __init__(
        self, model: ClusterModel, store: Store, options: ControllerOptions, rng: random.Random
    ) -> None:
        """Decide from a model, write by a store; rng spreads replicas."""
        self._model = model
        self._store = store
        self._rng = rng
        self._partitions_max = options.partitions_max
        #: Partitions of all topics, with those that the present request has asked for so far.
        self._partitions = 0
        self._segment_bytes_min = options.segment_bytes_min
        self._defaults = Defaults(options.default_num_partitions, options.default_replication_factor)

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> dict[str, TopicOutcome]:
        """Create topics with different names, each on its own: {name: outcome}."""
        self._partitions = self._model.partition_count()
        outcomes: dict[str, TopicOutcome] = {}
        colliding = collisions(self._model, [topic.name for topic in topics])
        for first in range(0, len(topics), CREATED_AT_ONCE_MAX):
            some = topics[first : first + CREATED_AT_ONCE_MAX]
            # Pipelined; all settle before an error is raised, so that none is still under way afterwards.
            settled = await asyncio.gather(
                *(_outcome(self._create(topic, colliding.get(topic.name), validate_only)) for topic in some),
                return_exceptions=True,
            )
            for topic, outcome in zip(some, settled, strict=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                outcomes[topic.name] = outcome
        return outcomes

    async def _create(self, topic: NewTopic, collides_with: str | None, validate_only: bool) -> TopicOutcome:
        planned = plan_topic(self._model, topic, self._defaults, self._spread(), collides_with)
        if isinstance(planned, Refused):
            return refused(planned)
        settings = _given_settings(topic.settings, self._segment_bytes_min)
        if isinstance(settings, Refused):
            return refused(settings)
        outcome = TopicOutcome(
            ErrorCode.NONE,
            num_partitions=len(planned),
            replication_factor=len(planned[0]),
            settings=settings,
        )
        record = TopicRecord(uuid.UUID(int=self._rng.getrandbits(128), version=4), dict(planned))
        problem = too_large(record) or self._take_room(len(planned))
        if problem is not None:
            return refused(problem)
        if validate_only:
            return outcome
        if not await self._store.create_topic(topic.name, record, settings):
            return refused(exists(topic.name))
        log.info("created topic %s: %d partitions", topic.name, len(planned))
        return replace(outcome, topic_id=record.topic_id)

    async def extend(
        self, counts: Sequence[NewPartitions], *, validate_only: bool
    ) -> dict[str, TopicOutcome]:
        """Add partitions to topics, each on its own: {name: outcome}."""
        self._partitions = self._model.partition_count()
        return {wanted.name: await _outcome(self._extend(wanted, validate_only)) for wanted in counts}

    async def _extend(self, wanted: NewPartitions, validate_only: bool) -> TopicOutcome:
        planned = plan_partitions(self._model, wanted, self._spread())
        if isinstance(planned, Refused):
            return refused(planned)
        known = self._model.topics[wanted.name]
        record = replace(known.record, partitions={**known.record.partitions, **planned})
        problem = too_large(record) or self._take_room(len(planned))
        if problem is not None:
            return refused(problem)
        if not validate_only and not await self._store.set_topic(wanted.name, record, known.topic_version):
            return TopicOutcome(ErrorCode.INVALID_REQUEST, "the topic changed meanwhile: ask again")
        return TopicOutcome(ErrorCode.NONE, None, record.topic_id, len(record.partitions))

    async def request_deletions(self, names: Sequence[str]) -> dict[str, TopicOutcome]:
        """Request the deletion of topics, each on its own: {name: outcome}; the brokers come next."""
        return {name: await _outcome(self._request_deletion(name)) for name in names}

    async def _request_deletion(self, name: str) -> TopicOutcome:
        known = self._model.topics.get(name)
        if known is None and name not in self._model.left_alone:
            problem = f"This server does not host this topic-partition. {paths.missing_topic(name)}"
            return refused(Refused(Reason.UNKNOWN, problem))
        await self._store.request_deletion(name)
        return TopicOutcome(ErrorCode.NONE, None, None if known is None else known.record.topic_id)

    def _take_room(self, added: int) -> Refused | None:
        problem = check_room(self._partitions, added, self._partitions_max)
        self._partitions += added if problem is None else 0
        return problem

    def _spread(self) -> Spread:
        brokers = max(1, len(self._model.brokers))
        return Spread(self._rng.randrange(brokers), self._rng.randrange(brokers))


async def _outcome(work: Awaitable[TopicOutcome]) -> TopicOutcome:
    """Return the outcome of one topic, also where the quorum refuses it: the others are not concerned."""
    try:
        return await work
    except QuorateError as error:
        if concerns_term(error):
            raise
        return failed(error)


def failed(error: QuorateError) -> TopicOutcome:
    """Return the outcome of a request that the quorum did not carry out."""
    return TopicOutcome(code_of_error(error), str(error))


def _given_settings(settings: Mapping[str, str | None], segment_bytes_min: int) -> dict[str, str] | Refused:
    given: dict[str, str] = {}
    for name, value in settings.items():
        if value is None:
            nulls = ",".join(name for name, value in settings.items() if value is None)
            problem = f"Null value not supported for topic configs: {quoted(nulls)}; leave them out"
            return Refused(Reason.BAD_SETTING, problem)
        given[name] = value
    try:
        check_topic_settings(given, segment_bytes_min=segment_bytes_min)
    except InvalidTopicSettingError as error:
        return Refused(Reason.BAD_SETTING, str(error))
    return given


class Deletions:
    """Topics on their way out: their brokers delete the replicas, then their znodes go.

    A deletion ends when every live broker has answered all that concerns the topic. Brokers that are dead
    keep their replicas as strays and find out by the topic's id when they start.
    """

    def __init__(
        self, client: Client, model: ClusterModel, store: Store, cache: Cache, channels: Channels
    ) -> None:
        """Delete nothing yet."""
        self._client = client
        self._model = model
        self._store = store
        self._cache = cache
        self._channels = channels
        #: {topic: why it could not be removed, as it was logged}
        self.refused: dict[str, str] = {}

    async def begin(self) -> None:
        """Take the requests below /admin/delete_topics: nothing is decided about these topics any more."""
        pace = Pace()
        for topic in await read_children(self._client, paths.DELETE_TOPICS):
            await pace.rest()
            if topic in self._model.deleting:
                continue
            if topic not in self._model.topics:
                # It may have come since the cache was read.
                self._cache.dirty.mark_topic(topic)
                await self._cache.refresh()
            log.info("deleting topic %s", topic)
            keys = self._model.keys_of(topic)
            self._model.deleting[topic] = None
            self._channels.owe_stops(keys)
            self._channels.owe_metadata(keys)

    async def finish(self) -> list[str]:
        """Remove the topics that no live broker holds any more, and return them."""
        gone: list[str] = []
        pending = self._channels.pending_topics() if self._model.deleting else ()
        for topic in [each for each in self._model.deleting if each not in pending]:
            try:
                await self._store.remove_topic(topic)
            except (ClientError, ContendedError) as error:
                if concerns_term(error) and not isinstance(error, ContendedError):
                    raise
                if self.refused.get(topic) != error.message:
                    self.refused[topic] = error.message
                    log.warning("topic %s cannot be removed yet: %s", topic, error.message)
                continue
            self.refused.pop(topic, None)
            self._cache.drop_topic(topic)
            log.info("topic %s is deleted", topic)
            gone.append(topic)
        return gone
