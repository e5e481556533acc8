"""How many connections there are from each address, and whether one more may come.

Knows no protocol. Soft state only.
Source: ZooKeeper's maxClientCnxns; Kafka's max.connections.per.ip.
"""

from __future__ import annotations


class Addresses:
    """The connections of each address."""

    def __init__(self, connections_max: int = 0) -> None:
        """Have none.

        Args:
            connections_max: of one address; 0: any number. What is open already stays when it changes.
        """
        self.connections_max = connections_max
        #: {host: its connections}, those that have any
        self._counts: dict[str, int] = {}

    def count(self, host: str) -> int:
        """Return how many connections a host has."""
        return self._counts.get(host, 0)

    def opened(self, host: str) -> bool:
        """Count one more connection of a host; false: it has as many as it may, and this is not counted."""
        count = self.count(host)
        if 0 < self.connections_max <= count:
            return False
        self._counts[host] = count + 1
        return True

    def closed(self, host: str) -> None:
        """Count one connection less."""
        count = self._counts.pop(host) - 1
        if count:
            self._counts[host] = count
