"""The settings of a broker that change while it runs: their names, defaults and checks. Pure.

The rates of throttled replication, the verification of transactions and the connections of one address are
such settings; all others are in broker.toml and need a restart, so that a request to change one is refused by
name. They travel as texts, in /config/brokers/N and on Kafka's wire. Which replicas a rate limits is a
setting of their topic.
Source: Kafka's dynamic broker configuration (3.9); KIP-73, KIP-890.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quorum.metadata.errors import FixedBrokerSettingError, InvalidBrokerSettingError
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_settings import TOO_LONG, is_too_long

LEADER_THROTTLED_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE: Final = "follower.replication.throttled.rate"
CONNECTIONS_PER_ADDRESS: Final = "max.connections.per.ip"
VERIFICATION: Final = "transaction.partition.verification.enable"
#: Kafka's default of a rate: no limit.
RATE_MAX: Final = 2**63 - 1
#: Kafka's default of connections: no limit.
CONNECTIONS_MAX: Final = 2**31 - 1
#: {Kafka's name: what it does}
THROTTLED_RATES: Final[Mapping[str, str]] = {
    LEADER_THROTTLED_RATE: "Bytes a second that this broker sends to throttled followers.",
    FOLLOWER_THROTTLED_RATE: "Bytes a second that this broker fetches for its throttled replicas.",
}
BROKER_SETTINGS: Final[Mapping[str, str]] = {
    **THROTTLED_RATES,
    VERIFICATION: "Whether a leader asks the coordinator before the first record of a transaction.",
    CONNECTIONS_PER_ADDRESS: "Connections that one address may have to this broker's listeners of clients.",
}
#: {every setting: its default if it is a list, else None}
BROKER_LISTS: Final[Mapping[str, str | None]] = dict.fromkeys(BROKER_SETTINGS)
#: Kafka's tool removes it together with the rates. A broker has one log directory, and copies nothing inside.
_LOG_DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The effective settings; rates in bytes a second."""

    leader_throttled_rate: int = RATE_MAX
    follower_throttled_rate: int = RATE_MAX
    verifies_transactions: bool = True
    #: of one address; CONNECTIONS_MAX: no limit
    connections_per_address_max: int = CONNECTIONS_MAX


def check_broker_changes(changes: SettingChanges) -> None:
    """Check what somebody wants to change at a running broker.

    Raises:
        InvalidBrokerSettingError: names the first setting that cannot change, or has not a value of its kind.
        NotAListError: no setting that can change is a list.
    """
    changed, removed = changes.named(changes.applied({}, BROKER_LISTS)), changes.removed
    known = ", ".join(BROKER_SETTINGS)
    for name in (*changed, *removed):
        if name not in BROKER_SETTINGS and not (name == _LOG_DIRECTORY_RATE and name in removed):
            value = changed.get(name, "")
            remedy = f"only {known} can; set others in broker.toml and start the broker again"
            raise FixedBrokerSettingError(name, value, "", remedy)
    for name, value in changed.items():
        if is_too_long(value):
            raise InvalidBrokerSettingError(name, value, *TOO_LONG)
        wanted = None
        if name == VERIFICATION:
            wanted = "true or false" if _flag(value) is None else None
        elif name == CONNECTIONS_PER_ADDRESS:
            if _connections(value) is None:
                wanted = f"a whole number from 1 to {CONNECTIONS_MAX}, which is no limit"
        elif _rate(value) is None:
            wanted = f"a whole number of bytes a second from 0 to {RATE_MAX}"
        if wanted is not None:
            raise InvalidBrokerSettingError(name, value, "is not a valid value", f"give {wanted}")


def effective_broker_settings(defaults: BrokerSettings, overrides: Mapping[str, str]) -> BrokerSettings:
    """Return the settings of a broker; one that is malformed counts as not given."""
    leader, follower = (_rate(overrides.get(name, "")) for name in THROTTLED_RATES)
    verifies = _flag(overrides.get(VERIFICATION, ""))
    connections = _connections(overrides.get(CONNECTIONS_PER_ADDRESS, ""))
    return BrokerSettings(
        defaults.leader_throttled_rate if leader is None else leader,
        defaults.follower_throttled_rate if follower is None else follower,
        defaults.verifies_transactions if verifies is None else verifies,
        defaults.connections_per_address_max if connections is None else connections,
    )


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


def _connections(text: str) -> int | None:
    found = _rate(text)
    return found if found is not None and 1 <= found <= CONNECTIONS_MAX else None


def _rate(text: str) -> int | None:
    found = text.strip()
    return int(found) if re.fullmatch(r"[0-9]{1,19}", found) and int(found) <= RATE_MAX else None
