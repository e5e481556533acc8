"""Which topics and partition states must be read again before the next decision.

Events of one recursive watch come in; what they concern comes out once, however many there were. A write of
the controller itself causes an event too, which arrives before the reply to the write: counting the events
of a state tells that one from the write of somebody else, whose event makes two. So events of own writes are
counted by their paths, and only what is left is taken apart.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from quorum.metadata.paths import BROKER_TOPICS, PartitionKey, partition_state_path

#: States that are remembered one by one; beyond that everything is read again.
DIRTY_STATES_MAX: Final = 100_000

_PREFIX: Final = f"{BROKER_TOPICS}/"
_STATE: Final = re.compile(f"{_PREFIX}[^/]+/partitions/(?:0|[1-9][0-9]{{0,10}})/state")


class Concern(Enum):
    """What an event is about."""

    NOTHING = "nothing"
    TOPIC = "topic"
    STATE = "state"


class DirtyWork(NamedTuple):
    """What to read again."""

    everything: bool
    topics: list[str]
    states: list[PartitionKey]


class Dirty:
    """The marks."""

    def __init__(self) -> None:
        """Begin with everything: a new controller knows nothing."""
        self._everything = True
        self._topics: dict[str, None] = {}
        #: {path of a state: events that nobody has accounted for}
        self._states: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Say whether anything must be read."""
        return bool(self._everything or self._topics or self._states)

    def note(self, path: str) -> Concern:
        """Take the path of an event below /brokers/topics and say what it is about."""
        if _STATE.fullmatch(path) is None:
            topic = path.removeprefix(_PREFIX)
            if topic == path or "/" in topic:
                return Concern.NOTHING
            self._topics[topic] = None
            return Concern.TOPIC
        self._states[path] = self._states.get(path, 0) + 1
        if len(self._states) > DIRTY_STATES_MAX:
            self.mark_everything()
        return Concern.STATE

    def mark_everything(self) -> None:
        """Read all again, as after a connection that may have missed events."""
        self._everything = True
        self._topics.clear()
        self._states.clear()

    def mark_topic(self, topic: str) -> None:
        """Read one topic and its states again."""
        self._topics[topic] = None

    def mark_states(self, keys: Iterable[PartitionKey]) -> None:
        """Read some states again."""
        for path in map(partition_state_path, keys):
            self._states[path] = self._states.get(path, 0) + 1

    def account_for(self, keys: Iterable[PartitionKey]) -> None:
        """Take away the events of own writes that are acknowledged."""
        for path in map(partition_state_path, keys):
            events = self._states.get(path, 0) - 1
            if events > 0:
                self._states[path] = events
            else:
                self._states.pop(path, None)

    def take(self) -> DirtyWork:
        """Return what is marked and mark nothing any more."""
        work = DirtyWork(self._everything, list(self._topics), list(map(_key_of, self._states)))
        self._everything = False
        self._topics.clear()
        self._states.clear()
        return work


def _key_of(state_path: str) -> PartitionKey:
    topic, _, number, _ = state_path.removeprefix(_PREFIX).split("/")
    return PartitionKey(topic, int(number))
