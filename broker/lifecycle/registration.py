"""What a broker tells the others of itself: its registration in the quorum.

Decides what the listeners advertise. The generation is the czxid of the
registration and no part of it.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [1.1], [1.2].
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.config.listeners import LISTENER_PROTOCOLS
from controller.core.brokers import BROKER_LISTENER, CLIENT_LISTENER
from quorum.config.address import Address
from quorum.metadata.records import BrokerRecord, LogEnd

#: Logs that a registration names, to fit in a znode; a broker with more comes as one with another disk.
SHORTENED_MAX: Final = 10_000


def broker_record(
    clients: Mapping[str, Address],
    broker: Address,
    admin: str,
    is_broker_tls: bool = False,
    *,
    rack: str,
    incarnation: str,
    timestamp_ms: int,
    reads_queue: bool = False,
    shortened: Mapping[str, Mapping[int, LogEnd]] = MappingProxyType({}),
) -> BrokerRecord:
    """Return the registration of a broker; see BrokerRecord.

    Args:
        clients: {listener: where Kafka clients reach it}.
        broker: where the controller and followers reach it.
        admin: URL of its HTTP port.
        is_broker_tls: whether the broker listener speaks TLS.
        rack: its rack; "": none.
        incarnation: identity of its data directory.
        timestamp_ms: wall clock, informative.
        reads_queue: whether control requests may also come by its queue.
        shortened: {topic: {partition: end}} of the logs that may lack what they had acknowledged.
    """
    plain = clients.get(CLIENT_LISTENER)
    listeners = {**clients, BROKER_LISTENER: broker}
    protocols = {name: LISTENER_PROTOCOLS.get(name, name) for name in listeners}
    if is_broker_tls:
        protocols[BROKER_LISTENER] = "SASL_SSL"
    return BrokerRecord(
        host=None if plain is None else plain.host,
        port=-1 if plain is None else plain.port,
        endpoints=tuple(f"{name}://{address}" for name, address in listeners.items()),
        listener_security_protocol_map=protocols,
        timestamp_ms=timestamp_ms,
        rack=rack or None,
        incarnation=incarnation,
        admin=admin,
        reads_queue=reads_queue,
        shortened=shortened,
    )
