"""Where the replicas of new partitions go: round robin over the brokers, spread over racks.

Deterministic: where to begin and how far the followers stand from their leader come in as arguments.
Leaders go round all brokers; the followers of one partition take the racks that have fewest of its
replicas, and after each round the followers move one place on, so that a dead broker's load spreads over
all others. If a broker has no rack, every broker counts as a rack of its own.
Source: KIP-36 (rack aware replica assignment); Kafka's AdminUtils, the idea.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def place(
    racks: Mapping[int, str | None],
    partitions: range,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
) -> dict[int, tuple[int, ...]]:
    """Choose the replicas of partitions: {partition: replicas, the first one preferred}.

    Args:
        racks: {broker id: rack} of the live brokers, at least replication_factor of them.
        partitions: the numbers of the new partitions.
        replication_factor: replicas of each, at least 1.
        start_index: place of the leader of partition 0 in the ring of brokers, from 0.
        shift: distance of the followers from their leader, from 0.
    """
    rack_of = _racks(racks)
    ring = ring_of(racks)
    return {
        partition: _replicas(
            ring,
            rack_of,
            (partition + start_index) % len(ring),
            shift + partition // len(ring),
            replication_factor,
        )
        for partition in partitions
    }


def _racks(racks: Mapping[int, str | None]) -> dict[int, str]:
    aware = all(rack is not None for rack in racks.values())
    return {each: (racks[each] or "") if aware else str(each) for each in sorted(racks)}


def ring_of(racks: Mapping[int, str | None]) -> list[int]:
    """Order the brokers so that neighbours stand in different racks, as far as that goes."""
    rack_of = _racks(racks)
    place_in_rack: Counter[str] = Counter()
    keyed: list[tuple[int, str, int]] = []
    for broker_id, rack in rack_of.items():
        keyed.append((place_in_rack[rack], rack, broker_id))
        place_in_rack[rack] += 1
    if len(place_in_rack) == len(rack_of):
        return list(rack_of)
    return [broker_id for _, _, broker_id in sorted(keyed)]


def _replicas(
    ring: list[int], rack_of: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    chosen = [ring[first]]
    others = len(ring) - 1
    waiting = [ring[(first + 1 + (shift + step) % others) % len(ring)] for step in range(others)]
    used = Counter([rack_of[ring[first]]])
    while len(chosen) < replication_factor:
        following = min(waiting, key=lambda each: used[rack_of[each]])
        waiting.remove(following)
        chosen.append(following)
        used[rack_of[following]] += 1
    return tuple(chosen)
