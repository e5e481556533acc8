"""How a coordinator spreads partitions over the members of a group.

Each assignor gives every partition of a subscribed topic to exactly one of its subscribers (I24), the same
way for the same arguments. `uniform` balances how many partitions members have and moves as few as it can;
`range` gives each member a run of neighbours of every topic, so equal keys of equally split topics meet.
Source: KIP-848 ("Assignors"), KIP-54 (sticky); Kafka's RangeAssignor and UniformAssignor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from quorum.metadata.paths import PartitionKey

#: {member id: topics}
Subscriptions = Mapping[str, AbstractSet[str]]
#: {topic: number of partitions}
Counts = Mapping[str, int]
#: {member id: partitions}
Targets = dict[str, set[PartitionKey]]


def assign_range(
    subscriptions: Subscriptions, counts: Counts, _before: Mapping[str, AbstractSet[PartitionKey]]
) -> Targets:
    """Give each subscriber of a topic a run of its partitions, by the order of member ids."""
    targets: Targets = {member_id: set() for member_id in subscriptions}
    for topic in sorted(counts):
        members = sorted(each for each, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        share, rest = divmod(counts[topic], len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + share + (index < rest)
            targets[member_id].update(PartitionKey(topic, each) for each in range(start, end))
            start = end
    return targets


def assign_uniform(
    subscriptions: Subscriptions, counts: Counts, before: Mapping[str, AbstractSet[PartitionKey]]
) -> Targets:
    """Balance the numbers of partitions; whoever had a partition keeps it, as far as that allows."""
    order = sorted(subscriptions)
    targets: Targets = {member_id: set() for member_id in order}
    taken: set[PartitionKey] = set()
    for member_id in order:
        for key in sorted(before.get(member_id, ())):
            known = key.topic in subscriptions[member_id] and key.partition < counts.get(key.topic, 0)
            if known and key not in taken:
                targets[member_id].add(key)
                taken.add(key)
    subscribers = {
        topic: [each for each in order if topic in subscriptions[each]] for topic in sorted(counts)
    }
    for topic, members in subscribers.items():
        for partition in range(counts[topic]):
            key = PartitionKey(topic, partition)
            if members and key not in taken:
                targets[min(members, key=lambda each: len(targets[each]))].add(key)
    _balance(targets, subscriptions)
    return targets


def _balance(targets: Targets, subscriptions: Subscriptions) -> None:
    """Move partitions to members that have at least two fewer than an owner, until nobody has."""
    moves_max = sum(len(held) for held in targets.values())
    for _ in range(moves_max):
        move = _next_move(targets, subscriptions)
        if move is None:
            return
        giver, key, taker = move
        targets[giver].remove(key)
        targets[taker].add(key)


def _next_move(targets: Targets, subscriptions: Subscriptions) -> tuple[str, PartitionKey, str] | None:
    givers = sorted(targets, key=lambda each: (-len(targets[each]), each))
    for taker in sorted(targets, key=lambda each: (len(targets[each]), each)):
        topics = subscriptions[taker]
        for giver in givers:
            if len(targets[giver]) - len(targets[taker]) < 2:
                break
            movable = [key for key in targets[giver] if key.topic in topics]
            if movable:
                return giver, max(movable), taker
    return None


Assignor = Callable[[Subscriptions, Counts, Mapping[str, AbstractSet[PartitionKey]]], Targets]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"
