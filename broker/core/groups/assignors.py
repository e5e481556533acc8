"""How a coordinator spreads partitions over the members of a group.

Each assignor gives every partition of a subscribed topic to exactly one of its subscribers (I24), the same
way for the same arguments. `uniform` balances how many partitions members have and moves as few as it can;
`range` gives each member a run of neighbours of every topic, so equal keys of equally split topics meet.
Source: KIP-848 ("Assignors"), KIP-54 (sticky); Kafka's RangeAssignor and UniformAssignor.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from heapq import heapify, heapreplace
from typing import Final

from quorum.metadata.group_records import TopicId
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
    for topic in sorted(counts):
        free = [key for each in range(counts[topic]) if (key := PartitionKey(topic, each)) not in taken]
        subscribers = [(len(targets[each]), each) for each in order if topic in subscriptions[each]]
        if not free or not subscribers:
            continue
        heapify(subscribers)
        for key in free:
            held, member_id = subscribers[0]
            targets[member_id].add(key)
            heapreplace(subscribers, (held + 1, member_id))
    _balance(targets, subscriptions)
    return targets


#: (number of partitions, member id) in order; with the number negated for those that give
_Ranks = list[tuple[int, str]]


def _balance(targets: Targets, subscriptions: Subscriptions) -> None:
    """Move partitions to members that have at least two fewer than an owner, until nobody has."""
    takers: _Ranks = sorted((len(held), each) for each, held in targets.items())
    givers: _Ranks = sorted((-len(held), each) for each, held in targets.items())
    ordered = {each: sorted(held) for each, held in targets.items()}
    topics = {each: Counter(key.topic for key in held) for each, held in targets.items()}
    #: Takers that no giver has anything for; asked again at the end, since a later move may change that.
    stuck: set[str] = set()
    moved = False
    for _ in range(sum(map(len, ordered.values()))):
        pair = _next_pair(takers, givers, topics, subscriptions, stuck)
        if pair is None and stuck and moved:
            stuck.clear()
            moved = False
            pair = _next_pair(takers, givers, topics, subscriptions, stuck)
        if pair is None:
            break
        moved = True
        giver, taker = pair
        key = next(each for each in reversed(ordered[giver]) if each.topic in subscriptions[taker])
        del ordered[giver][bisect_left(ordered[giver], key)]
        insort(ordered[taker], key)
        topics[giver][key.topic] -= 1
        topics[taker][key.topic] += 1
        for member_id, after in ((giver, len(ordered[giver])), (taker, len(ordered[taker]))):
            before = after + 1 if member_id == giver else after - 1
            _rank_again(takers, (before, member_id), (after, member_id))
            _rank_again(givers, (-before, member_id), (-after, member_id))
    targets.update((each, set(keys)) for each, keys in ordered.items())


def _next_pair(
    takers: _Ranks,
    givers: _Ranks,
    topics: Mapping[str, Mapping[str, int]],
    subscriptions: Subscriptions,
    stuck: set[str],
) -> tuple[str, str] | None:
    """Return who gives to whom: from the most partitions to the fewest, in a topic of both."""
    for count, taker in takers:
        if -givers[0][0] - count < 2:
            return None
        if taker in stuck:
            continue
        for negated, giver in givers:
            if -negated - count < 2:
                break
            if any(topics[giver].get(topic) for topic in subscriptions[taker]):
                return giver, taker
        stuck.add(taker)
    return None


def _rank_again(ranks: _Ranks, before: tuple[int, str], after: tuple[int, str]) -> None:
    del ranks[bisect_left(ranks, before)]
    insort(ranks, after)


Assignor = Callable[[Subscriptions, Counts, Mapping[str, AbstractSet[PartitionKey]]], Targets]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"


def select_assignor(wishes: Iterable[str | None]) -> str:
    """Return the assignor that most members wish, the default in doubt."""
    votes: dict[str, int] = {DEFAULT_ASSIGNOR: 0}
    for wish in wishes:
        if wish is not None:
            votes[wish] = votes.get(wish, 0) + 1
    return max(votes, key=lambda name: votes[name])


def targets_of(
    assignor: str,
    topics: Mapping[str, tuple[TopicId, int]],
    subscriptions: Subscriptions,
    before: Mapping[str, AbstractSet[tuple[TopicId, int]]],
) -> dict[str, frozenset[tuple[TopicId, int]]]:
    """Return what each member shall own, with topics by their ids.

    Args:
        assignor: its name.
        topics: {topic: (topic id, partitions)} of all subscriptions.
        subscriptions: of the members.
        before: what each was to own.
    """
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    held = {
        member_id: {PartitionKey(names[each], index) for each, index in owned if each in names}
        for member_id, owned in before.items()
    }
    counts = {name: count for name, (_, count) in topics.items()}
    return {
        member_id: frozenset((topics[key.topic][0], key.partition) for key in keys)
        for member_id, keys in ASSIGNORS[assignor](subscriptions, counts, held).items()
    }
