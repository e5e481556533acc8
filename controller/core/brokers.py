"""Which brokers came, went or bounced, and whose disk is another one.

A broker is its id *and* its generation: the same id with a higher generation has died and come back between
two looks. A registration with another incarnation than the one by which its ISR memberships were judged is
an outcast until they are judged again.
Source: KIP-380, "Controller Detects Bounced Broker"; seeds [1.5]; control-plane design, "Registration".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.core.model import LiveBroker
from quorum.metadata.records import BrokerRecord

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


def find_unjudged(current: Mapping[int, LiveBroker], judged: Mapping[int, str]) -> dict[int, str]:
    """Return {broker id: incarnation} of those whose incarnation is not recorded yet, by rising id."""
    found: dict[int, str] = {}
    for each in sorted(current):
        incarnation = current[each].record.incarnation
        if incarnation is not None and judged.get(each) != incarnation:
            found[each] = incarnation
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
