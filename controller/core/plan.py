"""A plan that spreads partitions evenly over brokers and racks, and moves little.

Every partition first keeps its replicas where they are, but no rack more of one partition than its share.
What is missing goes to the broker that has least. Then replicas move from brokers that have more to brokers
that have less, as far as racks allow it, and preferred leaders are spread by the order of the replicas alone.
A plan that was carried out is planned again without a change. Deterministic.
Source: docs/internals/requirements.md, [0.F]; KIP-36 (racks); Kafka's kafka-reassign-partitions --generate,
the idea.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from quorum.metadata.paths import PartitionKey

Replicas = tuple[int, ...]


def plan_reassignment(
    racks: Mapping[int, str | None], assignments: Mapping[PartitionKey, Replicas]
) -> dict[PartitionKey, Replicas]:
    """Propose replicas for partitions: only those that change, the first replica preferred.

    Args:
        racks: {broker id: rack} of the brokers that shall hold them; if one has no rack, racks do not count.
        assignments: what each partition has now.
    """
    crowded = next((key for key, replicas in assignments.items() if len(replicas) > len(racks)), None)
    if crowded is not None:
        raise ValueError(
            f"{crowded.topic}-{crowded.partition} has {len(assignments[crowded])} replicas, "
            f"and there are {len(racks)} brokers for them"
        )
    spread = _Spread(racks, assignments)
    spread.keep()
    spread.fill()
    spread.level()
    ordered = _spread_leaders(spread.chosen, assignments)
    return {key: replicas for key, replicas in ordered.items() if replicas != assignments[key]}


class _Spread:
    """Replicas being chosen."""

    def __init__(self, racks: Mapping[int, str | None], assignments: Mapping[PartitionKey, Replicas]) -> None:
        aware = all(rack is not None for rack in racks.values())
        self._rack_of = {each: (racks[each] or "") if aware else str(each) for each in sorted(racks)}
        self._sizes = Counter(self._rack_of.values())
        self._assignments = {key: assignments[key] for key in sorted(assignments)}
        self._load = dict.fromkeys(self._rack_of, 0)
        #: {partition: its replicas so far}
        self.chosen: dict[PartitionKey, list[int]] = {}

    def keep(self) -> None:
        """Leave replicas where they are, as far as the racks' shares go."""
        for key, replicas in self._assignments.items():
            kept = self.chosen[key] = []
            for each in replicas:
                if each in self._load and self._fits(kept, each, len(replicas)):
                    self._put(kept, each)

    def fill(self) -> None:
        """Give every partition the replicas that it lacks: in racks that it lacks, where least is."""
        for key, replicas in self._assignments.items():
            kept = self.chosen[key]
            while len(kept) < len(replicas):
                used = Counter(self._rack_of[each] for each in kept)
                waiting = [each for each in self._rack_of if each not in kept]
                self._put(
                    kept,
                    min(waiting, key=lambda each: (used[self._rack_of[each]], self._load[each], each)),
                )

    def level(self) -> None:
        """Move replicas from brokers that have two more than another one, where racks allow it."""
        # Each move makes the loads more even, so that this ends.
        while self._level_once():
            pass

    def _level_once(self) -> bool:
        moved = False
        for key, replicas in self._assignments.items():
            kept = self.chosen[key]
            for place, former in enumerate(kept):
                others = kept[:place] + kept[place + 1 :]
                fitting = [
                    each
                    for each in self._rack_of
                    if each not in kept
                    and self._load[each] + 1 < self._load[former]
                    and self._fits(others, each, len(replicas))
                ]
                if fitting:
                    best = min(fitting, key=lambda each: (self._load[each], each))
                    kept[place] = best
                    self._load[former] -= 1
                    self._load[best] += 1
                    moved = True
        return moved

    def _fits(self, kept: Sequence[int], broker_id: int, factor: int) -> bool:
        """Whether a partition may have this one beside those, and still reach as many racks as it can."""
        used = Counter(self._rack_of[each] for each in kept)
        rack = self._rack_of[broker_id]
        reached = len({*used, rack}) + factor - len(kept) - 1
        return (
            broker_id not in kept
            and used[rack] < self._share(factor)
            and reached >= min(factor, len(self._sizes))
        )

    def _share(self, factor: int) -> int:
        """Return how many replicas of a partition a rack holds at most: small racks leave more to others."""
        share = -(-factor // len(self._sizes))
        while sum(min(size, share) for size in self._sizes.values()) < factor:
            share += 1
        return share

    def _put(self, kept: list[int], broker_id: int) -> None:
        kept.append(broker_id)
        self._load[broker_id] += 1


def _spread_leaders(
    chosen: Mapping[PartitionKey, Sequence[int]], assignments: Mapping[PartitionKey, Replicas]
) -> dict[PartitionKey, Replicas]:
    """Choose preferred leaders: none has two more than another one that could have one of them."""
    leads: Counter[int] = Counter()
    leader_of: dict[PartitionKey, int] = {}
    for key, replicas in chosen.items():
        former = assignments[key][0] if assignments[key] else replicas[0]
        leader_of[key] = former if former in replicas else min(replicas, key=lambda each: leads[each])
        leads[leader_of[key]] += 1
    improved = True
    while improved:
        improved = False
        for key, replicas in chosen.items():
            best = min(replicas, key=lambda each: leads[each])
            # Each such step makes the counts more even, so that this ends.
            if leads[leader_of[key]] - leads[best] > 1:
                leads[leader_of[key]] -= 1
                leads[best] += 1
                leader_of[key] = best
                improved = True
    return {
        key: (leader, *(each for each in _in_order(chosen[key], assignments[key]) if each != leader))
        for key, leader in leader_of.items()
    }


def _in_order(replicas: Sequence[int], former: Replicas) -> list[int]:
    """Return replicas in the order that they had, new ones last."""
    return sorted(replicas, key=lambda each: former.index(each) if each in former else len(former))
