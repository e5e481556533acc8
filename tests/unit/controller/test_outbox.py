"""What one broker still has to hear, in which order."""

from __future__ import annotations

from controller.core.outbox import LeadershipBatch, MetadataBatch, Outbox, StopBatch
from quorum.metadata.paths import PartitionKey

A, B, C = (PartitionKey(topic, 0) for topic in "abc")


def introduced() -> Outbox:
    """An outbox whose broker has the list of brokers."""
    outbox = Outbox(partitions_max=2)
    assert outbox.next_batch() == MetadataBatch(())
    outbox.confirm()
    return outbox


def test_a_new_broker_hears_all_metadata_before_it_gets_a_role() -> None:
    outbox = Outbox(partitions_max=2)
    outbox.owe_leadership(A)
    outbox.owe_metadata([A, B, C])
    batches = []
    while (batch := outbox.next_batch()) is not None:
        batches.append(batch)
        outbox.confirm()
    assert batches == [MetadataBatch((A, B)), MetadataBatch((C,)), LeadershipBatch({A: False})]


def test_later_stops_go_first_then_roles_then_metadata() -> None:
    outbox = introduced()
    outbox.owe_metadata([A])
    outbox.owe_leadership(A, is_new=True)
    outbox.owe_stop(B)
    batches = []
    while (batch := outbox.next_batch()) is not None:
        batches.append(batch)
        outbox.confirm()
    assert batches == [StopBatch({B: True}), LeadershipBatch({A: True}), MetadataBatch((A,))]


def test_one_request_is_under_way_at_a_time() -> None:
    outbox = introduced()
    outbox.owe_leadership(A)
    assert outbox.next_batch() == LeadershipBatch({A: False})
    outbox.owe_leadership(B)
    assert outbox.next_batch() is None
    outbox.confirm()
    assert outbox.next_batch() == LeadershipBatch({B: False})


def test_a_partition_that_changes_often_is_sent_once() -> None:
    outbox = introduced()
    for _ in range(3):
        outbox.owe_leadership(A)
        outbox.owe_metadata([A])
    assert outbox.next_batch() == LeadershipBatch({A: False})
    outbox.confirm()
    assert outbox.next_batch() == MetadataBatch((A,))
    outbox.confirm()
    assert outbox.next_batch() is None


def test_a_request_without_an_answer_is_owed_again() -> None:
    outbox = introduced()
    outbox.owe_leadership(A, is_new=True)
    outbox.next_batch()
    outbox.owe_leadership(A)
    outbox.put_back()
    assert outbox.next_batch() == LeadershipBatch({A: True})


def test_of_stops_only_those_that_failed_are_owed_again() -> None:
    outbox = introduced()
    outbox.owe_stop(A)
    outbox.owe_stop(B)
    outbox.next_batch()
    outbox.put_back({B})
    assert outbox.next_batch() == StopBatch({B: True})


def test_a_stop_cancels_a_role_also_one_that_is_put_back() -> None:
    outbox = introduced()
    outbox.owe_leadership(A)
    outbox.next_batch()
    outbox.owe_stop(A)
    outbox.put_back()
    assert outbox.next_batch() == StopBatch({A: True})
    outbox.confirm()
    assert outbox.next_batch() is None


def test_a_topic_is_settled_when_nothing_about_it_is_due_or_under_way() -> None:
    outbox = introduced()
    assert outbox.pending_topics() == set()
    outbox.owe_stop(A)
    outbox.owe_metadata([B])
    assert outbox.pending_topics() == {"a", "b"}
    outbox.next_batch()
    assert outbox.pending_topics() == {"a", "b"}
    outbox.confirm()
    assert outbox.pending_topics() == {"b"}


def test_an_introduction_without_an_answer_still_goes_before_roles() -> None:
    outbox = Outbox(partitions_max=2)
    outbox.owe_metadata([A])
    outbox.owe_leadership(A)
    outbox.next_batch()
    outbox.put_back()
    assert outbox.next_batch() == MetadataBatch((A,))
    outbox.confirm()
    assert outbox.next_batch() == LeadershipBatch({A: False})
