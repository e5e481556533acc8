"""Which brokers came, went or bounced, and whose disk is another one.

A broker is its id *and* its generation: the same id with a higher generation has died and come back between
two looks. A registration with another incarnation than the one by which its ISR memberships were judged is
an outcast until they are judged again; one that names shortened logs loses the memberships of these alone,
once for that generation. In a topic that nothing can be decided about they stay in doubt, and what is
recorded says so, until that topic is judged, too.
Source: KIP-380, "Controller Detects Bounced Broker"; docs/internals/requirements.md, [1.5]; ARCHITECTURE.md,
"Life of a broker failure"; docs/concepts/guarantees.md, "What kills, disks and power cost".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from controller.core import fences
from controller.core.model import Doubt, KnownTopic, LiveBroker
from quorum.metadata.records import BrokerRecord, IncarnationRecord, topic_label

#: The listener that takes control requests and replica fetches.
BROKER_LISTENER: Final = "BROKER"
#: The listener that clients are sent to.
CLIENT_LISTENER: Final = "CLIENT"
#: The one that clients are sent to who came by TLS.
TLS_LISTENER: Final = "SSL"


class BrokerDiff(NamedTuple):
    """What changed between two looks at the registrations; ids by rising number."""

    new: tuple[int, ...]
    dead: tuple[int, ...]
    bounced: tuple[int, ...]

    def __bool__(self) -> bool:
        """Say whether anything changed."""
        return bool(self.new or self.dead or self.bounced)


def diff_brokers(known: Mapping[int, LiveBroker], current: Mapping[int, LiveBroker]) -> BrokerDiff:
    """Compare what the controller knows with the present registrations."""
    return BrokerDiff(
        new=tuple(sorted(current.keys() - known.keys())),
        dead=tuple(sorted(known.keys() - current.keys())),
        bounced=tuple(
            sorted(
                each
                for each in current.keys() & known.keys()
                if current[each].generation > known[each].generation
            )
        ),
    )


def find_doubts(
    broker: LiveBroker,
    judged: IncarnationRecord | None,
    topics: Mapping[str, KnownTopic],
    left_alone: Iterable[str],
) -> dict[str, Doubt]:
    """Return {topic in which the ISR memberships of a broker are to be judged: why}.

    Args:
        broker: its registration.
        judged: by what they were judged last; None: it was never a member.
        topics: the known ones.
        left_alone: topics that exist and may not be known.
    """
    record = broker.record
    if record.incarnation is None:
        return {}
    known = judged or IncarnationRecord(record.incarnation)
    has_news = known.generation != broker.generation
    if known.incarnation == record.incarnation and not record.shortened and not known.topics:
        return {}
    doubts: dict[str, Doubt] = {}
    for topic in dict.fromkeys((*topics, *left_alone)):
        if fences.is_other_disk(known.topics.get(topic, known.incarnation), record.incarnation):
            doubts[topic] = None
        elif (
            record.shortened
            and (has_news or topic in known.topics)
            and (topic not in topics or topic_label(topic, topics[topic].record.topic_id) in record.shortened)
        ):
            doubts[topic] = record.shortened
    return doubts


def judgement(
    broker: LiveBroker, judged: IncarnationRecord | None, unsettled: Iterable[str]
) -> IncarnationRecord | None:
    """Return what is to be recorded once a broker's memberships are judged; None: nothing new.

    Args:
        broker: its registration.
        judged: what is recorded.
        unsettled: topics with doubts that nothing could be decided about.
    """
    generation, record = broker
    if record.incarnation is None:
        return None
    known = judged or IncarnationRecord(record.incarnation)
    judged_generation = known.generation if known.incarnation == record.incarnation else -1
    result = IncarnationRecord(
        record.incarnation,
        generation if record.shortened else judged_generation,
        {topic: known.topics.get(topic, known.incarnation) for topic in sorted(unsettled)},
    )
    return None if result == judged else result


class Endpoint(NamedTuple):
    """One listener of a broker."""

    listener: str
    host: str
    port: int


def endpoints_of(record: BrokerRecord) -> list[Endpoint]:
    """Return the listeners of a registration; one that is no LISTENER://host:port is left out."""
    found: list[Endpoint] = []
    for text in record.endpoints:
        listener, scheme, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if scheme and colon and port.isascii() and port.isdecimal() and int(port) <= 65535:
            found.append(Endpoint(listener, host.removeprefix("[").removesuffix("]"), int(port)))
    return found


def broker_endpoint(record: BrokerRecord) -> Endpoint | None:
    """Return where a broker takes control requests, or None if its registration does not say."""
    return next((each for each in endpoints_of(record) if each.listener == BROKER_LISTENER), None)
