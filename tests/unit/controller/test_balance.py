"""Which leaderships go back by themselves."""

from __future__ import annotations

import uuid

import pytest

from controller.core.balance import find_imbalanced
from controller.core.model import ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.reassignment import with_targets
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord


def cluster(led_by_others: int, of: int) -> ClusterModel:
    """A topic whose partitions all prefer broker 1; so many of them are led by broker 2."""
    model = ClusterModel()
    model.topics["t"] = KnownTopic(TopicRecord(uuid.UUID(int=1), dict.fromkeys(range(of), (1, 2))), 0)
    for number in range(of):
        leader = 2 if number < led_by_others else 1
        state = PartitionStateRecord(ControllerEpoch(1), leader, LeaderEpoch(1), (1, 2))
        model.states[PartitionKey("t", number)] = KnownState(state, PartitionVersion(1), 1)
    for each in (1, 2):
        model.brokers[each] = LiveBroker(BrokerGeneration(each), BrokerRecord(None, -1, (), {}, 0))
    return model


@pytest.mark.parametrize(("led_by_others", "found"), [(0, 0), (1, 0), (2, 2), (10, 10)])
def test_what_is_above_the_threshold_goes_back(led_by_others: int, found: int) -> None:
    assert len(find_imbalanced(cluster(led_by_others, 10), 10)) == found


def test_brokers_that_are_away_or_leave_get_nothing() -> None:
    model = cluster(5, 10)
    model.leaving[1] = None
    assert find_imbalanced(model, 10) == []
    model.drop_broker(1)
    assert find_imbalanced(model, 10) == []


def test_a_replica_that_is_not_in_sync_and_a_partition_that_moves_are_left() -> None:
    model = cluster(2, 4)
    behind = PartitionKey("t", 0)
    known = model.states[behind]
    state = PartitionStateRecord(ControllerEpoch(1), 2, LeaderEpoch(1), (2,))
    model.states[behind] = known._replace(state=state)
    assert find_imbalanced(model, 10) == [PartitionKey("t", 1)]
    record = with_targets(model.topics["t"].record, {1: (1, 3)})
    model.topics["t"] = KnownTopic(record, 1)
    assert find_imbalanced(model, 10) == []
