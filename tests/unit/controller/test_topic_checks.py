"""Whether topics may be created or extended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from controller.core.model import ClusterModel, KnownTopic, LiveBroker
from controller.core.requests import NewPartitions, NewTopic
from controller.core.topics import (
    Defaults,
    Refused,
    Spread,
    check_room,
    collisions,
    plan_partitions,
    plan_topic,
)
from controller.wire.codes import ErrorCode
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
    ("wanted", "code"),
    [
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("broken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", 10_001), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("a", 1, assignments={0: (1,)}), ErrorCode.INVALID_REQUEST),
        (NewTopic("a", assignments={}), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("a", assignments={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 2), 1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("a", assignments={0: (1, 9)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_is_refused_with_its_code(model: ClusterModel, wanted: NewTopic, code: ErrorCode) -> None:
    refused = plan(model, wanted)
    assert isinstance(refused, Refused)
    assert refused.error_code is code


def test_all_topics_together_have_so_many_partitions_at_most(model: ClusterModel) -> None:
    assert model.partition_count() == 2
    assert check_room(2, 3, 5) is None
    refused = check_room(2, 4, 5)
    assert refused is not None
    assert refused.error_code is ErrorCode.POLICY_VIOLATION
    assert "4 partitions beside the 2 of all topics, at most 5" in refused.message


def test_names_that_differ_in_points_and_underscores_collide(model: ClusterModel) -> None:
    model.topics["a.b"] = model.topics["there"]
    model.left_alone["c_d"] = "malformed"
    names = ["a_b", "c.d", "e_f", "e.f", "e_f_", "ab", "a.b"]
    found = collisions(model, names)
    assert found == {"a_b": "a.b", "c.d": "c_d", "e.f": "e_f"}
    refused = plan_topic(model, NewTopic("a_b"), Defaults(2, 1), SPREAD, found["a_b"])
    assert refused == Refused(
        ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"
    )
    assert collisions(model, ["there", "new"]) == {}


def test_added_partitions_go_on_where_the_topic_began(model: ClusterModel) -> None:
    assert plan_partitions(model, NewPartitions("there", 4), SPREAD) == {2: (1, 2), 3: (2, 1)}


def test_added_partitions_may_be_given(model: ClusterModel) -> None:
    assert plan_partitions(model, NewPartitions("there", 3, [(1, 2)]), SPREAD) == {2: (1, 2)}


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("nowhere", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("there", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("there", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("there", 10_001, None, ErrorCode.INVALID_PARTITIONS),
        ("there", 4, [(1, 2)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("there", 3, [(1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("there", 3, [(1, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_added_partitions_are_refused_with_their_code(
    model: ClusterModel, name: str, count: int, assignments: Sequence[tuple[int, ...]] | None, code: ErrorCode
) -> None:
    refused = plan_partitions(model, NewPartitions(name, count, assignments), SPREAD)
    assert isinstance(refused, Refused)
    assert refused.error_code is code


def test_a_topic_that_is_being_deleted_gets_no_partitions(model: ClusterModel) -> None:
    model.deleting["there"] = None
    assert isinstance(plan_partitions(model, NewPartitions("there", 3), SPREAD), Refused)
