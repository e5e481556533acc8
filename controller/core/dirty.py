"""Which topics and partition states must be read again before the next decision.

Events of one recursive watch come in; what they concern comes out once, however many there were. A write of
the controller itself causes an event too, which arrives before the reply to the write: counting the events
of a state tells that one from the write of somebody else, whose event makes two.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from quorum.metadata.paths import BROKER_TOPICS, PartitionKey

#: States that are remembered one by one; beyond that everything is read again.
DIRTY_STATES_MAX: Final = 100_000

_PREFIX: Final = f"{BROKER_TOPICS}/"


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
        #: {partition: events that nobody has accounted for}
        self._states: dict[PartitionKey, int] = {}

    def __bool__(self) -> bool:
        """Say whether anything must be read."""
        return bool(self._everything or self._topics or self._states)

    def note(self, path: str) -> Concern:
        """Take the path of an event below /brokers/topics and say what it is about."""
        parts = path.removeprefix(_PREFIX).split("/")
        if path == BROKER_TOPICS or not path.startswith(_PREFIX):
            return Concern.NOTHING
        if len(parts) == 1:
            self._topics[parts[0]] = None
            return Concern.TOPIC
        if len(parts) != 4 or parts[1] != "partitions" or parts[3] != "state":
            return Concern.NOTHING
        number = parts[2]
        if not (number.isascii() and number.isdecimal() and number == str(int(number[:11]))):
            return Concern.NOTHING
        key = PartitionKey(parts[0], int(number))
        self._states[key] = self._states.get(key, 0) + 1
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
        for key in keys:
            self._states[key] = self._states.get(key, 0) + 1

    def account_for(self, keys: Iterable[PartitionKey]) -> None:
        """Take away the events of own writes that are acknowledged."""
        for key in keys:
            events = self._states.get(key, 0) - 1
            if events > 0:
                self._states[key] = events
            else:
                self._states.pop(key, None)

    def take(self) -> DirtyWork:
        """Return what is marked and mark nothing any more."""
        work = DirtyWork(self._everything, list(self._topics), list(self._states))
        self._everything = False
        self._topics.clear()
        self._states.clear()
        return work
