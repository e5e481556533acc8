"""What UpdateMetadata requests make of the view."""

import uuid

from broker.core.cluster_view import ClusterView
from tests.support.memory_broker import partition_state, topic_id, update_metadata


def view(**topics: int) -> ClusterView:
    found = ClusterView()
    found.apply(
        update_metadata({name: [partition_state(p) for p in range(count)] for name, count in topics.items()})
    )
    return found


def test_nothing_is_known_before_the_first_request() -> None:
    assert not ClusterView().received
    assert view().received


def test_what_a_request_does_not_name_stays() -> None:
    found = view(a=2, b=1)
    found.apply(update_metadata({"a": [partition_state(1, leader=2, leader_epoch=6)]}))
    assert [found.topics["a"].partitions[p].leader for p in (0, 1)] == [1, 2]
    assert set(found.topics) == {"a", "b"}


def test_live_brokers_are_replaced() -> None:
    found = view(a=1)
    assert found.endpoint(1, "CLIENT") == ("127.0.0.1", 1)
    assert (found.endpoint(1, "BROKER"), found.endpoint(2, "CLIENT")) == (None, None)
    found.apply(update_metadata({}, client=("h", 7)))
    assert found.endpoint(1, "CLIENT") == ("h", 7)


def test_a_deleted_topic_goes_with_its_last_partition() -> None:
    found = view(a=2)
    found.apply(update_metadata({"a": [partition_state(0, leader=-2)]}))
    assert list(found.topics["a"].partitions) == [1]
    found.apply(update_metadata({"a": [partition_state(1, leader=-2)]}))
    assert (found.topics, found.topic_name(topic_id("a"))) == ({}, None)


def test_a_topic_made_again_keeps_nothing_of_the_old_one() -> None:
    found = view(a=3)
    again = uuid.uuid4()
    found.apply(update_metadata({"a": [partition_state(0)]}, topic_ids={"a": again}))
    assert list(found.topics["a"].partitions) == [0]
    assert (found.topic_name(again), found.topic_name(topic_id("a"))) == ("a", None)
