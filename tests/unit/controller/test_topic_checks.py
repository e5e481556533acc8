"""Whether topics may be created or extended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from controller.core.model import ClusterModel, KnownTopic, LiveBroker
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import Defaults, Reason, Refused, Spread, collisions, plan_partitions, plan_topic
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.records import BrokerRecord, TopicRecord

SPREAD = Spread(0, 0)


@pytest.fixture
def model() -> ClusterModel:
    model = ClusterModel()
    for each in (1, 2, 3):
        record = BrokerRecord(None, -1, (), {}, timestamp_ms=0)
        model.brokers[each] = LiveBroker(BrokerGeneration(each), record)
    model.topics["there"] = KnownTopic(TopicRecord(None, {0: (2, 3), 1: (3, 1)}), 0)
    model.left_alone["broken"] = "malformed"
    return model


def plan(model: ClusterModel, wanted: NewTopic) -> Mapping[int, tuple[int, ...]] | Refused:
    return plan_topic(model, wanted, Defaults(2, 1), SPREAD)


def test_counts_come_from_the_request_or_the_defaults(model: ClusterModel) -> None:
    assert plan(model, NewTopic("a", 3, 2)) == {0: (1, 2), 1: (2, 3), 2: (3, 1)}
    assert plan(model, NewTopic("a")) == {0: (1,), 1: (2,)}


def test_given_assignments_are_taken(model: ClusterModel) -> None:
    given = {0: (3, 1), 1: (1, 2)}
    assert plan(model, NewTopic("a", assignments=given)) == given


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (NewTopic("a/b"), Reason.BAD_NAME),
        (NewTopic("x" * 250), Reason.BAD_NAME),
        (NewTopic("there"), Reason.EXISTS),
        (NewTopic("broken"), Reason.EXISTS),
        (NewTopic("a", 0), Reason.BAD_PARTITIONS),
        (NewTopic("a", 10_001), Reason.BAD_PARTITIONS),
        (NewTopic("a", 1, 0), Reason.BAD_REPLICATION_FACTOR),
        (NewTopic("a", 1, 4), Reason.BAD_REPLICATION_FACTOR),
        (NewTopic("a", 1, assignments={0: (1,)}), Reason.BAD_REQUEST),
        (NewTopic("a", assignments={}), Reason.BAD_PARTITIONS),
        (NewTopic("a", assignments={1: (1,)}), Reason.BAD_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 2), 1: (1,)}), Reason.BAD_ASSIGNMENT),
        (NewTopic("a", assignments={0: ()}), Reason.BAD_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 1)}), Reason.BAD_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 9)}), Reason.BAD_ASSIGNMENT),
    ],
)
def test_a_topic_is_refused_with_its_reason(model: ClusterModel, wanted: NewTopic, reason: Reason) -> None:
    refused = plan(model, wanted)
    assert isinstance(refused, Refused)
    assert refused.reason is reason


def test_names_that_differ_in_points_and_underscores_collide(model: ClusterModel) -> None:
    model.topics["a.b"] = model.topics["there"]
    model.left_alone["c_d"] = "malformed"
    names = ["a_b", "c.d", "e_f", "e.f", "e_f_", "ab", "a.b"]
    found = collisions(model, names)
    assert found == {"a_b": "a.b", "c.d": "c_d", "e.f": "e_f"}
    refused = plan_topic(model, NewTopic("a_b"), Defaults(2, 1), SPREAD, found["a_b"])
    assert refused == Refused(Reason.BAD_NAME, "Topic 'a_b' collides with existing topic: a.b")
    assert collisions(model, ["there", "new"]) == {}


def test_added_partitions_go_on_where_the_topic_began(model: ClusterModel) -> None:
    assert plan_partitions(model, NewPartitions("there", 4), SPREAD) == {2: (1, 2), 3: (2, 1)}


def test_added_partitions_may_be_given(model: ClusterModel) -> None:
    assert plan_partitions(model, NewPartitions("there", 3, [(1, 2)]), SPREAD) == {2: (1, 2)}


@pytest.mark.parametrize(
    ("name", "count", "assignments", "reason"),
    [
        ("nowhere", 3, None, Reason.UNKNOWN),
        ("there", 2, None, Reason.BAD_PARTITIONS),
        ("there", 1, None, Reason.BAD_PARTITIONS),
        ("there", 10_001, None, Reason.BAD_PARTITIONS),
        ("there", 4, [(1, 2)], Reason.BAD_ASSIGNMENT),
        ("there", 3, [(1,)], Reason.BAD_ASSIGNMENT),
        ("there", 3, [(1, 1)], Reason.BAD_ASSIGNMENT),
    ],
)
def test_added_partitions_are_refused_with_their_reason(
    model: ClusterModel, name: str, count: int, assignments: Sequence[tuple[int, ...]] | None, reason: Reason
) -> None:
    refused = plan_partitions(model, NewPartitions(name, count, assignments), SPREAD)
    assert isinstance(refused, Refused)
    assert refused.reason is reason


def test_a_topic_that_is_being_deleted_gets_no_partitions(model: ClusterModel) -> None:
    model.deleting["there"] = None
    assert isinstance(plan_partitions(model, NewPartitions("there", 3), SPREAD), Refused)
