"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from controller.core.placement import place


def test_leaders_go_round_and_followers_move_on_with_each_round() -> None:
    racks: dict[int, str | None] = {1: None, 2: None, 3: None}
    placed = place(racks, range(6), 2, start_index=0, shift=0)
    assert placed == {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3), 4: (2, 1), 5: (3, 2)}


def test_the_replicas_of_a_partition_stand_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    for replicas in place(racks, range(24), 3, start_index=2, shift=1).values():
        assert {racks[each] for each in replicas} == {"a", "b", "c"}


def test_more_replicas_than_racks_fill_the_racks_evenly() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}
    for replicas in place(racks, range(12), 4, start_index=0, shift=0).values():
        assert Counter(racks[each] for each in replicas) == {"a": 2, "b": 2}


def test_one_broker_without_a_rack_makes_all_equal() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: None}
    assert place(racks, range(1), 2, start_index=0, shift=0) == {0: (1, 2)}


@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9),
    st.integers(1, 30),
    st.integers(0, 50),
    st.integers(0, 50),
    st.data(),
)
def test_every_partition_gets_different_brokers_and_leaders_are_spread(
    racks: Mapping[int, str], partitions: int, start_index: int, shift: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place(racks, range(partitions), factor, start_index=start_index, shift=shift)
    assert sorted(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(replicas) == len({*replicas} & {*racks}) == factor
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(led.values()) - min(led.get(each, 0) for each in racks) <= 1
    assert placed == place(
        dict(reversed(list(racks.items()))), range(partitions), factor, start_index=start_index, shift=shift
    )
