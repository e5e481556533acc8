"""The links between brokers as relays, one for each direction of each pair: a test can cut one broker off.

What broker A asks broker B goes through a relay of its own (`[dial]` in A's broker.toml): the fetches of A as
a follower, and A's control requests if it is the controller. The quorum and the clients are reached directly.
Source: docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

from tests.support.broker_cluster import BrokerCluster
from tests.support.request_relay import RequestRelay


class BrokerLinks:
    """Relays between all brokers of a cluster that has not started yet."""

    def __init__(self, cluster: BrokerCluster) -> None:
        """Place the relays and write them into the brokers' settings."""
        #: {(who asks, who is asked): relay}
        self.relays = {
            (asking, asked): RequestRelay(cluster.brokers[asked].broker_port)
            for asking in cluster.brokers
            for asked in cluster.brokers
            if asking != asked
        }
        for (asking, asked), relay in self.relays.items():
            cluster.brokers[asking].settings.setdefault("dial", {})[str(asked)] = relay.address

    def cut_off(self, broker_id: int) -> None:
        """Let nothing that this broker asks of others arrive."""
        for (asking, _), relay in self.relays.items():
            if asking == broker_id:
                relay.cut()

    def mend(self, broker_id: int) -> None:
        """Undo cut_off."""
        for (asking, _), relay in self.relays.items():
            if asking == broker_id:
                relay.mend()

    def close(self) -> None:
        """End all relays."""
        for relay in self.relays.values():
            relay.close()
