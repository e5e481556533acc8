"""Topics on their way out: their brokers delete the replicas, then their znodes go.

A deletion ends when every live broker has answered all that concerns the topic. Brokers that are dead keep
their replicas as strays and find out by the topic's id when they start.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.C].
"""

from __future__ import annotations

from typing import Final

from controller.core.cache import Cache
from controller.core.channels import Channels
from controller.core.effects import DeleteNode
from controller.core.inputs import Rejected
from controller.core.io import DeclinedError, Io, Steps, declined, parts_of, rest
from controller.core.model import ClusterModel
from controller.core.writing import ROUNDS_MAX
from controller.wire.codes import ErrorCode
from quorum.metadata import paths

#: Operations of one multi that removes a topic.
REMOVALS_MAX: Final = 1_000


class Deletions:
    """The deletions of one term."""

    def __init__(self, io: Io, model: ClusterModel, cache: Cache, channels: Channels) -> None:
        """Delete nothing yet."""
        self._io = io
        self._model = model
        self._cache = cache
        self._channels = channels
        #: {topic: why it could not be removed, as it was logged}
        self.refused: dict[str, str] = {}

    def begin(self) -> Steps[None]:
        """Take the requests below /admin/delete_topics: nothing is decided about these topics any more."""
        names = yield from self._io.read_children(paths.DELETE_TOPICS)
        for part in parts_of(names):
            for topic in part:
                if topic not in self._model.deleting:
                    yield from self._begin(topic)
            yield from rest(part)

    def _begin(self, topic: str) -> Steps[None]:
        if topic not in self._model.topics:
            # It may have come since the cache was read.
            self._cache.dirty.mark_topic(topic)
            yield from self._cache.refresh()
        self._io.info(f"deleting topic {topic}")
        keys = self._model.keys_of(topic)
        self._model.deleting[topic] = None
        self._channels.owe_stops(keys)
        self._channels.owe_metadata(keys)

    def finish(self) -> Steps[bool]:
        """Remove the topics that no live broker holds any more; True if there were any."""
        has_removed = False
        pending = self._channels.pending_topics() if self._model.deleting else ()
        for topic in [each for each in self._model.deleting if each not in pending]:
            try:
                yield from self._remove(topic)
            except DeclinedError as error:
                if self.refused.get(topic) != error.problem:
                    self.refused[topic] = error.problem
                    self._io.warn(f"topic {topic} cannot be removed yet: {error.problem}")
                continue
            self.refused.pop(topic, None)
            self._cache.drop_topic(topic)
            self._io.info(f"topic {topic} is deleted")
            has_removed = True
        return has_removed

    def _remove(self, topic: str) -> Steps[None]:
        """Remove in this order a topic's states, the topic, its settings and the request to delete it."""
        for _ in range(ROUNDS_MAX):
            if (yield from self._remove_nodes((yield from self._existing_nodes(topic)))):
                return
        problem = f"the removal of topic {topic}: the nodes changed in each of {ROUNDS_MAX} rounds"
        raise DeclinedError(problem, ErrorCode.REQUEST_TIMED_OUT, "try again later")

    def _remove_nodes(self, nodes: list[str]) -> Steps[bool]:
        for part in parts_of(nodes, REMOVALS_MAX):
            rejected: Rejected | None = yield from self._io.write(*map(DeleteNode, part))
            if rejected is not None and not rejected.is_lost_race:
                raise declined(rejected)
            if rejected is not None:
                return False
        return True

    def _existing_nodes(self, topic: str) -> Steps[list[str]]:
        """Return what there is of a topic, children first."""
        parent = paths.topic_partitions_path(topic)
        names = yield from self._io.read_children(parent)
        partitions = [f"{parent}/{name}" for name in names]
        wanted = [
            *(path for partition in partitions for path in (f"{partition}/state", partition)),
            *(parent, paths.topic_path(topic), paths.config_topic_path(topic)),
            paths.delete_topic_path(topic),
        ]
        nodes = yield from self._io.read(wanted)
        return [path for path, node in zip(wanted, nodes, strict=True) if node is not None]
