"""What a newly known state changes, and which partitions lack something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.model import Change, ClusterModel, KnownState, KnownTopic, problem_of
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

KEY = PartitionKey("t", 0)
STATE = PartitionStateRecord(ControllerEpoch(1), 1, LeaderEpoch(3), (1, 2))
KNOWN = KnownState(STATE, PartitionVersion(5), 10)


def known_cluster() -> ClusterModel:
    model = ClusterModel()
    model.topics["t"] = KnownTopic(TopicRecord(None, {0: (1, 2), 1: (2, 1)}), 0)
    model.states[KEY] = KNOWN
    return model


@pytest.mark.parametrize(
    ("known", "change"),
    [
        (KNOWN, Change.NONE),
        (KnownState(replace(STATE, isr=(1,)), PartitionVersion(6), 11), Change.ISR),
        (KnownState(replace(STATE, leader_epoch=LeaderEpoch(4)), PartitionVersion(6), 11), Change.LEADERSHIP),
        (KnownState(replace(STATE, leader=2), PartitionVersion(6), 11), Change.LEADERSHIP),
    ],
)
def test_a_state_says_what_it_changes(known: KnownState, change: Change) -> None:
    model = known_cluster()
    assert model.put_state(KEY, known) is change
    assert model.states[KEY] == known


def test_a_first_state_changes_roles() -> None:
    assert known_cluster().put_state(PartitionKey("t", 1), KNOWN) is Change.LEADERSHIP


def test_partitions_without_a_leader_or_a_full_isr_are_listed() -> None:
    model = known_cluster()
    other = PartitionKey("t", 1)
    assert model.offline() == model.under_replicated() == [other]
    model.put_state(other, KnownState(replace(STATE, leader=-1), PartitionVersion(0), 1))
    model.put_state(KEY, KnownState(replace(STATE, isr=(1,)), PartitionVersion(6), 11))
    assert model.offline() == [other]
    assert model.under_replicated() == [KEY]
    model.deleting["t"] = None
    assert model.offline() == model.under_replicated() == []


def test_a_dropped_topic_leaves_nothing_behind() -> None:
    model = known_cluster()
    model.left_alone["t"] = "x"
    model.drop_topic("t")
    assert (model.topics, model.states, model.left_alone) == ({}, {}, {})
    assert model.keys_of("t") == []


@pytest.mark.parametrize("partitions", [{}, {0: (1,), 1: ()}])
def test_an_assignment_without_partitions_or_replicas_is_a_problem(
    partitions: dict[int, tuple[int, ...]],
) -> None:
    assert problem_of(TopicRecord(None, partitions))
    assert not problem_of(TopicRecord(None, {0: (1,)}))
