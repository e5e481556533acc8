"""Which brokers came, went or bounced, and whose disk is another one.

A broker is its id *and* its generation: the same id with a higher generation has died and come back between
two looks. A registration with another incarnation than the one by which its ISR memberships were judged is
an outcast until they are judged again; one that names shortened logs loses the memberships of these alone,
once for that generation.
Source: KIP-380, "Controller Detects Bounced Broker"; seeds [1.5]; control-plane design, "Registration", "A
shortened log says so".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.core.model import KnownTopic, LiveBroker
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, IncarnationRecord, LogEnd, topic_label

#: The listener that takes control requests and replica fetches.
BROKER_LISTENER: Final = "BROKER"


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


def find_outcasts(current: Mapping[int, LiveBroker], judged: Mapping[int, str]) -> tuple[int, ...]:
    """Return the brokers whose disk is another one than that of their ISR memberships, by rising id.

    Args:
        current: the present registrations.
        judged: {broker id: incarnation by which its memberships were judged}; one without was never a member.
    """
    return tuple(
        sorted(
            each
            for each, broker in current.items()
            if broker.record.incarnation is not None
            and judged.get(each, broker.record.incarnation) != broker.record.incarnation
        )
    )


def find_shortened(
    current: Mapping[int, LiveBroker], judged: Mapping[int, int], topics: Mapping[str, KnownTopic]
) -> dict[PartitionKey, dict[int, LogEnd]]:
    """Return {partition: {broker id: where its log ends}} of the shortened logs that are still to be judged.

    Args:
        current: the present registrations.
        judged: {broker id: generation whose shortened logs were judged last}.
        topics: the known ones.
    """
    news = {
        each: broker.record.shortened
        for each, broker in current.items()
        if broker.record.shortened and judged.get(each) != broker.generation
    }
    found: dict[PartitionKey, dict[int, LogEnd]] = {}
    if not news:
        return found
    names = {topic_label(name, known.record.topic_id): name for name, known in topics.items()}
    for each in sorted(news):
        for label, ends in news[each].items():
            for partition, end in ends.items() if label in names else ():
                found.setdefault(PartitionKey(names[label], partition), {})[each] = end
    return found


def find_unjudged(
    current: Mapping[int, LiveBroker], judged: Mapping[int, IncarnationRecord]
) -> dict[int, IncarnationRecord]:
    """Return {broker id: what is to be recorded} of those that are not judged as they are, by rising id."""
    found: dict[int, IncarnationRecord] = {}
    for each in sorted(current):
        generation, record = current[each]
        if record.incarnation is None:
            continue
        known = judged.get(each)
        if known is None or known.incarnation != record.incarnation:
            known = IncarnationRecord(record.incarnation)
        if record.shortened:
            known = IncarnationRecord(record.incarnation, generation)
        if judged.get(each) != known:
            found[each] = known
    return found


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
