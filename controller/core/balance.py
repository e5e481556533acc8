"""Which leaderships go back to preferred replicas, because a broker lacks too many of its own.

A broker's own are the partitions that prefer it. Where the share of them that others lead passes the
threshold, all of them that it could lead go back.
Source: Kafka's auto.leader.rebalance.enable, leader.imbalance.per.broker.percentage (3.9).
"""

from __future__ import annotations

from controller.core.model import ClusterModel
from quorum.metadata.paths import PartitionKey


def find_imbalanced(model: ClusterModel, percentage: int) -> list[PartitionKey]:
    """Return the partitions whose preferred replica shall lead again.

    Args:
        model: the cluster.
        percentage: of a broker's own that others may lead; more than that is too much.
    """
    own: dict[int, int] = {}
    lacking: dict[int, list[PartitionKey]] = {}
    for key, replicas in model.partitions():
        known = model.states.get(key)
        if known is None or not model.may_decide(key.topic) or model.move(key) is not None:
            continue
        preferred = replicas[0]
        own[preferred] = own.get(preferred, 0) + 1
        if known.state.leader != preferred:
            lacking.setdefault(preferred, []).append(key)
    return [
        key
        for broker_id in sorted(lacking)
        if broker_id in model.brokers
        and broker_id not in model.leaving
        and 100 * len(lacking[broker_id]) > percentage * own[broker_id]
        for key in lacking[broker_id]
        if broker_id in model.states[key].state.isr
    ]
