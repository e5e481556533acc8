"""Plans of reassignments: even, spread over racks, and no larger than that needs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.plan import plan_reassignment
from quorum.metadata.paths import PartitionKey


def topic(rows: list[tuple[int, ...]]) -> dict[PartitionKey, tuple[int, ...]]:
    return {PartitionKey("t", number): replicas for number, replicas in enumerate(rows)}


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_what_is_even_stays_as_it_is() -> None:
    assert plan_reassignment(without_racks(1, 2, 3), topic([(1, 2), (2, 3), (3, 1)])) == {}


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    before = topic([(1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1)])
    moved = plan_reassignment(without_racks(1, 2, 3), before)
    after = {**before, **moved}
    assert Counter(each for replicas in after.values() for each in replicas) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in after.values()) == {1: 2, 2: 2, 3: 2}
    assert sum(len({*after[key]} - {*before[key]}) for key in before) == 4


def test_a_broker_that_is_not_named_gives_everything_away() -> None:
    before = topic([(3, 1), (3, 2), (1, 3)])
    after = {**before, **plan_reassignment(without_racks(1, 2), before)}
    assert all(set(replicas) == {1, 2} for replicas in after.values())


def test_replicas_of_a_partition_stand_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = plan_reassignment(racks, topic([(1, 2), (1, 2), (3, 4), (3, 4)]))
    for replicas in after.values():
        assert len({racks[each] for each in replicas}) == 2


def test_more_replicas_than_brokers_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="t-0 has 3 replicas"):
        plan_reassignment(without_racks(1, 2), topic([(1, 2, 3)]))


def test_racks_of_two_sizes_hold_what_they_can() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b"}
    before = topic([(1, 2)] * 6)
    after = {**before, **plan_reassignment(racks, before)}
    # One replica of each in the rack of one broker, the others evenly in the other rack.
    assert Counter(each for replicas in after.values() for each in replicas) == {1: 2, 2: 2, 3: 2, 4: 6}
    assert sorted(Counter(replicas[0] for replicas in after.values()).values()) == [1, 1, 2, 2]


def test_a_rack_of_many_brokers_holds_what_a_rack_of_one_cannot() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "b", 2: "b", 3: "b", 4: "b", 5: "b"}
    before = topic([(0, 1, 2, 3)] * 4)
    after = {**before, **plan_reassignment(racks, before)}
    load = Counter(each for replicas in after.values() for each in replicas)
    assert load.pop(0) == 4
    assert sorted(load.values()) == [2, 2, 2, 3, 3]
    assert plan_reassignment(racks, after) == {}


@given(st.data())
def test_every_plan_keeps_the_rules(data: st.DataObject) -> None:
    brokers = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True))
    has_racks = data.draw(st.booleans())
    racks = {each: data.draw(st.sampled_from("abc")) if has_racks else None for each in brokers}
    factor = data.draw(st.integers(1, len(brokers)))
    row = st.lists(st.integers(0, 12), min_size=factor, max_size=factor, unique=True).map(tuple)
    before = topic(data.draw(st.lists(row, min_size=1, max_size=12)))
    after = {**before, **plan_reassignment(racks, before)}
    load = Counter(dict.fromkeys(brokers, 0))
    for replicas in after.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= set(brokers)
        load.update(replicas)
        if has_racks:
            used = {racks[each] for each in replicas}
            assert len(used) == min(factor, len(set(racks.values())))
    sizes = Counter(racks.values())
    if len(set(sizes.values())) == 1:
        # No rack, or racks of one size.
        assert max(load.values()) - min(load.values()) <= 1
    leads = Counter(replicas[0] for replicas in after.values())
    assert all(leads[replicas[0]] - leads[each] <= 1 for replicas in after.values() for each in replicas)
    # The same plan again changes nothing more.
    assert plan_reassignment(racks, after) == {}
