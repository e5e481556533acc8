"""A cluster of brokers inside a process, over a quorum in the same process: for tests and experiments.

async with brokers(count=3) as running:
    running.bootstrap
"""

from broker.local.embedded import BlockingBrokers, EmbeddedBrokers, brokers, brokers_in_thread

__all__ = ["BlockingBrokers", "EmbeddedBrokers", "brokers", "brokers_in_thread"]
