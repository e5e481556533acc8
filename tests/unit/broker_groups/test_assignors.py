"""The assignors: every partition has exactly one owner that subscribes to it, and little moves."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from broker.core.groups.assignors import ASSIGNORS, assign_range, assign_uniform
from quorum.metadata.paths import PartitionKey

TOPICS = ("a", "b", "c")
MEMBERS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]), st.sets(st.sampled_from(TOPICS)), max_size=6
)
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))


def keys(topic: str, *partitions: int) -> set[PartitionKey]:
    return {PartitionKey(topic, each) for each in partitions}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscriptions=MEMBERS, before=MEMBERS, counts=COUNTS)
def test_each_subscribed_partition_has_one_owner(
    name: str, subscriptions: dict[str, set[str]], before: dict[str, set[str]], counts: dict[str, int]
) -> None:
    former = ASSIGNORS[name](before, counts, {})
    targets = ASSIGNORS[name](subscriptions, counts, former)
    assert targets.keys() == subscriptions.keys()
    owned = [key for held in targets.values() for key in held]
    subscribed = set().union(*subscriptions.values()) if subscriptions else set()
    wanted = {PartitionKey(topic, each) for topic in subscribed for each in range(counts.get(topic, 0))}
    assert len(owned) == len(set(owned))
    assert set(owned) == wanted
    assert all(key.topic in subscriptions[member] for member, held in targets.items() for key in held)
    assert ASSIGNORS[name](subscriptions, counts, targets) == targets


@given(count=st.integers(1, 20), members=st.integers(1, 8), leaving=st.integers(0, 7))
def test_uniform_is_balanced_and_moves_no_more_than_it_must(count: int, members: int, leaving: int) -> None:
    everybody: dict[str, set[str]] = {f"m{number}": {"a"} for number in range(members)}
    before = assign_uniform(everybody, {"a": count}, {})
    shares = [len(held) for held in before.values()]
    assert max(shares) - min(shares) <= 1
    remaining = {name: topics for name, topics in everybody.items() if name != f"m{leaving}"}
    if remaining:
        after = assign_uniform(remaining, {"a": count}, before)
        assert all(before[name] <= after[name] for name in remaining)


def test_uniform_gives_a_new_member_its_share() -> None:
    before = {"m1": keys("a", 0, 1, 2), "m2": keys("a", 3, 4, 5)}
    everybody = {key: {"a"} for key in ("m1", "m2", "m3")}
    after = assign_uniform(everybody, {"a": 6}, before)
    assert [len(after[name]) for name in everybody] == [2, 2, 2]
    assert after["m1"] < before["m1"]
    assert after["m2"] < before["m2"]


def test_range_gives_equal_partitions_of_topics_to_one_member() -> None:
    everybody = {key: {"a", "b"} for key in ("m1", "m2")}
    assert assign_range(everybody, {"a": 3, "b": 3}, {}) == {
        "m1": keys("a", 0, 1) | keys("b", 0, 1),
        "m2": keys("a", 2) | keys("b", 2),
    }
