"""An asyncio client of brokers, for `quorate topics`, the pipeline and tools.

Speaks to the client listener of any broker that serves Kafka's protocol. Producers and consumers of users use
Kafka's own clients.
"""

from broker.client.client import BrokerClient
from broker.client.errors import BrokerRequestError, NoBrokerAnswersError, UnsupportedByBrokerError
from broker.client.metadata import BrokerAddress, ClusterMetadata, PartitionMetadata, TopicMetadata

__all__ = [
    "BrokerAddress",
    "BrokerClient",
    "BrokerRequestError",
    "ClusterMetadata",
    "NoBrokerAnswersError",
    "PartitionMetadata",
    "TopicMetadata",
    "UnsupportedByBrokerError",
]
